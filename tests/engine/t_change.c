/*
 * Weights that change: whatever writes them, whenever, kernels read what was written last.
 */
#include "rig.h"

#include <stdlib.h>
#include <string.h>

enum { COUNT = 8 };
static const size_t weight_bytes = 4 * MIB;

/* How a weight is changed. `piece` of it, in words from `first`; the host copy follows. */
typedef void change(struct rig *rig, struct rig_weight *weight, size_t first, size_t piece);

static void by_kernel(struct rig *rig, struct rig_weight *weight, size_t first, size_t piece)
{
    CUdeviceptr address = weight->address + 4 * first;
    uint32_t value = 12345;
    uint64_t words = piece;
    void *params[] = {&address, &value, &words};
    rig_launch(rig, "probe_increment", rig->stream, params);
    for (size_t i = first; i < first + piece; i++) {
        weight->host[i] += value;
    }
}

/* A kernel that never reads what it writes. */
static void by_fill(struct rig *rig, struct rig_weight *weight, size_t first, size_t piece)
{
    CUdeviceptr address = weight->address + 4 * first;
    uint32_t value = 77;
    uint64_t words = piece;
    void *params[] = {&address, &value, &words};
    rig_launch(rig, "probe_fill", rig->stream, params);
    for (size_t i = first; i < first + piece; i++) {
        weight->host[i] = value;
    }
}

static void by_upload(struct rig *rig, struct rig_weight *weight, size_t first, size_t piece)
{
    for (size_t i = first; i < first + piece; i++) {
        weight->host[i] = weight->host[i] * 7u + 1;
    }
    OK(cuStreamSynchronize(rig->stream)); /* the copy's stream does not wait for it */
    OK(cuMemcpyHtoD(weight->address + 4 * first, weight->host + first, 4 * piece));
}

static void by_async_upload(struct rig *rig, struct rig_weight *weight, size_t first, size_t piece)
{
    void *pinned;
    OK(cuMemAllocHost(&pinned, 4 * piece));
    for (size_t i = first; i < first + piece; i++) {
        weight->host[i] = weight->host[i] * 9u + 5;
    }
    memcpy(pinned, weight->host + first, 4 * piece);
    OK(cuMemcpyHtoDAsync(weight->address + 4 * first, pinned, 4 * piece, rig->stream));
    OK(cuStreamSynchronize(rig->stream));
    OK(cuMemFreeHost(pinned));
}

static void by_device_copy(struct rig *rig, struct rig_weight *weight, size_t first, size_t piece)
{
    const struct rig_weight *other = &rig->weight[weight == &rig->weight[0] ? 1 : 0];
    OK(cuMemcpyDtoDAsync(weight->address + 4 * first, other->address + 4 * first, 4 * piece, rig->stream));
    memcpy(weight->host + first, other->host + first, 4 * piece);
}

static void by_memset8(struct rig *rig, struct rig_weight *weight, size_t first, size_t piece)
{
    OK(cuMemsetD8Async(weight->address + 4 * first, 0x5A, 4 * piece, rig->stream));
    memset(weight->host + first, 0x5A, 4 * piece);
}

static void by_memset16(struct rig *rig, struct rig_weight *weight, size_t first, size_t piece)
{
    OK(cuMemsetD16Async(weight->address + 4 * first, 0xBEEF, 2 * piece, rig->stream));
    for (size_t i = first; i < first + piece; i++) {
        weight->host[i] = 0xBEEFBEEF;
    }
}

static void by_memset32(struct rig *rig, struct rig_weight *weight, size_t first, size_t piece)
{
    OK(cuMemsetD32Async(weight->address + 4 * first, 0xDEADBEEF, piece, rig->stream));
    for (size_t i = first; i < first + piece; i++) {
        weight->host[i] = 0xDEADBEEF;
    }
}

/* Every second row of 256 words. */
static void by_memset2d(struct rig *rig, struct rig_weight *weight, size_t first, size_t piece)
{
    const size_t rows = piece / 512;
    OK(cuMemsetD2D32Async(weight->address + 4 * first, 2048, 0x31415926, 256, rows, rig->stream));
    for (size_t row = 0; row < rows; row++) {
        for (size_t i = 0; i < 256; i++) {
            weight->host[first + row * 512 + i] = 0x31415926;
        }
    }
}

/* A LoRA merge: w += delta, by a kernel of two inputs that writes in place. */
static void by_merge(struct rig *rig, struct rig_weight *weight, size_t first, size_t piece)
{
    const struct rig_weight *delta = &rig->weight[weight == &rig->weight[COUNT - 1] ? 0 : COUNT - 1];
    CUdeviceptr a = weight->address + 4 * first, b = delta->address + 4 * first;
    uint64_t words = piece;
    void *params[] = {&a, &b, &a, &words};
    rig_launch(rig, "probe_add", rig->stream, params);
    for (size_t i = first; i < first + piece; i++) {
        weight->host[i] += delta->host[i];
    }
}

static void apply(struct rig *rig, change *how, unsigned index, bool whole)
{
    struct rig_weight *weight = &rig->weight[index];
    const size_t words = weight->bytes / 4;
    how(rig, weight, whole ? 0 : words / 4 + 3, whole ? words : words / 3 / 512 * 512);
    rig_changed(weight);
}

/* Before the plan: after the upload, between the first passes. Then streamed, then changed again and again, with passes
 * between, so that units come back into the ring and are changed there. */
static void change_before_and_after(change *how)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    apply(&rig, how, 2, true);
    rig_pass(&rig, NULL, 0);
    apply(&rig, how, 3, false);
    rig_until_streamed(&rig);
    for (unsigned round = 0; round < 6; round++) {
        apply(&rig, how, round == 0 ? 1 : round % COUNT, round % 2 == 0);
        rig_pass(&rig, NULL, 0);
        rig_pass(&rig, NULL, 0);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        apply(&rig, how, i, false);
        rig_read(&rig, i, i, rig.stream);
        apply(&rig, how, i, true);
    }
    for (int pass = 0; pass < 6; pass++) {
        rig_pass(&rig, NULL, 0);
    }
    rig_close(&rig);
}

#define CHANGE_CASE(how)              \
    static void change_##how(void)    \
    {                                 \
        change_before_and_after(how); \
    }
CHANGE_CASE(by_kernel)
CHANGE_CASE(by_fill)
CHANGE_CASE(by_upload)
CHANGE_CASE(by_async_upload)
CHANGE_CASE(by_device_copy)
CHANGE_CASE(by_memset8)
CHANGE_CASE(by_memset16)
CHANGE_CASE(by_memset32)
CHANGE_CASE(by_memset2d)
CHANGE_CASE(by_merge)

/* A buffer that a kernel writes in every pass with the same bytes looks like a weight and is none. */
static void same_bytes_written_every_pass(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    struct rig_weight *activation = &rig.weight[3];
    uint32_t first = 40;
    uint64_t words = activation->bytes / 4;
    for (size_t i = 0; i < words; i++) {
        activation->host[i] = first + (uint32_t)i;
    }
    rig_changed(activation);
    for (int pass = 0; pass < 20; pass++) {
        void *params[] = {&activation->address, &first, &words};
        rig_launch(&rig, "probe_count", rig.stream, params);
        rig_pass(&rig, NULL, 0);
    }
    HOLDS(rig_streamed_mib() > 0);
    rig_close(&rig);
}

/* The same with bytes that were there from the start: scratch that is zeroed in every pass and happens to stay zero. */
static void zeroes_written_every_pass(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    rig_drop(&rig, 3);
    struct rig_weight *scratch = &rig.weight[rig_add_zeroed(&rig, weight_bytes)];
    uint32_t zero = 0;
    uint64_t words = scratch->bytes / 4;
    for (int pass = 0; pass < 20; pass++) {
        void *params[] = {&scratch->address, &zero, &words};
        rig_launch(&rig, "probe_fill", rig.stream, params);
        rig_pass(&rig, NULL, 0);
    }
    HOLDS(rig_streamed_mib() > 0);
    rig_close(&rig);
}

/* The same, produced from another buffer: activations of a program that gets the same input again and again. */
static void same_activations_every_pass(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    struct rig_weight *in = &rig.weight[0], *out = &rig.weight[5], *more = &rig.weight[6];
    uint64_t words = in->bytes / 4;
    for (int pass = 0; pass < 20; pass++) {
        OK(cuMemcpyHtoD(in->address, in->host, in->bytes));
        void *first[] = {&in->address, &rig.weight[1].address, &out->address, &words};
        rig_launch(&rig, "probe_add", rig.stream, first);
        void *second[] = {&out->address, &rig.weight[2].address, &more->address, &words};
        rig_launch(&rig, "probe_add", rig.stream, second);
        for (size_t i = 0; i < words; i++) {
            out->host[i] = in->host[i] + rig.weight[1].host[i];
            more->host[i] = out->host[i] + rig.weight[2].host[i];
        }
        rig_changed(out);
        rig_changed(more);
        rig_pass(&rig, NULL, 0);
    }
    HOLDS(rig_streamed_mib() > 0);
    rig_close(&rig);
}

/* A kernel that adds 0 for a while looks like a reader; then it adds something. That cannot be seen in advance. The
 * program may get an error, but no wrong bytes. */
static void reader_becomes_writer(void)
{
    struct rig rig;
    uint32_t value = 0;
    uint64_t words = weight_bytes / 4;
    rig_open_with(&rig, COUNT, weight_bytes);
    for (int pass = 0; pass < 24; pass++) {
        value = pass < 12 ? 0 : (uint32_t)pass;
        struct rig_weight *weight = &rig.weight[pass < 12 ? pass % 2 : 1];
        void *params[] = {&weight->address, &value, &words};
        rig_launch(&rig, "probe_increment", rig.stream, params);
        if (cuStreamSynchronize(rig.stream) == CUDA_ERROR_ILLEGAL_ADDRESS) {
            exit(0);
        }
        for (size_t i = 0; i < words; i++) {
            weight->host[i] += value;
        }
        rig_changed(weight);
        rig_pass(&rig, NULL, 0);
    }
    HOLDS(rig_streamed_mib() > 0);
    rig_close(&rig);
}

/* Freed and uploaded again: other bytes at the same address, in every state. */
static void address_reused(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    unsigned same = 0;
    for (int round = 0; round < 10; round++) {
        const unsigned index = (unsigned)round % COUNT;
        if (round == 2) {
            rig_until_streamed(&rig);
        }
        struct rig_weight *weight = &rig.weight[index];
        const CUdeviceptr old = weight->address;
        OK(cuMemFree(weight->address));
        OK(cuMemAlloc(&weight->address, weight->bytes));
        same += weight->address == old;
        rig_refill(weight);
        OK(cuMemcpyHtoD(weight->address, weight->host, weight->bytes));
        rig_pass(&rig, NULL, 0);
        rig_pass(&rig, NULL, 0);
    }
    HOLDS(same > 0);
    rig_close(&rig);
}

/* Freed, and the address taken by something that is written in every pass. */
static void address_becomes_activation(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    rig_until_streamed(&rig);
    struct rig_weight *weight = &rig.weight[4];
    OK(cuMemFree(weight->address));
    OK(cuMemAlloc(&weight->address, weight->bytes));
    uint64_t words = weight->bytes / 4;
    for (uint32_t pass = 0; pass < 12; pass++) {
        void *params[] = {&weight->address, &pass, &words};
        rig_launch(&rig, "probe_count", rig.stream, params);
        for (size_t i = 0; i < words; i++) {
            weight->host[i] = pass + (uint32_t)i;
        }
        rig_changed(weight);
        rig_pass(&rig, NULL, 0);
    }
    HOLDS(rig_streamed_mib() > 0);
    rig_close(&rig);
}

static void fill(struct rig *rig, CUdeviceptr address, size_t bytes, uint32_t value)
{
    uint64_t words = bytes / 4;
    void *params[] = {&address, &value, &words};
    rig_launch(rig, "probe_fill", rig->stream, params);
}

/* An allocator's segment: an activation in front of weights. Writing the activation leaves the weights streamed; when
 * the first two are free, something larger is written from the activation's middle across both of them. */
static void write_from_in_front(void)
{
    struct rig rig;
    CUdeviceptr base;
    const size_t front_bytes = 2 * MIB;
    rig_open(&rig, 0);
    OK(cuMemAlloc(&base, front_bytes + COUNT * weight_bytes));
    static uint32_t zeroes[2 * MIB / 4]; /* an upload, or it would not be known where the first weight begins */
    OK(cuMemcpyHtoD(base, zeroes, front_bytes));
    for (unsigned i = 0; i < COUNT; i++) {
        (void)rig_place(&rig, base + front_bytes + i * weight_bytes, weight_bytes);
    }
    for (uint32_t pass = 0; pass < 24; pass++) {
        fill(&rig, base, front_bytes, pass);
        fill(&rig, base + MIB / 2 * (pass % 3), MIB / 2, pass);
        rig_pass(&rig, NULL, 0);
    }
    HOLDS(rig_streamed_mib() == COUNT * weight_bytes / MIB);
    const unsigned plans = rig_plans();
    const size_t begin = MIB + MIB / 4; /* where no kernel was pointed to before */
    fill(&rig, base + begin, front_bytes - begin + 2 * weight_bytes, 7);
    for (size_t i = 0; i < weight_bytes / 4; i++) {
        rig.weight[0].host[i] = rig.weight[1].host[i] = 7;
    }
    rig_changed(&rig.weight[0]);
    rig_changed(&rig.weight[1]);
    HOLDS(rig_plans() == plans);
    for (unsigned pass = 0; pass < 4; pass++) {
        rig_pass(&rig, NULL, 0);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        rig.weight[i].address = 0;
    }
    OK(cuMemFree(base));
    rig_close(&rig);
}

/* What a kernel that is enqueued behind a slow one will read is changed by a copy in stream order, while the slow one
 * still runs. */
static void order_of_change_is_kept(void)
{
    struct rig rig;
    rig_open_with(&rig, COUNT, weight_bytes);
    rig_until_streamed(&rig);
    void *pinned;
    OK(cuMemAllocHost(&pinned, weight_bytes));
    for (unsigned round = 0; round < 12; round++) {
        struct rig_weight *weight = &rig.weight[round % COUNT];
        double microseconds = 3000;
        void *spin[] = {&microseconds};
        uint32_t got[2];
        const uint32_t before = rig_digest(weight->host, weight->bytes / 4);
        rig_launch(&rig, "probe_spin", rig.stream, spin);
        rig_read(&rig, round % COUNT, 100, rig.stream);
        rig_refill(weight);
        memcpy(pinned, weight->host, weight_bytes);
        OK(cuMemcpyHtoDAsync(weight->address, pinned, weight_bytes, rig.stream));
        rig_read(&rig, round % COUNT, 101, rig.stream);
        OK(cuStreamSynchronize(rig.stream));
        OK(cuMemcpyDtoH(got, rig.out + 400, sizeof got));
        if (got[0] != before || got[1] != rig_digest(weight->host, weight->bytes / 4)) {
            rig_fail(RIG_EXIT_WRONG, "round %u: a kernel saw the wrong version", round);
        }
        rig_pass(&rig, NULL, 0);
    }
    OK(cuMemFreeHost(pinned));
    rig_close(&rig);
}

#define CASE(name)  \
    {               \
#name, name \
    }
static const struct rig_case cases[] = {
    CASE(change_by_kernel),
    CASE(change_by_fill),
    CASE(change_by_upload),
    CASE(change_by_async_upload),
    CASE(change_by_device_copy),
    CASE(change_by_memset8),
    CASE(change_by_memset16),
    CASE(change_by_memset32),
    CASE(change_by_memset2d),
    CASE(change_by_merge),
    CASE(same_bytes_written_every_pass),
    CASE(zeroes_written_every_pass),
    CASE(same_activations_every_pass),
    CASE(reader_becomes_writer),
    CASE(address_reused),
    CASE(address_becomes_activation),
    CASE(write_from_in_front),
    CASE(order_of_change_is_kept),
};
RIG_MAIN(cases)
