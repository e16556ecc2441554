/* Which copies a graph makes (graph_schedule.c): random graphs and rings, launched over and over. */
#include <check.h>
#include <string.h>

#include "runtime/graph.h"

enum { UNITS = 12, STEPS = 16, PAGES = 8, GRAPHS = 4 };

struct random_graph {
    struct ov_graph_step step[STEPS];
    uint32_t unit[STEPS][2];
    uint32_t steps;
    struct ov_graph_schedule schedule;
};

struct world {
    struct ov_ring ring;
    struct ov_unit unit[UNITS];
    struct random_graph graph[GRAPHS];
    unsigned graphs;
    bool loaded[UNITS]; /* truly */
    bool sure[UNITS];   /* as far as the graph that runs knows */
    unsigned copies, repeated, missing;
};

static uint64_t state;

static uint32_t draw(uint32_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % below;
}

static bool apart(const struct world *world, uint32_t a, uint32_t b)
{
    const struct ov_unit *x = &world->unit[a], *y = &world->unit[b];
    return x->ring_page + x->pages <= y->ring_page || y->ring_page + y->pages <= x->ring_page;
}

static void make_world(struct world *world, uint64_t seed, unsigned graphs)
{
    memset(world, 0, sizeof *world);
    state = seed * 7919 + 1;
    for (unsigned i = 0; i < UNITS; i++) {
        world->unit[i].pages = 1 + draw(3);
        world->unit[i].ring_page = draw(PAGES - world->unit[i].pages + 1);
    }
    world->ring.unit = world->unit;
    world->ring.unit_count = UNITS;
    world->ring.pages = PAGES;
    world->graphs = graphs;
    for (unsigned g = 0; g < graphs; g++) {
        struct random_graph *graph = &world->graph[g];
        graph->steps = 1 + draw(STEPS);
        for (uint32_t s = 0; s < graph->steps; s++) {
            graph->unit[s][0] = draw(UNITS);
            graph->unit[s][1] = draw(UNITS);
            bool both = graph->unit[s][0] != graph->unit[s][1] && apart(world, graph->unit[s][0], graph->unit[s][1]);
            graph->step[s] = (struct ov_graph_step){graph->unit[s], both ? 2 : 1};
        }
    }
}

static void close_world(struct world *world)
{
    for (unsigned g = 0; g < world->graphs; g++) {
        ov_graph_schedule_free(&world->graph[g].schedule);
    }
}

static void load(struct world *world, uint32_t unit)
{
    world->repeated += world->loaded[unit];
    for (uint32_t i = 0; i < UNITS; i++) {
        world->loaded[i] = world->loaded[i] && (i == unit || apart(world, i, unit));
        world->sure[i] = world->sure[i] && (i == unit || apart(world, i, unit));
    }
    world->loaded[unit] = world->sure[unit] = true;
    world->copies++;
}

/* What the ring's scheduler does before the launch, the launch, and what it takes for granted afterwards. */
static void launch(struct world *world, const struct random_graph *graph)
{
    const struct ov_graph_schedule *schedule = &graph->schedule;
    uint32_t next = 0;
    bool known[UNITS] = {false}, before[UNITS];
    for (uint32_t i = 0; i < schedule->needs; i++) {
        if (!world->loaded[schedule->need[i]]) {
            world->missing++;
            load(world, schedule->need[i]);
        }
    }
    memcpy(before, world->loaded, sizeof before);
    memset(world->sure, 0, sizeof world->sure);
    for (uint32_t i = 0; i < schedule->needs; i++) {
        world->sure[schedule->need[i]] = true;
    }
    for (uint32_t s = 0; s <= graph->steps; s++) {
        for (; next < schedule->loads && schedule->load[next].step == s; next++) {
            ck_assert_int_eq(next >= schedule->tail, s == graph->steps);
            load(world, schedule->load[next].unit);
        }
        for (uint32_t i = 0; s < graph->steps && i < graph->step[s].units; i++) {
            ck_assert_msg(world->sure[graph->unit[s][i]], "step %u reads what is not there", s);
        }
    }
    ck_assert_uint_eq(next, schedule->loads);
    for (uint32_t i = 0; i < schedule->lefts; i++) {
        ck_assert(world->sure[schedule->left[i]]);
        known[schedule->left[i]] = true;
    }
    for (uint32_t i = 0; i < schedule->keeps; i++) {
        known[schedule->kept[i]] = before[schedule->kept[i]];
        ck_assert(!before[schedule->kept[i]] || world->loaded[schedule->kept[i]]);
    }
    memcpy(world->loaded, known, sizeof known);
}

/* Copies that a pass over all graphs costs when each unit is loaded where it is read. */
static unsigned least_copies(struct world *world)
{
    memset(world->loaded, 0, sizeof world->loaded);
    for (int round = 0; round < 2; round++) {
        world->copies = 0;
        for (unsigned g = 0; g < world->graphs; g++) {
            for (uint32_t s = 0; s < world->graph[g].steps; s++) {
                for (uint32_t i = 0; i < world->graph[g].step[s].units; i++) {
                    if (!world->loaded[world->graph[g].unit[s][i]]) {
                        load(world, world->graph[g].unit[s][i]);
                    }
                }
            }
        }
    }
    return world->copies;
}

START_TEST(alone)
{
    for (uint64_t seed = 0; seed < 500; seed++) {
        struct world world;
        make_world(&world, seed, 1);
        unsigned least = least_copies(&world);
        ck_assert(ov_graph_schedule_make(&world.ring, world.graph[0].step, world.graph[0].steps, NULL,
                                         &world.graph[0].schedule));
        memset(world.loaded, 0, sizeof world.loaded);
        launch(&world, &world.graph[0]);
        world.copies = world.repeated = world.missing = 0;
        for (int times = 0; times < 3; times++) {
            launch(&world, &world.graph[0]);
        }
        ck_assert_uint_eq(world.missing, 0);
        ck_assert_uint_eq(world.repeated, 0);
        ck_assert_uint_eq(world.copies, 3 * least);
        close_world(&world);
    }
}
END_TEST

/* The same rounds as graph_turn.c: each graph is scheduled anew when its neighbours have changed. */
static bool reshape(struct world *world, unsigned g)
{
    struct random_graph *graph = &world->graph[g];
    const struct ov_graph_neighbours beside = {&world->graph[(g + world->graphs - 1) % world->graphs].schedule,
                                               &world->graph[(g + 1) % world->graphs].schedule};
    struct ov_graph_schedule made;
    ck_assert(ov_graph_schedule_make(&world->ring, graph->step, graph->steps, &beside, &made));
    bool changed = !ov_graph_schedule_same(&made, &graph->schedule);
    ov_graph_schedule_free(&graph->schedule);
    graph->schedule = made;
    return changed;
}

START_TEST(in_a_cycle)
{
    unsigned wasted = 0, all = 0;
    for (uint64_t seed = 0; seed < 500; seed++) {
        struct world world;
        make_world(&world, seed, 2 + (unsigned)(seed % (GRAPHS - 1)));
        unsigned least = least_copies(&world);
        for (unsigned g = 0; g < world.graphs; g++) {
            ck_assert(ov_graph_schedule_make(&world.ring, world.graph[g].step, world.graph[g].steps, NULL,
                                             &world.graph[g].schedule));
        }
        memset(world.loaded, 0, sizeof world.loaded);
        for (int round = 0; round < 6; round++) {
            for (unsigned g = 0; g < world.graphs; g++) {
                (void)reshape(&world, g);
                launch(&world, &world.graph[g]);
            }
        }
        world.copies = world.missing = 0;
        for (unsigned g = 0; g < world.graphs; g++) {
            launch(&world, &world.graph[g]);
        }
        all += least;
        wasted += world.copies - (world.copies < least ? world.copies : least);
        close_world(&world);
    }
    ck_assert_msg(wasted * 50 < all, "%u of %u copies too many", wasted, all); /* graphs that hardly ever settle */
}
END_TEST

/* Scheduled for one order and launched in another: slower, and nothing is read that is not there. */
START_TEST(in_any_order)
{
    for (uint64_t seed = 0; seed < 500; seed++) {
        struct world world;
        make_world(&world, seed, GRAPHS);
        for (unsigned g = 0; g < world.graphs; g++) {
            ck_assert(ov_graph_schedule_make(&world.ring, world.graph[g].step, world.graph[g].steps, NULL,
                                             &world.graph[g].schedule));
        }
        for (int i = 0; i < 40; i++) {
            if (i < 12) {
                (void)reshape(&world, (unsigned)i % GRAPHS);
            }
            launch(&world, &world.graph[draw(GRAPHS)]);
        }
        close_world(&world);
    }
}
END_TEST

START_TEST(refuses_units_in_each_others_place)
{
    struct world world;
    make_world(&world, 1, 1);
    world.unit[0] = (struct ov_unit){.pages = 2, .ring_page = 0};
    world.unit[1] = (struct ov_unit){.pages = 2, .ring_page = 1};
    const uint32_t both[] = {0, 1};
    const struct ov_graph_step step = {both, 2};
    struct ov_graph_schedule schedule;
    ck_assert(!ov_graph_schedule_make(&world.ring, &step, 1, NULL, &schedule));
    ck_assert_ptr_null(schedule.load);
}
END_TEST

/* Two places: the first copy of a launch runs beside the last kernel of the one before. */
START_TEST(tail_is_what_the_last_step_does_not_read)
{
    struct ov_unit unit[6] = {{0}};
    struct ov_graph_step step[6];
    uint32_t read[6];
    struct ov_graph_schedule schedule;
    for (uint32_t i = 0; i < 6; i++) {
        unit[i] = (struct ov_unit){.pages = 1, .ring_page = i % 2};
        read[i] = i;
        step[i] = (struct ov_graph_step){&read[i], 1};
    }
    const struct ov_ring ring = {.unit = unit, .unit_count = 6, .pages = 2};
    ck_assert(ov_graph_schedule_make(&ring, step, 6, NULL, &schedule));
    ck_assert_uint_eq(schedule.loads, 6);
    ck_assert_uint_eq(schedule.tail, 5);
    ck_assert_uint_eq(schedule.load[0].unit, 1);
    ck_assert_uint_eq(schedule.load[5].unit, 0);
    ck_assert_uint_eq(schedule.needs, 1);
    ck_assert_uint_eq(schedule.need[0], 0);
    ck_assert_uint_eq(schedule.lefts, 2);
    ov_graph_schedule_free(&schedule);
}
END_TEST

Suite *graph_schedule_suite(void);
Suite *graph_schedule_suite(void)
{
    Suite *suite = suite_create("graph_schedule");
    TCase *tc = tcase_create("graph_schedule");
    tcase_add_test(tc, alone);
    tcase_add_test(tc, in_a_cycle);
    tcase_add_test(tc, in_any_order);
    tcase_add_test(tc, refuses_units_in_each_others_place);
    tcase_add_test(tc, tail_is_what_the_last_step_does_not_read);
    suite_add_tcase(suite, tc);
    return suite;
}
