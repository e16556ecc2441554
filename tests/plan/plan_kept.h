/*
 * plan_kept.h - an input for the planner in globals of whoever includes it, and make(), which plans it and checks what
 * every plan keeps: sums, tiers, the ring, a replay of the cycle, times.
 */
#ifndef OV_TEST_PLAN_KEPT_H
#define OV_TEST_PLAN_KEPT_H

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "plan_rig.h"

#define CHECK(condition)                                       \
    do {                                                       \
        if (!(condition)) {                                    \
            ck_abort_msg("line %d: %s", __LINE__, #condition); \
        }                                                      \
    } while (0)

#define MOST_UNITS   6000
#define MOST_TOUCHES 12000
#define MOST_GROUPS  6000

static uint64_t seed;

static inline uint32_t below(uint32_t n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)((seed >> 20) % n);
}

static struct ov_plan_unit unit[MOST_UNITS];
static uint32_t cycle[MOST_TOUCHES], group_unit[4 * MOST_GROUPS];
static struct ov_plan_group group[MOST_GROUPS];
static double compute_s[MOST_TOUCHES];
static struct ov_plan_input input;
static struct ov_plan plan;

static inline void begin(size_t budget_pages)
{
    ov_plan_free(&plan);
    seed = 0x2545f4914f6cdd1du;
    input = (struct ov_plan_input){.unit = unit,
                                   .cycle = cycle,
                                   .group = group,
                                   .group_unit = group_unit,
                                   .budget_pages = budget_pages,
                                   .tiers = OV_TIERS_ALL,
                                   .link_pages_per_s = 1000};
}

static inline uint32_t add_idle(uint32_t pages, unsigned may)
{
    unit[input.unit_count] = (struct ov_plan_unit){.pages = pages, .may = (uint8_t)may};
    return (uint32_t)input.unit_count++;
}

static inline void touch(uint32_t number)
{
    cycle[input.cycle_length++] = number;
}

static inline uint32_t add(uint32_t pages, unsigned may)
{
    const uint32_t number = add_idle(pages, may);
    touch(number);
    return number;
}

static inline void add_group(uint32_t length, const uint32_t *member)
{
    struct ov_plan_group *last = &group[input.group_count];

    *last = (struct ov_plan_group){input.group_count ? last[-1].start + last[-1].length : 0, length};
    memcpy(group_unit + last->start, member, length * sizeof(*member));
    input.group_count++;
}

static inline void pair(uint32_t a, uint32_t b)
{
    add_group(2, (const uint32_t[]){a, b});
}

static inline void check_sums(void)
{
    size_t pages[3] = {0, 0, 0}, units[3] = {0, 0, 0}, unplaced = 0;

    for (size_t i = 0; i < plan.unit_count; i++) {
        const struct ov_plan_place *place = &plan.place[i];
        CHECK(place->tier <= OV_TIER_HOST && place->reason < OV_PLAN_REASON_COUNT);
        CHECK(place->pages == unit[i].pages && place->sparse == unit[i].sparse);
        pages[place->tier] += place->pages;
        units[place->tier]++;
        unplaced += place->reason == OV_PLAN_NO_ROOM ? place->pages : 0;
    }
    CHECK(plan.unit_count == input.unit_count);
    CHECK(plan.resident_pages == pages[0] && plan.streamed_pages == pages[1] && plan.host_pages == pages[2]);
    CHECK(plan.resident_units == units[0] && plan.streamed_units == units[1] && plan.host_units == units[2]);
    CHECK(plan.unplaced_pages == unplaced);
    CHECK(plan.resident_pages + plan.ring_pages <= input.budget_pages);
}

static inline void check_tiers(void)
{
    const size_t left = input.budget_pages - plan.resident_pages - plan.ring_pages;

    for (size_t i = 0; i < plan.unit_count; i++) {
        const struct ov_plan_place *place = &plan.place[i];
        const unsigned bit = OV_TIER_BIT(place->tier), may = unit[i].may;
        if (place->reason == OV_PLAN_NO_ROOM) {
            CHECK(place->tier == OV_TIER_HOST && !(may & H));
        } else {
            CHECK(may & bit);
        }
        CHECK(place->tier != OV_TIER_STREAMED || (input.tiers & S) || (may & input.tiers) == 0);
        CHECK(place->tier != OV_TIER_RESIDENT || (input.tiers & R) || (may & input.tiers & (S | H)) == 0 ||
              !(may & S) || !(may & H) || !(input.tiers & H));
        /* Nothing is left out that would still fit. */
        CHECK(place->tier == OV_TIER_RESIDENT || !(may & input.tiers & R) || place->pages > left);
    }
}

static inline void check_ring(void)
{
    size_t end = 0;

    for (uint32_t i = 0; i < plan.unit_count; i++) {
        const struct ov_plan_place *place = &plan.place[i];
        if (place->tier == OV_TIER_STREAMED) {
            end = place->ring_page + place->pages > end ? place->ring_page + place->pages : end;
        } else {
            CHECK(place->ring_page == 0);
        }
    }
    CHECK(end == plan.ring_pages || (end < plan.ring_pages && plan.streamed_units > 0));
    for (size_t g = 0; g < input.group_count; g++) {
        for (uint32_t a = 0; a < group[g].length; a++) {
            for (uint32_t b = 0; b < a; b++) {
                const uint32_t x = group_unit[group[g].start + a], y = group_unit[group[g].start + b];
                CHECK(x == y || !ov_plan_overlap(&plan, x, y));
            }
        }
    }
}

/* The ring as it will be used: before each touch its unit is loaded whole, and all others of a launch stay whole. */
static inline void check_replay(void)
{
    uint32_t *owner = calloc(plan.ring_pages + 1, sizeof(*owner));
    size_t copied = 0;

    CHECK(owner);
    for (size_t i = 0; i < 3 * input.cycle_length; i++) {
        const uint32_t number = cycle[i % input.cycle_length];
        const struct ov_plan_place *place = &plan.place[number];
        bool whole = true;
        copied = i % input.cycle_length == 0 ? 0 : copied;
        for (uint32_t page = 0; page < place->pages && place->tier == OV_TIER_STREAMED; page++) {
            whole &= owner[place->ring_page + page] == number + 1;
        }
        if (!whole) {
            copied += place->pages;
            for (uint32_t page = 0; page < place->pages; page++) {
                owner[place->ring_page + page] = number + 1;
            }
        }
    }
    CHECK(input.cycle_length >= 16384 || copied == plan.cycle_pages);
    free(owner);
}

static inline void check_times(void)
{
    const double link = input.link_pages_per_s > 0 ? input.link_pages_per_s : OV_PLAN_LINK;
    double compute = 0;
    size_t host = 0;

    for (size_t i = 0; i < input.cycle_length; i++) {
        const struct ov_plan_place *place = &plan.place[cycle[i]];
        compute += input.compute_s ? input.compute_s[i] : place->pages / link / 64;
        host += place->tier == OV_TIER_HOST && !place->sparse ? place->pages : 0;
    }
    CHECK(plan.cycle_host_pages == host);
    CHECK(plan.cycle_s >= compute * (1 - 1e-9));
    CHECK(plan.cycle_s * 2 >= (double)plan.cycle_pages / link);
}

static inline void make(void)
{
    ov_plan_free(&plan);
    ck_assert(ov_plan_make(&input, &plan));
    check_sums();
    check_tiers();
    check_ring();
    check_replay();
    check_times();
}

static inline size_t overlapping_neighbours(void)
{
    size_t count = 0;

    for (size_t i = 0; i + 1 < input.cycle_length; i++) {
        count += cycle[i] != cycle[i + 1] && ov_plan_overlap(&plan, cycle[i], cycle[i + 1]);
    }
    return count;
}

/* A decoder: per layer q k v o of 16 pages, gate up down of 56, as in a Llama of 8 billion parameters with MHA. */
static inline void add_decoder(unsigned layers)
{
    for (unsigned layer = 0; layer < layers; layer++) {
        for (unsigned i = 0; i < 7; i++) {
            add(i < 4 ? 16 : 56, ANY);
        }
    }
}

static inline double all_compute(double seconds_a_page)
{
    double sum = 0;

    for (size_t i = 0; i < input.cycle_length; i++) {
        compute_s[i] = unit[cycle[i]].pages * seconds_a_page;
        sum += compute_s[i];
    }
    input.compute_s = compute_s;
    return sum;
}

#endif
