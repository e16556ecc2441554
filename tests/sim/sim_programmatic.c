/*
 * Programmatic dependent launch and the checker.
 *
 * A kernel launched this way may start while the kernel before it, its leader, still runs; it waits for the leader
 * somewhere in its own code. So what it reads before that wait (weights, as a rule) is ordered only by what was ordered
 * before the leader's start. Where a kernel waits cannot be known here. Its reads are therefore checked twice: once as
 * usual, and once, here, against the clock of the leader's start, with what the leader itself writes taken as waited
 * for. A refill that is ordered between the two kernels is found that way.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim_program.h"

/* The clock before the latest kernel of a lane, and that kernel's tick. By lane index. */
struct start {
    struct sim_vector clock;
    uint64_t tick;
};

static struct start *starts;
static size_t start_count;

static uint64_t own_tick(const struct sim_lane *lane)
{
    return lane->index < lane->clock.count ? lane->clock.tick[lane->index] : 0;
}

/* Called before the kernel is submitted; its tick will be the next one. */
void sim_programmatic_note(const struct sim_lane *lane)
{
    if (lane->index >= start_count) {
        size_t count = lane->index + 16;
        struct start *grown = realloc(starts, count * sizeof *grown);
        if (grown == NULL)
            sim_die("out of host memory");
        memset(grown + start_count, 0, (count - start_count) * sizeof *grown);
        starts = grown;
        start_count = count;
    }
    sim_vector_copy(&starts[lane->index].clock, &lane->clock);
    starts[lane->index].tick = own_tick(lane) + 1;
}

void sim_programmatic_follow_start(struct sim_lane *lane, const struct sim_lane *leader)
{
    if (leader->index < start_count)
        sim_lane_wait(lane, &starts[leader->index].clock, 0);
}

/* Was the lane's last operation a kernel? */
static int leads(const struct sim_lane *lane)
{
    return lane->index < start_count && starts[lane->index].tick != 0 && starts[lane->index].tick == own_tick(lane);
}

/* What is ordered before the first instruction of a kernel on `lane`, when it need not wait for `leader`. */
static void early_clock(struct sim_vector *out, const struct sim_lane *lane, const struct sim_lane *leader)
{
    uint32_t count = (lane->index > leader->index ? lane->index : leader->index) + 1;
    struct sim_vector own = {.tick = calloc(count, sizeof *own.tick), .count = count, .room = count};
    if (own.tick == NULL)
        sim_die("out of host memory");
    own.tick[lane->index] = own_tick(lane);
    own.tick[leader->index] = own_tick(leader);
    struct sim_lane host;
    sim_lane_init(&host, lane->context, 0); /* a fresh lane knows what the host has synchronised with */
    sim_vector_copy(out, &own);
    sim_vector_join(out, &host.clock);
    sim_vector_join(out, &starts[leader->index].clock);
    sim_lane_retire(&host);
    sim_vector_free(&own);
}

static void check_reads(const struct sim_lane *early, const struct sim_launch *launch, const struct sim_accesses *list)
{
    char text[256];
    snprintf(text, sizeof text, "%s, programmatic, before its wait,", launch->func->site);
    const char *site = sim_intern(text);
    for (size_t i = 0; i < list->count; i++) {
        const struct sim_piece *piece;
        if (list->item[i].writes)
            continue;
        size_t count = sim_memory_pieces(list->item[i].address, list->item[i].bytes, &piece);
        sim_race_access(early, site, 0, piece, count, 0);
    }
}

static int is_programmatic(const struct sim_launch *launch)
{
    const CUlaunchAttribute *attribute =
        sim_launch_attribute(launch, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
    return attribute != NULL && attribute->value.programmaticStreamSerializationAllowed;
}

static void check_node(const struct sim_node *node, const struct sim_accesses *list)
{
    for (size_t e = 0; e < node->edge_count; e++) {
        const struct sim_node *leader = node->edge[e].from;
        if (node->edge[e].data.type != CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC || !leads(&leader->lane))
            continue;
        struct sim_lane early = {.context = node->lane.context, .index = node->lane.index, .id = node->lane.id};
        early_clock(&early.clock, &node->lane, &leader->lane);
        for (size_t other = 0; other < node->edge_count; other++)
            if (node->edge[other].data.type != CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC)
                sim_vector_join(&early.clock, &node->edge[other].from->lane.clock);
        check_reads(&early, &node->launch, list);
        sim_vector_free(&early.clock);
    }
}

void sim_programmatic_check(const struct sim_lane *lane, const struct sim_launch *launch, const struct sim_node *node,
                            const struct sim_accesses *list)
{
    if (node != NULL) {
        check_node(node, list);
    } else if (is_programmatic(launch) && leads(lane)) {
        struct sim_lane early = {.context = lane->context, .index = lane->index, .id = lane->id};
        early_clock(&early.clock, lane, lane);
        check_reads(&early, launch, list);
        sim_vector_free(&early.clock);
    }
}
