/* The planner: what every plan keeps, on thousands of random inputs, and what it aims for, on inputs that show it. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/plan.h"

#define CHECK(condition)                                       \
    do {                                                       \
        if (!(condition)) {                                    \
            ck_abort_msg("line %d: %s", __LINE__, #condition); \
        }                                                      \
    } while (0)

#define R   OV_TIER_BIT(OV_TIER_RESIDENT)
#define S   OV_TIER_BIT(OV_TIER_STREAMED)
#define H   OV_TIER_BIT(OV_TIER_HOST)
#define ANY (R | S | H)

#define MOST_UNITS   6000
#define MOST_TOUCHES 12000
#define MOST_GROUPS  6000

static uint64_t seed;

static uint32_t below(uint32_t n)
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

static void begin(size_t budget_pages)
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

static uint32_t add_idle(uint32_t pages, unsigned may)
{
    unit[input.unit_count] = (struct ov_plan_unit){.pages = pages, .may = (uint8_t)may};
    return (uint32_t)input.unit_count++;
}

static void touch(uint32_t number)
{
    cycle[input.cycle_length++] = number;
}

static uint32_t add(uint32_t pages, unsigned may)
{
    const uint32_t number = add_idle(pages, may);
    touch(number);
    return number;
}

static void add_group(uint32_t length, const uint32_t *member)
{
    struct ov_plan_group *last = &group[input.group_count];

    *last = (struct ov_plan_group){input.group_count ? last[-1].start + last[-1].length : 0, length};
    memcpy(group_unit + last->start, member, length * sizeof(*member));
    input.group_count++;
}

static void pair(uint32_t a, uint32_t b)
{
    add_group(2, (const uint32_t[]){a, b});
}

static void check_sums(void)
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

static void check_tiers(void)
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

static void check_ring(void)
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
static void check_replay(void)
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

static void check_times(void)
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

static void make(void)
{
    ov_plan_free(&plan);
    ck_assert(ov_plan_make(&input, &plan));
    check_sums();
    check_tiers();
    check_ring();
    check_replay();
    check_times();
}

static size_t overlapping_neighbours(void)
{
    size_t count = 0;

    for (size_t i = 0; i + 1 < input.cycle_length; i++) {
        count += cycle[i] != cycle[i + 1] && ov_plan_overlap(&plan, cycle[i], cycle[i + 1]);
    }
    return count;
}

/* A decoder: per layer q k v o of 16 pages, gate up down of 56, as in a Llama of 8 billion parameters with MHA. */
static void add_decoder(unsigned layers)
{
    for (unsigned layer = 0; layer < layers; layer++) {
        for (unsigned i = 0; i < 7; i++) {
            add(i < 4 ? 16 : 56, ANY);
        }
    }
}

static double all_compute(double seconds_a_page)
{
    double sum = 0;

    for (size_t i = 0; i < input.cycle_length; i++) {
        compute_s[i] = unit[cycle[i]].pages * seconds_a_page;
        sum += compute_s[i];
    }
    input.compute_s = compute_s;
    return sum;
}

START_TEST(what_fits_is_resident)
{
    begin(100);
    for (unsigned i = 0; i < 10; i++) {
        add(10, ANY);
    }
    make();
    ck_assert_uint_eq(plan.resident_units, 10);
    ck_assert_uint_eq(plan.ring_pages, 0);
    ck_assert_uint_eq(plan.cycle_pages, 0);
    ck_assert_int_eq(plan.place[3].reason, OV_PLAN_ALL_FITS);
    input.budget_pages = SIZE_MAX;
    make();
    ck_assert_uint_eq(plan.resident_units, 10);
}
END_TEST

START_TEST(one_page_short_streams_little)
{
    begin(99);
    for (unsigned i = 0; i < 10; i++) {
        add(10, ANY);
    }
    make();
    ck_assert_uint_eq(plan.ring_pages, 20);
    ck_assert_uint_eq(plan.resident_units, 7);
    ck_assert_uint_eq(plan.streamed_units, 3);
}
END_TEST

START_TEST(nothing_to_plan)
{
    begin(100);
    make();
    ck_assert_uint_eq(plan.ring_pages, 0);
    ck_assert(plan.cycle_s == 0);
}
END_TEST

START_TEST(no_budget_means_host_memory)
{
    begin(0);
    add(5, ANY);
    add(7, ANY);
    add(1, S | R);
    make();
    ck_assert_uint_eq(plan.host_units, 3);
    ck_assert_uint_eq(plan.unplaced_pages, 1);
    ck_assert_uint_eq(plan.cycle_host_pages, 13);
}
END_TEST

START_TEST(equal_units_use_the_budget_up)
{
    for (size_t budget = 32; budget < 1600; budget += 7) {
        begin(budget);
        for (unsigned i = 0; i < 100; i++) {
            add(16, ANY);
        }
        make();
        CHECK(plan.ring_pages <= 48);
        CHECK(plan.resident_units == (budget - plan.ring_pages) / 16);
        /* Of few, one may have its place to itself. */
        CHECK(plan.cycle_pages == 16 * plan.streamed_units || plan.streamed_units < 6);
        CHECK(plan.cycle_pages <= 16 * plan.streamed_units);
        CHECK(plan.host_units == 0);
    }
}
END_TEST

/* The resident part of any stretch of the cycle from its start differs from its share by so many of the largest units.
 */
static double worst_deviation(void)
{
    size_t all = 0, resident = 0, largest = 0;
    double worst = 0;
    const double part = (double)plan.resident_pages / (double)(plan.resident_pages + plan.streamed_pages);

    for (size_t i = 0; i < plan.unit_count; i++) {
        const struct ov_plan_place *place = &plan.place[i];
        all += place->pages;
        resident += place->tier == OV_TIER_RESIDENT ? place->pages : 0;
        largest = place->pages > largest ? place->pages : largest;
        const double deviation = fabs((double)resident - part * (double)all);
        worst = deviation > worst ? deviation : worst;
    }
    return worst / (double)largest;
}

START_TEST(residency_is_spread_evenly)
{
    for (size_t percent = 10; percent < 100; percent += 10) {
        begin(16 * percent * 4);
        for (unsigned i = 0; i < 400; i++) {
            add(16, ANY);
        }
        make();
        CHECK(worst_deviation() <= 1.5);
    }
}
END_TEST

START_TEST(residency_is_spread_evenly_by_bytes)
{
    for (unsigned round = 0; round < 100; round++) {
        begin(0);
        size_t all = 0;
        seed += round * 977;
        for (unsigned i = 0; i < 300; i++) {
            unit[add(20 + below(30), ANY)].sparse = false;
            all += unit[i].pages;
        }
        input.budget_pages = 200 + all * (10 + round % 80) / 100;
        input.ring_request_pages = 150;
        input.strategy = OV_PLAN_EVEN;
        make();
        CHECK(plan.streamed_units == 0 || worst_deviation() <= 3);
    }
}
END_TEST

START_TEST(ring_is_filled_in_order_of_first_use)
{
    begin(60);
    for (unsigned i = 0; i < 6; i++) {
        add_idle(10, S | H);
    }
    const uint32_t order[] = {3, 0, 5, 1, 4, 2};
    for (unsigned i = 0; i < 6; i++) {
        touch(order[i]);
    }
    input.ring_request_pages = 30;
    make();
    ck_assert_uint_eq(plan.ring_pages, 30);
    for (unsigned i = 0; i < 6; i++) {
        ck_assert_uint_eq(plan.place[order[i]].ring_page, i % 3 * 10);
    }
}
END_TEST

START_TEST(units_used_often_stay)
{
    begin(100);
    const uint32_t often = add(10, ANY);
    for (unsigned i = 0; i < 20; i++) {
        add(10, ANY);
        if (i % 5 == 4) {
            touch(often);
        }
    }
    make(); /* or it keeps its place in the ring all the while */
    ck_assert_uint_le(plan.cycle_pages, 130);
    input.strategy = OV_PLAN_EVEN;
    make();
    ck_assert_int_eq(plan.place[often].tier, OV_TIER_RESIDENT);
    ck_assert_int_eq(plan.place[often].reason, OV_PLAN_OFTEN);
}
END_TEST

START_TEST(a_second_use_right_after_the_first_is_free)
{
    begin(100);
    const uint32_t twice = add(10, ANY);
    const uint32_t between = add(10, ANY);
    touch(twice);
    for (unsigned i = 0; i < 40; i++) {
        add(10, ANY);
    }
    input.tiers = S | H;
    make();
    ck_assert_int_eq(plan.place[twice].tier, OV_TIER_STREAMED);
    ck_assert(!ov_plan_overlap(&plan, twice, between));
    ck_assert_uint_eq(plan.cycle_pages, 42 * 10);
}
END_TEST

START_TEST(weights_of_a_launch_lie_apart)
{
    begin(64);
    uint32_t number[9];
    for (unsigned i = 0; i < 9; i++) {
        number[i] = add(8, S | H);
    }
    pair(number[0], number[4]);
    add_group(3, (const uint32_t[]){number[1], number[5], number[8]});
    pair(number[8], number[0]);
    input.ring_request_pages = 24;
    make();
    ck_assert_uint_eq(plan.streamed_units, 9);
    ck_assert_uint_eq(plan.ring_pages, 24);
}
END_TEST

START_TEST(largest_launch_sets_the_ring)
{
    begin(200);
    uint32_t number[20];
    for (unsigned i = 0; i < 20; i++) {
        number[i] = add(20, S | H);
    }
    add_group(5, number + 7);
    make();
    ck_assert_uint_eq(plan.streamed_units, 20);
    ck_assert_uint_ge(plan.ring_pages, 100);
    input.budget_pages = 100;
    make();
    ck_assert_uint_eq(plan.streamed_units, 20);
    ck_assert_uint_eq(plan.ring_pages, 100);
}
END_TEST

START_TEST(launch_larger_than_the_budget_gives_units_up)
{
    begin(90);
    uint32_t number[20];
    for (unsigned i = 0; i < 20; i++) {
        number[i] = add(20, S | H);
    }
    add_group(5, number + 7);
    make();
    ck_assert_uint_eq(plan.host_units, 1);
    unsigned reasons = 0;
    for (unsigned i = 7; i < 12; i++) {
        reasons += plan.place[i].reason == OV_PLAN_GROUP;
    }
    ck_assert_uint_eq(reasons, 1);
}
END_TEST

START_TEST(members_that_cannot_lie_apart_give_way)
{
    begin(25);
    const uint32_t a = add(10, S | H), b = add(10, S | H), c = add(10, S | H);
    add(10, S | H);
    pair(a, b);
    pair(b, c);
    pair(c, a);
    make();
    ck_assert_uint_eq(plan.host_units, 1);
    ck_assert_uint_eq(plan.streamed_units, 3);
    size_t collisions = 0;
    for (size_t i = 0; i < 4; i++) {
        collisions += plan.place[i].reason == OV_PLAN_COLLISION;
    }
    ck_assert_uint_eq(collisions, 1);
}
END_TEST

START_TEST(launch_places_are_found_behind_fragments)
{
    begin(25);
    /* In order of use 3 and 12 leave only 10 pages behind them for the partner of both. */
    const uint32_t a = add(3, S | H), b = add(12, S | H), c = add(10, S | H);
    const uint32_t d = add(4, S | H), e = add(11, S | H), f = add(10, S | H);
    add_group(3, (const uint32_t[]){a, b, c});
    add_group(3, (const uint32_t[]){d, e, f});
    add_group(3, (const uint32_t[]){c, a, e});
    make();
    ck_assert_uint_eq(plan.streamed_units, 6);
}
END_TEST

START_TEST(repeated_groups_and_members_do_no_harm)
{
    uint32_t number[12];

    begin(40);
    for (unsigned i = 0; i < 12; i++) {
        number[i] = add(10, S | H);
    }
    make();
    const size_t ring_pages = plan.ring_pages;
    for (unsigned i = 0; i < 50; i++) {
        add_group(4, (const uint32_t[]){number[0], number[0], number[1], number[0]});
        add_group(3, (const uint32_t[]){number[2], number[2], number[2]});
    }
    pair(number[7], number[8]);
    make();
    ck_assert_uint_eq(plan.streamed_units, 12);
    ck_assert_uint_eq(ring_pages, 20);
    ck_assert_uint_eq(plan.ring_pages, 30);
}
END_TEST

START_TEST(few_large_units_are_better_resident)
{
    begin(300);
    for (unsigned i = 0; i < 100; i++) {
        add(4, ANY);
        if (i % 50 == 25) {
            add(100, ANY);
        }
    }
    make();
    for (size_t i = 0; i < plan.unit_count; i++) {
        if (unit[i].pages == 100) {
            ck_assert_int_eq(plan.place[i].tier, OV_TIER_RESIDENT);
            ck_assert_int_eq(plan.place[i].reason, OV_PLAN_LARGE);
        }
    }
    ck_assert_uint_le(plan.ring_pages, 16);
    ck_assert_uint_eq(plan.cycle_pages, 600 - plan.resident_pages);
}
END_TEST

START_TEST(unit_larger_than_the_budget_is_read_in_place)
{
    begin(50);
    const uint32_t large = add(60, ANY);
    for (unsigned i = 0; i < 20; i++) {
        add(5, ANY);
    }
    make();
    ck_assert_int_eq(plan.place[large].tier, OV_TIER_HOST);
    ck_assert_int_eq(plan.place[large].reason, OV_PLAN_LARGE);
    ck_assert_uint_eq(plan.host_units, 1);
}
END_TEST

START_TEST(ring_shrinks_to_a_single_unit)
{
    begin(11);
    for (unsigned i = 0; i < 20; i++) {
        add(10, ANY);
    }
    make();
    ck_assert_uint_eq(plan.streamed_units, 20);
    ck_assert_uint_le(plan.ring_pages, 11);
    ck_assert_uint_eq(plan.cycle_pages, 200);
}
END_TEST

START_TEST(units_outside_the_cycle)
{
    begin(100);
    const uint32_t any = add_idle(10, ANY), device = add_idle(10, R | S), large = add_idle(90, R | S);
    for (unsigned i = 0; i < 20; i++) {
        add(10, ANY);
    }
    make();
    ck_assert_int_eq(plan.place[any].tier, OV_TIER_HOST);
    ck_assert_int_eq(plan.place[any].reason, OV_PLAN_OUTSIDE);
    ck_assert_int_eq(plan.place[device].tier, OV_TIER_STREAMED);
    ck_assert_int_eq(plan.place[device].reason, OV_PLAN_OUTSIDE);
    ck_assert(plan.place[large].tier == OV_TIER_STREAMED || plan.place[large].tier == OV_TIER_RESIDENT);
    ck_assert_uint_eq(plan.unplaced_pages, 0);
}
END_TEST

START_TEST(room_that_the_cycle_leaves_serves_the_rest)
{
    begin(100);
    const uint32_t first = add_idle(30, ANY), second = add_idle(30, ANY);
    for (unsigned i = 0; i < 6; i++) {
        add(10, ANY);
    }
    make();
    ck_assert_uint_eq(plan.streamed_units, 0);
    ck_assert_uint_eq(plan.resident_units, 7);
    ck_assert(plan.place[first].tier != plan.place[second].tier);
    ck_assert_int_eq(plan.place[plan.place[first].tier == OV_TIER_RESIDENT ? first : second].reason, OV_PLAN_LEFT_OVER);
}
END_TEST

START_TEST(sparse_readers_read_in_place)
{
    begin(100);
    const uint32_t table = add(60, ANY);
    unit[table].sparse = true;
    for (unsigned i = 0; i < 20; i++) {
        add(10, ANY);
        touch(table);
    }
    make();
    ck_assert_int_eq(plan.place[table].tier, OV_TIER_HOST);
    ck_assert_int_eq(plan.place[table].reason, OV_PLAN_SPARSE);
    ck_assert_uint_eq(plan.cycle_host_pages, 0);
}
END_TEST

START_TEST(what_may_not_be_streamed_is_resident_first)
{
    begin(100);
    for (unsigned i = 0; i < 20; i++) {
        add(10, i % 4 == 0 ? R | H : ANY);
    }
    make();
    for (unsigned i = 0; i < 20; i += 4) {
        ck_assert_int_eq(plan.place[i].tier, OV_TIER_RESIDENT);
        ck_assert_int_eq(plan.place[i].reason, OV_PLAN_UNSTREAMABLE);
    }
    ck_assert_uint_eq(plan.host_units, 0);
}
END_TEST

START_TEST(single_tiers_are_respected)
{
    begin(60);
    const uint32_t resident = add(10, R), streamed = add(10, S), host = add(10, H);
    for (unsigned i = 0; i < 20; i++) {
        add(10, ANY);
    }
    make();
    ck_assert_int_eq(plan.place[resident].tier, OV_TIER_RESIDENT);
    ck_assert_int_eq(plan.place[streamed].tier, OV_TIER_STREAMED);
    ck_assert_int_eq(plan.place[host].tier, OV_TIER_HOST);
    ck_assert_int_eq(plan.place[resident].reason, OV_PLAN_ONLY_TIER);
    ck_assert_int_eq(plan.place[streamed].reason, OV_PLAN_ONLY_TIER);
    ck_assert_int_eq(plan.place[host].reason, OV_PLAN_ONLY_TIER);
}
END_TEST

START_TEST(what_finds_no_room_is_said)
{
    begin(25);
    add(10, R);
    add(10, R);
    add(10, R);
    add(10, 0);
    make();
    ck_assert_uint_eq(plan.resident_units, 2);
    ck_assert_uint_eq(plan.unplaced_pages, 20);
    ck_assert_int_eq(plan.place[3].reason, OV_PLAN_NO_ROOM);
}
END_TEST

START_TEST(without_resident_all_is_streamed)
{
    begin(1000);
    add_decoder(4);
    const uint32_t fixed = add(10, R | H);
    input.tiers = S | H;
    make();
    ck_assert_uint_eq(plan.streamed_units, 28);
    ck_assert_int_eq(plan.place[fixed].tier, OV_TIER_RESIDENT);
    input.tiers = S;
    make();
    ck_assert_uint_eq(plan.streamed_units, 28);
}
END_TEST

START_TEST(without_streamed_there_is_no_ring)
{
    begin(300);
    add_decoder(4);
    input.tiers = R | H;
    make();
    ck_assert_uint_eq(plan.ring_pages, 0);
    ck_assert_uint_eq(plan.streamed_units, 0);
    ck_assert_uint_ge(plan.resident_pages, 300 - 15);
    input.tiers = R;
    make();
    ck_assert_uint_eq(plan.streamed_units, 0);
    ck_assert_uint_ge(plan.resident_pages, 300 - 15);
}
END_TEST

START_TEST(without_host_memory_only_what_must)
{
    begin(300);
    add_decoder(4);
    const uint32_t idle = add_idle(10, ANY), only = add(10, H), large = add(301, ANY);
    input.tiers = R | S;
    make();
    ck_assert_int_ne(plan.place[idle].tier, OV_TIER_HOST);
    ck_assert_int_eq(plan.place[only].tier, OV_TIER_HOST);
    ck_assert_int_eq(plan.place[large].tier, OV_TIER_HOST);
    ck_assert_uint_eq(plan.host_units, 2);
}
END_TEST

START_TEST(host_alone)
{
    begin(10000);
    add_decoder(2);
    input.tiers = H;
    make();
    ck_assert_uint_eq(plan.host_units, 14);
}
END_TEST

START_TEST(requested_ring)
{
    begin(800);
    add_decoder(8);
    input.ring_request_pages = 300;
    make();
    ck_assert_uint_le(plan.ring_pages, 300);
    ck_assert_uint_gt(plan.ring_pages, 300 - 56);
    input.ring_request_pages = 1; /* too small for anybody: as small as works */
    make();
    ck_assert_uint_le(plan.ring_pages, 56);
    ck_assert_uint_gt(plan.streamed_units, 0);
    ck_assert_uint_eq(plan.host_units, 0);
    input.ring_request_pages = 5000; /* more than the budget */
    make();
    ck_assert_uint_le(plan.ring_pages, 800);
    ck_assert_uint_eq(plan.host_units, 0);
}
END_TEST

START_TEST(equal_neighbours_lie_apart)
{
    for (uint32_t count = 3; count < 60; count++) {
        for (size_t ring = 20; ring < 100; ring += 5) {
            begin(ring);
            for (unsigned i = 0; i < count; i++) {
                add(10, S);
            }
            input.ring_request_pages = ring;
            make();
            CHECK(plan.streamed_units == count);
            CHECK(overlapping_neighbours() == 0);
            CHECK(ring < 30 || !ov_plan_overlap(&plan, count - 1, 0)); /* from one cycle to the next */
        }
    }
}
END_TEST

START_TEST(ring_of_two_halves_keeps_neighbours_apart)
{
    begin(2000);
    add_decoder(16);
    input.tiers = S;
    input.ring_request_pages = 112;
    input.link_pages_per_s = 26300;
    all_compute(1 / 26300.0 / 2);
    make();
    ck_assert_uint_eq(plan.ring_pages, 112);
    ck_assert_uint_eq(overlapping_neighbours(), 0);
    ck_assert((double)plan.cycle_pages / 26300 / plan.cycle_s >= 0.98);
}
END_TEST

/* Where the ring is large enough for two of the largest, neighbours overlap only if the cycle is no longer for it. */
START_TEST(unequal_neighbours_lie_apart)
{
    size_t overlaps = 0, pairs = 0;

    for (unsigned round = 0; round < 500; round++) {
        begin(0);
        seed += round * 7919;
        uint32_t largest = 0;
        for (unsigned i = 0; i < 10 + round % 50; i++) {
            const uint32_t pages = 1 + below(40);
            largest = pages > largest ? pages : largest;
            add(pages, S | H);
        }
        input.budget_pages = input.ring_request_pages = 2 * largest + below(2 * largest);
        all_compute(1 / 2000.0);
        make();
        CHECK(plan.streamed_units == input.unit_count);
        overlaps += overlapping_neighbours();
        pairs += input.cycle_length;
    }
    ck_assert_msg(overlaps * 100 <= pairs, "%zu of %zu", overlaps, pairs);
}
END_TEST

START_TEST(everything_streamed_keeps_the_link_busy)
{
    begin(2000);
    add_decoder(16);
    input.tiers = S;
    input.link_pages_per_s = 26300;
    all_compute(1 / 26300.0 / 10);
    make();
    const double ratio = (double)plan.cycle_pages / 26300 / plan.cycle_s;
    ck_assert_uint_eq(plan.cycle_pages, 16 * (4 * 16 + 3 * 56));
    ck_assert_msg(ratio >= 0.98, "ratio %.4f, ring %zu", ratio, plan.ring_pages);
}
END_TEST

START_TEST(computation_hides_the_copies)
{
    begin(2000);
    add_decoder(16);
    input.tiers = S;
    input.link_pages_per_s = 26300;
    const double compute = all_compute(2 / 26300.0);
    make();
    ck_assert_msg(plan.cycle_s <= 1.01 * compute, "ratio %.4f, ring %zu", plan.cycle_s / compute, plan.ring_pages);
}
END_TEST

START_TEST(half_streamed_keeps_the_link_busy)
{
    begin(0);
    add_decoder(32);
    input.budget_pages = 32 * 232 / 2;
    input.link_pages_per_s = 26300;
    all_compute(1 / 26300.0 / 70);
    make();
    const double ratio = (double)plan.cycle_pages / 26300 / plan.cycle_s;
    ck_assert_uint_le(plan.cycle_pages, 32 * 232 / 2 + 4 * 56);
    ck_assert_msg(ratio >= 0.97, "ratio %.4f, ring %zu", ratio, plan.ring_pages);
}
END_TEST

START_TEST(ring_gets_deeper_if_it_helps)
{
    begin(4000);
    for (unsigned i = 0; i < 60; i++) {
        add(10, S);
        compute_s[i] = i % 4 == 3 ? 0.04 : 0; /* as long as four copies */
    }
    input.compute_s = compute_s;
    make();
    const double automatic = plan.cycle_s;
    const size_t automatic_ring = plan.ring_pages;
    input.ring_request_pages = 20;
    make();
    ck_assert(automatic < plan.cycle_s * 0.9);
    ck_assert_uint_gt(automatic_ring, 20);
    ck_assert_uint_le(automatic_ring, 80);
}
END_TEST

START_TEST(ring_stays_shallow_if_depth_does_not_help)
{
    begin(4000);
    for (unsigned i = 0; i < 60; i++) {
        add(10, S);
    }
    all_compute(1 / 1000.0 / 20);
    make();
    ck_assert_uint_eq(plan.ring_pages, 20);
}
END_TEST

static void place_by_hand(const uint32_t *ring_page, size_t ring_pages)
{
    make();
    for (size_t i = 0; i < plan.unit_count; i++) {
        plan.place[i].tier = OV_TIER_STREAMED;
        plan.place[i].ring_page = ring_page[i];
    }
    plan.ring_pages = ring_pages;
}

static double simulate(const double *seconds)
{
    struct ov_plan_score score;
    input.compute_s = seconds;
    ck_assert(ov_plan_simulate(&input, &plan, &score, NULL));
    ck_assert_uint_eq(score.cycle_pages, input.cycle_length * 10);
    return score.cycle_s;
}

START_TEST(simulation_of_one_place_and_of_two)
{
    const double slow[] = {0.01, 0.01, 0.01, 0.01}, fast[] = {0.001, 0.001, 0.001, 0.001};

    begin(1000);
    for (unsigned i = 0; i < 4; i++) {
        add(10, S); /* copied in 10 ms */
    }
    place_by_hand((const uint32_t[]){0, 0, 0, 0}, 10);
    ck_assert_double_eq_tol(simulate(slow), 0.08, 0.0002);
    ck_assert_double_eq_tol(simulate(fast), 0.044, 0.0002);
    place_by_hand((const uint32_t[]){0, 10, 0, 10}, 20);
    ck_assert_double_eq_tol(simulate(slow), 0.04, 0.0002);
    ck_assert_double_eq_tol(simulate(fast), 0.04, 0.0002);
}
END_TEST

static double cycle_time(size_t touches)
{
    struct ov_plan_score score;
    input.cycle_length = touches;
    ck_assert(ov_plan_simulate(&input, &plan, &score, NULL));
    return score.cycle_s;
}

START_TEST(simulation_of_other_tiers)
{
    const double seconds[] = {0.01, 0.02, 0.005};

    begin(1000);
    add(10, R);
    add(10, R);
    add(10, H);
    make();
    input.compute_s = seconds;
    ck_assert_double_eq_tol(cycle_time(2), 0.03, 1e-9);
    ck_assert_double_eq_tol(cycle_time(3), 0.11, 1e-9);
    plan.place[2].sparse = true;
    ck_assert_double_eq_tol(cycle_time(3), 0.035, 1e-9);
    ck_assert(cycle_time(0) == 0);
}
END_TEST

START_TEST(overlap_is_of_streamed_units_only)
{
    begin(1000);
    add(10, S);
    add(10, S);
    place_by_hand((const uint32_t[]){0, 9}, 19);
    ck_assert(ov_plan_overlap(&plan, 0, 1));
    plan.place[1].ring_page = 10;
    ck_assert(!ov_plan_overlap(&plan, 0, 1));
    plan.place[1] = (struct ov_plan_place){.pages = 10, .tier = OV_TIER_RESIDENT};
    ck_assert(!ov_plan_overlap(&plan, 0, 1));
}
END_TEST

START_TEST(names_and_reasons)
{
    ck_assert_str_eq(ov_tier_name(OV_TIER_STREAMED), "streamed");
    ck_assert_str_eq(ov_tier_name(OV_TIER_HOST), "host");
    for (int i = 0; i < OV_PLAN_REASON_COUNT; i++) {
        for (int j = 0; j < i; j++) {
            ck_assert_str_ne(ov_plan_reason_text((enum ov_plan_reason)i), ov_plan_reason_text((enum ov_plan_reason)j));
        }
    }
    ck_assert_str_eq(ov_plan_reason_text(OV_PLAN_REASON_COUNT), "unknown");
}
END_TEST

START_TEST(plans_are_repeatable)
{
    begin(700);
    add_decoder(8);
    make();
    struct ov_plan first = plan;
    plan = (struct ov_plan){0};
    make();
    ck_assert_mem_eq(first.place, plan.place, plan.unit_count * sizeof(*plan.place));
    ov_plan_free(&first);
    ck_assert_ptr_null(first.place);
}
END_TEST

START_TEST(counts_that_do_not_divide_evenly)
{
    for (unsigned count = 1; count <= 17; count++) {
        for (size_t budget = 1; budget <= 60; budget++) {
            begin(budget);
            for (unsigned i = 0; i < count; i++) {
                add(1 + i % 5, ANY);
                if (i > 1 && i % 3 == 0) {
                    pair(i, i - 2);
                }
            }
            make();
            input.tiers = S | H;
            make();
        }
    }
}
END_TEST

static void randomise(uint32_t units, uint32_t largest)
{
    static const uint8_t mays[] = {ANY, ANY, ANY, ANY, ANY, S | H, R | H, R | S, R, S, H, 0};
    const unsigned plain = below(2);
    size_t all = 0;

    for (uint32_t i = 0; i < units; i++) {
        add_idle(1 + below(below(3) ? largest : 2), plain ? ANY : mays[below(sizeof(mays))]);
        unit[i].sparse = below(20) == 0;
        all += unit[i].pages;
    }
    const uint32_t touches = below(2 * units);
    for (uint32_t i = 0, number = 0; i < touches; i++) {
        number = below(8) ? (number + 1) % units : below(units);
        if (i == 0 || cycle[i - 1] != number) {
            touch(number);
        }
        compute_s[i] = below(100) / 1000.0;
    }
    for (uint32_t i = below(units); i > 0; i--) {
        uint32_t member[4];
        const uint32_t length = 1 + below(4), first = below(units);
        for (uint32_t m = 0; m < length; m++) {
            member[m] = below(4) ? (first + m) % units : below(units);
        }
        add_group(length, member);
    }
    input.budget_pages = below((uint32_t)all + 10);
    input.ring_request_pages = below(3) ? 0 : below(4 * largest);
    input.tiers = below(2) ? OV_TIERS_ALL : below(8);
    input.compute_s = below(2) ? compute_s : NULL;
    input.link_pages_per_s = below(4) ? 1 + below(1000) : 0;
    input.effort = 1 + below(4) * 5000;
}

START_TEST(thousands_of_small_plans)
{
    for (unsigned round = 0; round < 5000; round++) {
        begin(0);
        seed += round * 2654435761u;
        below(2);
        randomise(1 + below(25), 1 + below(12));
        make();
    }
}
END_TEST

START_TEST(hundreds_of_larger_plans)
{
    for (unsigned round = 0; round < 400; round++) {
        begin(0);
        seed += round * 40503u;
        below(2);
        randomise(50 + below(250), 1 + below(100));
        make();
    }
}
END_TEST

START_TEST(five_thousand_units)
{
    struct timespec start, end;

    begin(0);
    size_t all = 0;
    for (unsigned i = 0; i < 5000; i++) {
        all += unit[add(1 + below(60), ANY)].pages;
        if (i % 7 == 6) {
            add_group(3, (const uint32_t[]){i, i - 1, i - 2});
        }
    }
    input.budget_pages = all / 3;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &start);
    struct ov_plan timed;
    ck_assert(ov_plan_make(&input, &timed));
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
    ov_plan_free(&timed);
    make();
    const double seconds = (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) / 1e9;
    ck_assert_msg(seconds < 1, "%.3f s", seconds); /* some milliseconds; the rest is for sanitizers */
    ck_assert_uint_eq(plan.host_units, 0);
    ck_assert_uint_ge(plan.resident_pages + plan.ring_pages, input.budget_pages - 60);
}
END_TEST

Suite *plan_suite(void)
{
    Suite *suite = suite_create("plan");
    TCase *tc = tcase_create("plan");

    tcase_add_test(tc, what_fits_is_resident);
    tcase_add_test(tc, one_page_short_streams_little);
    tcase_add_test(tc, nothing_to_plan);
    tcase_add_test(tc, no_budget_means_host_memory);
    tcase_add_test(tc, equal_units_use_the_budget_up);
    tcase_add_test(tc, residency_is_spread_evenly);
    tcase_add_test(tc, residency_is_spread_evenly_by_bytes);
    tcase_add_test(tc, ring_is_filled_in_order_of_first_use);
    tcase_add_test(tc, units_used_often_stay);
    tcase_add_test(tc, a_second_use_right_after_the_first_is_free);
    tcase_add_test(tc, weights_of_a_launch_lie_apart);
    tcase_add_test(tc, largest_launch_sets_the_ring);
    tcase_add_test(tc, launch_larger_than_the_budget_gives_units_up);
    tcase_add_test(tc, members_that_cannot_lie_apart_give_way);
    tcase_add_test(tc, launch_places_are_found_behind_fragments);
    tcase_add_test(tc, repeated_groups_and_members_do_no_harm);
    tcase_add_test(tc, few_large_units_are_better_resident);
    tcase_add_test(tc, unit_larger_than_the_budget_is_read_in_place);
    tcase_add_test(tc, ring_shrinks_to_a_single_unit);
    tcase_add_test(tc, units_outside_the_cycle);
    tcase_add_test(tc, room_that_the_cycle_leaves_serves_the_rest);
    tcase_add_test(tc, sparse_readers_read_in_place);
    tcase_add_test(tc, what_may_not_be_streamed_is_resident_first);
    tcase_add_test(tc, single_tiers_are_respected);
    tcase_add_test(tc, what_finds_no_room_is_said);
    tcase_add_test(tc, without_resident_all_is_streamed);
    tcase_add_test(tc, without_streamed_there_is_no_ring);
    tcase_add_test(tc, without_host_memory_only_what_must);
    tcase_add_test(tc, host_alone);
    tcase_add_test(tc, requested_ring);
    tcase_add_test(tc, equal_neighbours_lie_apart);
    tcase_add_test(tc, ring_of_two_halves_keeps_neighbours_apart);
    tcase_add_test(tc, unequal_neighbours_lie_apart);
    tcase_add_test(tc, everything_streamed_keeps_the_link_busy);
    tcase_add_test(tc, computation_hides_the_copies);
    tcase_add_test(tc, half_streamed_keeps_the_link_busy);
    tcase_add_test(tc, ring_gets_deeper_if_it_helps);
    tcase_add_test(tc, ring_stays_shallow_if_depth_does_not_help);
    tcase_add_test(tc, simulation_of_one_place_and_of_two);
    tcase_add_test(tc, simulation_of_other_tiers);
    tcase_add_test(tc, overlap_is_of_streamed_units_only);
    tcase_add_test(tc, names_and_reasons);
    tcase_add_test(tc, plans_are_repeatable);
    tcase_add_test(tc, counts_that_do_not_divide_evenly);
    tcase_add_test(tc, thousands_of_small_plans);
    tcase_add_test(tc, hundreds_of_larger_plans);
    tcase_add_test(tc, five_thousand_units);
    suite_add_tcase(suite, tc);
    return suite;
}
