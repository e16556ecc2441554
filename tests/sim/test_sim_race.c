/*
 * The happens-before checker: what it must find and what it must let pass. Each program runs in a child; a race aborts
 * it. The timing of a program never decides: the wrong ones here would mostly come out right on a real GPU.
 */
#include "harness.h"

#include <pthread.h>
#include <string.h>

enum { WORDS = 1024 };

static CUdeviceptr ring, out;
static uint32_t *host;
static CUstream compute, side;
static CUevent ready, done;

static void prepare(void)
{
    start(0);
    ring = device_words(WORDS);
    out = device_words(WORDS);
    host = pinned_words(WORDS);
    compute = new_stream();
    side = new_stream();
    ready = new_event();
    done = new_event();
    probe_module();
    OK(cuCtxSynchronize());
}

/* One turn of a ring slot: refill on the side stream, then a kernel that reads it. */
static void turn(int wait_for_data, int wait_for_reader)
{
    if (wait_for_reader)
        OK(cuStreamWaitEvent(side, done, 0));
    OK(cuMemcpyHtoDAsync(ring, host, 4 * WORDS, side));
    OK(cuEventRecord(ready, side));
    if (wait_for_data)
        OK(cuStreamWaitEvent(compute, ready, 0));
    OK(copy(compute, ring, out, WORDS));
    OK(cuEventRecord(done, compute));
}

static void ordered_ring(void)
{
    prepare();
    for (int i = 0; i < 20; i++)
        turn(1, 1);
    OK(cuCtxSynchronize());
}

static void refill_too_early(void)
{
    prepare();
    turn(1, 0);
    turn(1, 0);
}

static void read_too_early(void)
{
    prepare();
    turn(0, 0);
}

START_TEST(ring_in_order_passes)
{
    NO_RACE(ordered_ring);
}
END_TEST

START_TEST(refill_before_the_last_reader_is_found)
{
    RACE(refill_too_early, "probe_copy", "cuMemcpyHtoDAsync_v2");
}
END_TEST

START_TEST(missing_wait_for_data_is_found)
{
    RACE(read_too_early, "cuMemcpyHtoDAsync_v2", "probe_copy");
}
END_TEST

/* The same through two addresses of one handle. */
static void alias_turns(int ordered)
{
    prepare();
    struct mapped writable = map_new(PAGE);
    CUdeviceptr readable;
    OK(cuMemAddressReserve(&readable, PAGE, 0, 0, 0));
    OK(map_at(readable, PAGE, writable.handle, CU_MEM_ACCESS_FLAGS_PROT_READ));
    for (int i = 0; i < 5; i++) {
        if (ordered)
            OK(cuStreamWaitEvent(side, done, 0));
        OK(cuMemcpyHtoDAsync(writable.address, host, 4 * WORDS, side));
        OK(cuEventRecord(ready, side));
        OK(cuStreamWaitEvent(compute, ready, 0));
        OK(copy(compute, readable, out, WORDS));
        OK(cuEventRecord(done, compute));
    }
}

static void alias_ordered(void)
{
    alias_turns(1);
}

static void alias_unordered(void)
{
    alias_turns(0);
}

START_TEST(aliases_are_the_same_bytes)
{
    NO_RACE(alias_ordered);
    RACE(alias_unordered, "probe_copy", "cuMemcpyHtoDAsync_v2");
}
END_TEST

static void readers_share(void)
{
    prepare();
    OK(fill(compute, ring, 1, WORDS));
    OK(cuStreamSynchronize(compute));
    CUdeviceptr second = device_words(WORDS);
    OK(copy(compute, ring, out, WORDS));
    OK(copy(side, ring, second, WORDS));
    OK(cuCtxSynchronize());
}

static void neighbours(void)
{
    /* two halves of one page, and two allocations in one block */
    prepare();
    OK(fill(compute, ring, 1, WORDS / 2));
    OK(fill(side, ring + 2 * WORDS, 2, WORDS / 2));
    OK(fill(compute, out, 3, 1));
    OK(fill(side, out + 4, 3, 1));
    OK(cuCtxSynchronize());
}

START_TEST(readers_and_neighbours_pass)
{
    NO_RACE(readers_share);
    NO_RACE(neighbours);
}
END_TEST

static void two_writers(void)
{
    prepare();
    OK(fill(compute, ring, 1, WORDS));
    OK(fill(side, ring + 4 * WORDS - 4, 2, 1)); /* one word in common */
}

static void two_readers_then_writer(void)
{
    prepare();
    CUdeviceptr second = device_words(WORDS);
    OK(copy(compute, ring, out, WORDS));
    OK(copy(side, ring, second, WORDS));
    OK(cuEventRecord(ready, side));
    CUstream third = new_stream();
    OK(cuStreamWaitEvent(third, ready, 0)); /* waits for one of the two readers only */
    OK(fill(third, ring, 1, WORDS));
}

START_TEST(overlapping_writes_are_found)
{
    RACE(two_writers, "probe_fill", "probe_fill");
    RACE(two_readers_then_writer, "probe_copy", "probe_fill");
}
END_TEST

static void host_synchronises(void)
{
    prepare();
    OK(fill(side, ring, 1, WORDS));
    OK(cuStreamSynchronize(side));
    OK(copy(compute, ring, out, WORDS));
    OK(cuEventRecord(done, compute));
    OK(cuEventSynchronize(done));
    OK(fill(side, ring, 2, WORDS));
    OK(cuMemcpyHtoD(out, host, 4 * WORDS));
    OK(cuCtxSynchronize());
}

static void polling_synchronises(void)
{
    prepare();
    OK(fill(side, ring, 1, WORDS));
    OK(cuEventRecord(done, side));
    while (cuEventQuery(done) == CUDA_ERROR_NOT_READY)
        ;
    OK(copy(compute, ring, out, WORDS));
    OK(cuCtxSynchronize());
}

static void *synchronise_and_submit(void *unused)
{
    CUcontext context;
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuStreamSynchronize(side));
    OK(copy(compute, ring, out, WORDS));
    return unused;
}

static void another_thread_synchronises(void)
{
    pthread_t thread;
    prepare();
    OK(fill(side, ring, 1, WORDS));
    ck_assert_int_eq(pthread_create(&thread, NULL, synchronise_and_submit, NULL), 0);
    pthread_join(thread, NULL);
    OK(cuCtxSynchronize());
}

START_TEST(host_synchronisation_orders)
{
    NO_RACE(host_synchronises);
    NO_RACE(polling_synchronises);
    NO_RACE(another_thread_synchronises);
}
END_TEST

static void legacy_orders(void)
{
    CUstream blocking, second;
    prepare();
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK(cuStreamCreate(&second, CU_STREAM_DEFAULT));
    OK(fill(blocking, ring, 1, WORDS));
    OK(fill(NULL, ring, 2, WORDS));
    OK(fill(second, ring, 3, WORDS));
    OK(cuCtxSynchronize());
}

static void legacy_does_not_order_nonblocking(void)
{
    prepare();
    OK(fill(compute, ring, 1, WORDS));
    OK(fill(NULL, ring, 2, WORDS));
}

START_TEST(legacy_stream_rules)
{
    NO_RACE(legacy_orders);
    RACE(legacy_does_not_order_nonblocking, "probe_fill", "probe_fill");
}
END_TEST

static void stale_event(void)
{
    /* the event is waited for before it is recorded again: it orders the old record only */
    prepare();
    OK(cuEventRecord(ready, side));
    OK(cuStreamWaitEvent(compute, ready, 0));
    OK(fill(side, ring, 1, WORDS));
    OK(cuEventRecord(ready, side));
    OK(copy(compute, ring, out, WORDS));
}

static void chain_of_events(void)
{
    prepare();
    CUstream middle = new_stream();
    OK(fill(side, ring, 1, WORDS));
    OK(cuEventRecord(ready, side));
    OK(cuStreamWaitEvent(middle, ready, 0));
    OK(cuEventRecord(done, middle)); /* nothing ran in the middle stream: order passes through */
    OK(cuStreamWaitEvent(compute, done, 0));
    OK(copy(compute, ring, out, WORDS));
    OK(cuCtxSynchronize());
}

START_TEST(events_order_what_was_recorded)
{
    RACE(stale_event, "probe_fill", "probe_copy");
    NO_RACE(chain_of_events);
}
END_TEST

static void unmap_while_reading(void)
{
    prepare();
    struct mapped page = map_new(PAGE);
    OK(slow_copy(compute, page.address, out, WORDS, 1000));
    OK(cuMemUnmap(page.address, PAGE));
}

static void unmap_after_synchronisation(void)
{
    prepare();
    struct mapped page = map_new(PAGE);
    OK(slow_copy(compute, page.address, out, WORDS, 1000));
    OK(cuStreamSynchronize(compute));
    OK(cuMemUnmap(page.address, PAGE));
    OK(cuMemRelease(page.handle));
}

static void unmap_the_other_alias(void)
{
    prepare();
    struct mapped page = map_new(PAGE);
    CUdeviceptr second;
    OK(cuMemAddressReserve(&second, PAGE, 0, 0, 0));
    OK(map_at(second, PAGE, page.handle, CU_MEM_ACCESS_FLAGS_PROT_READ));
    OK(slow_copy(compute, page.address, out, WORDS, 1000));
    OK(cuMemUnmap(second, PAGE)); /* nobody uses this address */
    OK(cuCtxSynchronize());
}

static void take_rights_while_writing(void)
{
    prepare();
    struct mapped page = map_new(PAGE);
    OK(fill(compute, page.address, 1, WORDS));
    OK(set_access(page.address, PAGE, CU_MEM_ACCESS_FLAGS_PROT_READ));
}

START_TEST(unmapping_under_a_kernel_is_found)
{
    RACE(unmap_while_reading, "probe_slow_copy", "cuMemUnmap");
    NO_RACE(unmap_after_synchronisation);
    NO_RACE(unmap_the_other_alias);
    RACE(take_rights_while_writing, "probe_fill", "cuMemSetAccess");
}
END_TEST

static void free_synchronises(void)
{
    prepare();
    OK(slow_copy(compute, ring, out, WORDS, 1000));
    OK(cuMemFree(ring));
    OK(cuMemFree(out));
}

START_TEST(free_right_after_launch_passes)
{
    NO_RACE(free_synchronises);
}
END_TEST

static void pinned_buffer_reused(void)
{
    prepare();
    OK(cuMemcpyDtoHAsync(host, ring, 4 * WORDS, compute));
    OK(cuMemcpyHtoDAsync(out, host, 4 * WORDS, side)); /* reads what the other copy writes */
}

START_TEST(pinned_host_memory_counts_too)
{
    RACE(pinned_buffer_reused, "cuMemcpyDtoHAsync_v2", "cuMemcpyHtoDAsync_v2");
}
END_TEST

static void report_only(void)
{
    knob("SIM_RACE", "report");
    two_writers();
    OK(cuCtxSynchronize());
}

START_TEST(races_can_be_reported_only)
{
    struct outcome result = outcome(report_only);
    ck_assert_int_eq(result.signal, 0);
    ck_assert_ptr_nonnull(strstr(result.text, "sim: race:"));
}
END_TEST

SUITE(sim_race, ring_in_order_passes, refill_before_the_last_reader_is_found, missing_wait_for_data_is_found,
      aliases_are_the_same_bytes, readers_and_neighbours_pass, overlapping_writes_are_found,
      host_synchronisation_orders, legacy_stream_rules, events_order_what_was_recorded,
      unmapping_under_a_kernel_is_found, free_right_after_launch_passes, pinned_host_memory_counts_too,
      races_can_be_reported_only)
