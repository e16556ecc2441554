#define _GNU_SOURCE
#include "search.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "convert.h"
#include "engine.h"
#include "log.h"
#include "runtime.h"

/* Words that are tested together before one is looked at alone: the compiler makes vectors of it. */
#define BLOCK_WORDS 256u

bool ov_search_needed(void)
{
    for (int slice = 0; slice < OV_DEVICES; slice++) {
        const struct ov_engine *engine = ov_engine_at(slice);
        if (engine != NULL && atomic_load_explicit(&engine->planned, memory_order_relaxed)) {
            return true;
        }
    }
    return false;
}

static bool streamed_at(const struct ov_engine *engine, uint64_t address, uint32_t *unit)
{
    uint32_t there = ov_unit_at(&engine->arena, &engine->ring, address);
    *unit = there - 1;
    return ov_is_unit(there);
}

/* The address is known to others than the launches that name it. */
static CUresult reach(uint64_t address)
{
    struct ov_engine *engine = ov_engine_of(address);
    uint32_t unit;
    if (engine == NULL || !atomic_load_explicit(&engine->planned, memory_order_relaxed)) {
        return CUDA_SUCCESS;
    }
    if (!streamed_at(engine, address, &unit)) {
        pthread_mutex_lock(&engine->lock);
        if (engine->watches > 0) {
            ov_learn_mark(engine, address, OV_MARK_HIDDEN); /* if it is on trial, it does not come back */
        }
        pthread_mutex_unlock(&engine->lock);
        return CUDA_SUCCESS;
    }
    struct ov_exclusive section;
    CUresult result = ov_exclusive_begin(engine, &section);
    if (result == CUDA_SUCCESS && streamed_at(engine, address, &unit)) {
        result = ov_unit_revoke(engine, unit, OV_MARK_HIDDEN);
    }
    ov_exclusive_end(engine, &section);
    return result;
}

CUresult ov_address_encoded(const void *object, size_t bytes, CUdeviceptr address)
{
    struct ov_engine *engine = ov_engine_of(address);
    bool seen = engine == NULL;
    for (size_t at = 0; at + 8 <= bytes && !seen; at += 8) {
        uint64_t word;
        memcpy(&word, (const char *)object + at, sizeof word);
        seen = word == address;
    }
    if (seen) {
        return CUDA_SUCCESS;
    }
    ov_log_once(OV_LOG_INFO, "descriptors of this driver hide their addresses: what they describe is not streamed");
    pthread_mutex_lock(&engine->lock);
    ov_learn_mark(engine, address, OV_MARK_HIDDEN);
    pthread_mutex_unlock(&engine->lock);
    return reach(address);
}

static bool any_address(const char *from, size_t words)
{
    const uint64_t base = ov_arena_base, bytes = ov_arena_bytes;
    uint64_t any = 0;
    for (size_t i = 0; i < words; i++) {
        uint64_t word;
        memcpy(&word, from + 8 * i, sizeof word);
        any |= word - base < bytes;
    }
    return any != 0;
}

CUresult ov_search(const void *from, size_t bytes, bool *named)
{
    const char *at = from;
    CUresult result = CUDA_SUCCESS;
    for (size_t left = bytes / 8; left > 0;) {
        size_t words = left < BLOCK_WORDS ? left : BLOCK_WORDS;
        if (any_address(at, words)) {
            for (size_t i = 0; i < words; i++) {
                uint64_t word;
                memcpy(&word, at + 8 * i, sizeof word);
                if (ov_arena_has(word)) {
                    CUresult reached = reach(word);
                    result = result != CUDA_SUCCESS ? result : reached;
                    if (named != NULL) {
                        *named = true;
                    }
                }
            }
        }
        at += 8 * words;
        left -= words;
    }
    return result;
}

CUresult ov_search_checked(const void *from, size_t bytes)
{
    char piece[16384];
    CUresult result = CUDA_SUCCESS;
    for (size_t done = 0; done < bytes; done += sizeof piece) {
        size_t size = bytes - done < sizeof piece ? bytes - done : sizeof piece;
        struct iovec to = {piece, size};
        struct iovec there = {(char *)(uintptr_t)from + done, size};
        ssize_t got = process_vm_readv(getpid(), &to, 1, &there, 1, 0);
        if (got < 0 && errno != EFAULT) { /* a sandbox without this call */
            memcpy(piece, there.iov_base, size);
            got = (ssize_t)size;
        }
        CUresult found = got > 0 ? ov_search(piece, (size_t)got, NULL) : CUDA_SUCCESS;
        result = result != CUDA_SUCCESS ? result : found;
    }
    return result;
}
