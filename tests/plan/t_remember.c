/*
 * A program for remember.sh: weights that are the same in every case but for what the case is about, so that one case
 * leaves a profile and another finds it. Results are right in all of them, whatever was found.
 */
#include "rig.h"

#include <stdlib.h>
#include <string.h>

enum { COUNT = 10, PASSES = 8 };
static const size_t weight_bytes = 4 * MIB;

static void run(struct rig *rig)
{
    for (int pass = 0; pass < PASSES; pass++) {
        rig_pass(rig, NULL, 0);
    }
    rig_close(rig);
}

/* The program has waited for its uploads. */
static void open(struct rig *rig, unsigned count)
{
    rig_open_with(rig, count, weight_bytes);
    OK(cuCtxSynchronize());
}

static void plain(void)
{
    struct rig rig;
    open(&rig, COUNT);
    run(&rig);
}

static void one_byte(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    struct rig_weight *weight = &rig.weight[6];
    weight->host[weight_bytes / 4 - 77] ^= 0x100;
    rig_changed(weight);
    OK(cuMemcpyHtoD(weight->address, weight->host, weight_bytes));
    OK(cuCtxSynchronize());
    run(&rig);
}

static void three_more(void)
{
    struct rig rig;
    open(&rig, COUNT + 3);
    run(&rig);
}

static void one_less(void)
{
    struct rig rig;
    open(&rig, COUNT - 1);
    run(&rig);
}

/* The same weights, allocated in another order and after other things. */
static void other_order(void)
{
    struct rig rig;
    CUdeviceptr address[COUNT], other;
    rig_open(&rig, 0);
    OK(cuMemAlloc(&other, 2 * MIB));
    for (unsigned i = 0; i < COUNT; i++) {
        OK(cuMemAlloc(&address[i], weight_bytes));
    }
    for (unsigned i = 0; i < COUNT; i++) {
        (void)rig_place(&rig, address[(i * 7 + 3) % COUNT], weight_bytes);
    }
    OK(cuMemFree(other));
    OK(cuCtxSynchronize());
    run(&rig);
}

/* ---- one allocation */

static CUdeviceptr place_all(struct rig *rig)
{
    CUdeviceptr base;
    rig_open(rig, 0);
    OK(cuMemAlloc(&base, COUNT * weight_bytes));
    for (unsigned i = 0; i < COUNT; i++) {
        (void)rig_place(rig, base + i * weight_bytes, weight_bytes);
    }
    OK(cuCtxSynchronize());
    return base;
}

static void close_all(struct rig *rig, CUdeviceptr base)
{
    for (unsigned i = 0; i < rig->count; i++) {
        free(rig->weight[i].host);
    }
    rig->count = 0;
    OK(cuMemFree(base));
    rig_close(rig);
}

static void slices_apart(void)
{
    struct rig rig;
    CUdeviceptr base = place_all(&rig);
    for (int pass = 0; pass < PASSES; pass++) {
        rig_pass(&rig, NULL, 0);
    }
    close_all(&rig, base);
}

/* The same kernel, which now gets only the beginning and reads two slices from it on. */
static void slices_together(void)
{
    struct rig rig;
    CUdeviceptr base = place_all(&rig);
    uint32_t *pair = malloc(2 * weight_bytes), got[COUNT];
    for (int pass = 0; pass < PASSES; pass++) {
        for (unsigned i = 0; i < COUNT; i += 2) {
            CUdeviceptr in = base + i * weight_bytes, out = rig.out + 4 * i;
            uint64_t words = 2 * weight_bytes / 4;
            void *params[] = {&in, &out, &words};
            rig_launch(&rig, "probe_digest", rig.stream, params);
        }
        OK(cuStreamSynchronize(rig.stream));
        OK(cuMemcpyDtoH(got, rig.out, sizeof got));
        for (unsigned i = 0; i < COUNT; i += 2) {
            memcpy(pair, rig.weight[i].host, weight_bytes);
            memcpy(pair + weight_bytes / 4, rig.weight[i + 1].host, weight_bytes);
            if (got[i] != rig_digest(pair, 2 * weight_bytes / 4)) {
                rig_fail(RIG_EXIT_WRONG, "pass %d: slices %u and %u are wrong", pass, i, i + 1);
            }
        }
    }
    free(pair);
    close_all(&rig, base);
}

/* ---- what was not done before */

/* A kernel that was not there in the other run computes the address of another weight's middle, and a third reads it.
 */
static void computes_addresses(void)
{
    struct rig rig;
    CUdeviceptr table, out;
    uint64_t slot = 0, entries = 1, words = 1024;
    static uint32_t got[1024];
    open(&rig, COUNT);
    table = rig.out + 8192;
    OK(cuMemAlloc(&out, sizeof got));
    for (unsigned pass = 0; pass < PASSES; pass++) {
        const struct rig_weight *weight = &rig.weight[pass % COUNT];
        CUdeviceptr to = weight->address;
        void *write[] = {&table, &to, &slot}, *read[] = {&table, &entries, &out, &words};
        rig_launch(&rig, "probe_write_pointer", rig.stream, write);
        for (unsigned i = 0; i < COUNT; i++) {
            rig_read(&rig, i, i, rig.stream); /* turns the ring */
        }
        rig_launch(&rig, "probe_read_table", rig.stream, read);
        OK(cuStreamSynchronize(rig.stream));
        OK(cuMemcpyDtoH(got, out, sizeof got));
        if (memcmp(got, weight->host, sizeof got) != 0) {
            rig_fail(RIG_EXIT_WRONG, "pass %u: the table led to other bytes", pass);
        }
    }
    OK(cuMemFree(out));
    run(&rig);
}

/* A kernel that was not there before changes a weight in the first pass. */
static void changes_a_weight(void)
{
    struct rig rig;
    open(&rig, COUNT);
    for (unsigned pass = 0; pass < 3; pass++) {
        struct rig_weight *weight = &rig.weight[3 * pass];
        uint64_t words = weight->bytes / 4;
        uint32_t one = 1;
        void *params[] = {&weight->address, &one, &words};
        rig_launch(&rig, "probe_increment", rig.stream, params);
        for (size_t i = 0; i < words; i++) {
            weight->host[i]++;
        }
        rig_changed(weight);
        rig_pass(&rig, NULL, 0);
    }
    run(&rig);
}

/* Memory that was zero and only read, and is written in another run. Weights that are read back leave the ring, and are
 * looked for once more: by then their reader is known, so the zeroes are taken for a weight, too. */
static void zeroes(bool written)
{
    struct rig rig;
    void *back = malloc(weight_bytes);
    open(&rig, COUNT);
    unsigned index = rig_add_zeroed(&rig, weight_bytes);
    for (unsigned pass = 0; pass < 3 * PASSES; pass++) {
        for (unsigned i = 0; i < COUNT && pass == PASSES; i++) {
            OK(cuMemcpyDtoH(back, rig.weight[i].address, weight_bytes));
            rig_compare_bytes(&rig.weight[i], back, "read back");
        }
        struct rig_weight *weight = &rig.weight[index];
        uint64_t words = weight->bytes / 4;
        uint32_t one = 1;
        void *params[] = {&weight->address, &one, &words};
        if (written && pass > 0) {
            rig_launch(&rig, "probe_increment", rig.stream, params);
            for (size_t i = 0; i < words; i++) {
                weight->host[i]++;
            }
            rig_changed(weight);
        }
        rig_pass(&rig, NULL, 0);
    }
    free(back);
    rig_close(&rig);
}

static void zeroes_read(void)
{
    zeroes(false);
}

static void zeroes_written(void)
{
    zeroes(true);
}

/* Half of the weights go, and the program waits again and again, at whatever point the profile would be written. */
static void frees_half(void)
{
    struct rig rig;
    open(&rig, COUNT);
    for (int pass = 0; pass < PASSES; pass++) {
        rig_pass(&rig, NULL, 0);
    }
    for (unsigned i = 0; i < COUNT; i += 2) {
        rig_drop(&rig, i);
        for (int wait = 0; wait < 20; wait++) {
            OK(cuCtxSynchronize());
        }
    }
    rig_close(&rig);
}

static const struct rig_case cases[] = {
    {"plain", plain},
    {"one_byte", one_byte},
    {"three_more", three_more},
    {"one_less", one_less},
    {"other_order", other_order},
    {"slices_apart", slices_apart},
    {"slices_together", slices_together},
    {"computes_addresses", computes_addresses},
    {"changes_a_weight", changes_a_weight},
    {"zeroes_read", zeroes_read},
    {"zeroes_written", zeroes_written},
    {"frees_half", frees_half},
};
RIG_MAIN(cases)
