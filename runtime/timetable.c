#include "timetable.h"

#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "log.h"

/* Touches that may be under way: a device's queue holds about a thousand launches. */
#define QUEUE_LEAST 1024u
#define QUEUE_MOST  8192u
/* Touches that one more of them counts when the queue is more than half full. */
#define AT_ONCE 4u
/* Launches of other graphs after which the one that began a pass is no longer waited for: it may be gone. */
#define TURNS_MOST 256u

/* ---- the table of a plan ---- */

static void drop(struct ov_ring *ring)
{
    struct ov_timetable *table = &ring->timetable;
    for (uint32_t i = 0; i < table->room; i++) {
        CUevent *const event[] = {&table->queue[i].asked, &table->queue[i].got, &table->queue[i].sent,
                                  &table->queue[i].came};
        for (int e = 0; e < 4; e++) {
            ov_event_give(&ring->timed, *event[e]);
        }
    }
    free(table->row);
    free(table->cell);
    free(table->number);
    free(table->queue);
    *table = (struct ov_timetable){.former = table->former};
}

static void fill_rows(struct ov_engine *engine, struct ov_timetable *table)
{
    for (uint32_t i = 0; i + 1 < table->rows; i++) {
        const struct ov_unit *unit = &engine->ring.unit[i];
        const struct ov_alloc *alloc = ov_alloc_of(engine, unit->first);
        table->row[i] = (struct ov_timetable_row){
            .ordinal = alloc != NULL ? alloc->ordinal : 0,
            .bytes = unit->bytes,
            .offset = alloc != NULL ? (size_t)(unit->begin - ov_page_address(&engine->arena, alloc->first)) : 0};
    }
}

/* The first of those that a cycle touches least often. `touches` has room for each unit, zeroed. */
static void choose_anchor(const struct ov_engine *engine, struct ov_timetable *table, uint32_t *touches)
{
    const struct ov_runs *runs = &engine->learn.runs;
    uint32_t before = UINT32_MAX;
    for (int round = 0; round < 2; round++) { /* the end of one cycle stands before the beginning of the next */
        for (size_t i = 0; i < runs->cycle_length; i++) {
            const uint32_t unit = runs->cycle[i];
            if (engine->ring.unit[unit].tier == OV_TIER_STREAMED && unit != before) {
                touches[unit] += round == 1;
                before = unit;
            }
        }
    }
    table->every = UINT32_MAX;
    for (size_t i = 0; i < runs->cycle_length; i++) {
        const uint32_t unit = runs->cycle[i];
        if (touches[unit] > 0 && touches[unit] < table->every) {
            table->anchor = unit;
            table->every = touches[unit];
        }
    }
}

static bool provide(struct ov_engine *engine, struct ov_timetable *table)
{
    const uint32_t units = engine->ring.unit_count;
    const size_t cells = (size_t)(ov_opt.timing + 1) * (units + 1);
    uint32_t *touches = calloc((size_t)units + 1, sizeof *touches);
    table->rows = units + 1;
    table->room = 4 * units > QUEUE_MOST ? QUEUE_MOST : 4 * units < QUEUE_LEAST ? QUEUE_LEAST : 4 * units;
    table->row = calloc(table->rows, sizeof *table->row);
    table->cell = calloc(cells, sizeof *table->cell);
    table->number = calloc((size_t)ov_opt.timing + 1, sizeof *table->number);
    table->queue = calloc(table->room, sizeof *table->queue);
    bool provided =
        touches != NULL && table->row != NULL && table->cell != NULL && table->number != NULL && table->queue != NULL;
    if (provided) {
        choose_anchor(engine, table, touches);
        fill_rows(engine, table);
        provided = ov_events_fill(&engine->ring.timed, 2 * (size_t)units + 4 * (size_t)table->room, CU_EVENT_DEFAULT) ==
                   CUDA_SUCCESS;
    }
    table->room = table->queue != NULL ? table->room : 0;
    free(touches);
    return provided;
}

void ov_timetable_begin(struct ov_engine *engine)
{
    struct ov_timetable *table = &engine->ring.timetable;
    if (ov_opt.timing == 0) {
        return;
    }
    if (table->kept > 0) {
        struct ov_timetable_text *former = ov_timetable_read(engine);
        ov_timetable_free(table->former);
        table->former = former;
    }
    drop(&engine->ring);
    if (provide(engine, table)) {
        table->passes = ov_opt.timing;
    } else {
        ov_log_once(OV_LOG_WARN, "no memory or events for OVERSHOT_TIMING: nothing is timed");
        drop(&engine->ring);
    }
}

void ov_timetable_close(struct ov_ring *ring)
{
    drop(ring);
    ov_timetable_free(ring->timetable.former);
    ring->timetable.former = NULL;
}

/* ---- events, in the launch path ---- */

bool ov_timetable_copy_begin(struct ov_ring *ring, struct ov_unit *unit)
{
    unit->copied = false;
    return ov_event_take(&ring->timed, &unit->sent) == CUDA_SUCCESS &&
           ov_event_take(&ring->timed, &unit->came) == CUDA_SUCCESS &&
           ov_cu->cuEventRecord(unit->sent, ring->side) == CUDA_SUCCESS;
}

void ov_timetable_copy_end(struct ov_ring *ring, struct ov_unit *unit)
{
    unit->copied = ov_cu->cuEventRecord(unit->came, ring->side) == CUDA_SUCCESS;
}

static bool collect_one(struct ov_ring *ring);

static struct ov_timetable_touch *newest(struct ov_timetable *table)
{
    return &table->queue[(table->first + table->count - 1) % table->room];
}

/* NULL: the touch is lost. */
static struct ov_timetable_touch *push(struct ov_ring *ring, uint32_t row, bool begins, CUstream stream, bool hushed)
{
    struct ov_timetable *table = &ring->timetable;
    for (uint32_t i = 0; i < AT_ONCE && table->count > table->room / 2 && atomic_load(&ov_captures) == 0; i++) {
        if (!collect_one(ring)) {
            break;
        }
    }
    const uint64_t number = begins ? ++table->begun : 0;
    table->newest = row + 1;
    /* What was lost once is lost up to a pass that has a chance to be whole. */
    if (hushed || table->count == table->room || (table->lost && (!begins || table->count > table->room / 2))) {
        table->lost = true;
        return NULL;
    }
    struct ov_timetable_touch *touch = &table->queue[(table->first + table->count) % table->room];
    if (ov_event_take(&ring->timed, &touch->asked) != CUDA_SUCCESS ||
        ov_event_take(&ring->timed, &touch->got) != CUDA_SUCCESS ||
        ov_cu->cuEventRecord(touch->asked, stream) != CUDA_SUCCESS) {
        table->lost = true;
        return NULL;
    }
    touch->row = row;
    touch->copies = 0;
    touch->waited = touch->copied = false;
    touch->begins = number;
    touch->gap = table->lost;
    table->lost = false;
    table->count++;
    return touch;
}

static bool begins_pass(struct ov_timetable *table, uint32_t unit)
{
    if (unit != table->anchor || ++table->anchored < table->every) {
        return false;
    }
    table->anchored = 0;
    table->began_with = table;
    return true;
}

bool ov_timetable_touch(struct ov_ring *ring, uint32_t index, CUstream stream, bool hushed)
{
    struct ov_timetable *table = &ring->timetable;
    struct ov_unit *unit = &ring->unit[index];
    if (table->newest == index + 1) {
        return false;
    }
    struct ov_timetable_touch *touch = push(ring, index, begins_pass(table, index), stream, hushed);
    if (touch == NULL) {
        unit->copied = false; /* no later pass is charged with it */
        return false;
    }
    if (unit->copied) { /* its events go into the queue, and those that were there are free */
        const CUevent sent = touch->sent, came = touch->came;
        touch->sent = unit->sent;
        touch->came = unit->came;
        unit->sent = sent;
        unit->came = came;
        unit->copied = false;
        touch->copied = true;
        touch->copies = 1;
    }
    return true;
}

void ov_timetable_got(struct ov_ring *ring, CUstream stream)
{
    struct ov_timetable_touch *touch = newest(&ring->timetable);
    touch->waited = ov_cu->cuEventRecord(touch->got, stream) == CUDA_SUCCESS;
}

/* Passes that units begin are not cut by graphs. */
static bool graph_begins_pass(struct ov_timetable *table, const struct ov_turn *turn)
{
    const bool another = table->began_with != NULL && table->began_with != turn;
    if (table->began_with == table || (another && ++table->turns < TURNS_MOST)) {
        return false;
    }
    table->began_with = turn;
    table->turns = 0;
    return true;
}

void ov_timetable_graph(struct ov_ring *ring, const struct ov_turn *turn, CUstream stream)
{
    struct ov_timetable *table = &ring->timetable;
    struct ov_timetable_touch *touch = push(ring, table->rows - 1, graph_begins_pass(table, turn), stream, false);
    if (touch != NULL) {
        touch->copies = turn->copies;
    }
}

void ov_timetable_graph_begins(struct ov_ring *ring, CUstream stream)
{
    if (!ring->timetable.lost) {
        ov_timetable_got(ring, stream);
    }
}

void ov_timetable_graph_ends(struct ov_ring *ring, CUstream stream)
{
    struct ov_timetable *table = &ring->timetable;
    struct ov_timetable_touch *touch = newest(table);
    if (!table->lost && touch->waited) {
        touch->copied = ov_event_take(&ring->timed, &touch->came) == CUDA_SUCCESS &&
                        ov_cu->cuEventRecord(touch->came, stream) == CUDA_SUCCESS;
    }
}

void ov_timetable_lose(struct ov_ring *ring)
{
    ring->timetable.lost = true;
}

/* ---- what is over ---- */

static struct ov_times *cell_of(const struct ov_timetable *table, uint32_t place, uint32_t row)
{
    return &table->cell[(size_t)place * table->rows + row];
}

/* The pass under way is over: it is kept, or left out, and the next one begins. */
static void turn_page(struct ov_timetable *table, uint64_t number)
{
    const uint64_t last = table->number[table->place];
    const bool whole = table->open && !table->broken && number == last + 1;
    table->left_out += table->open ? number - last - whole : 0;
    if (whole) {
        table->place = (table->place + 1) % (table->passes + 1);
        table->kept += table->kept < table->passes;
    }
    memset(cell_of(table, table->place, 0), 0, table->rows * sizeof *table->cell);
    table->number[table->place] = number;
    table->open = true;
    table->broken = false;
}

/* The times of the oldest touch, which the one after it ends. CUDA_ERROR_NOT_READY: it is not over. */
static CUresult read_times(const struct ov_timetable *table, const struct ov_timetable_touch *touch,
                           const struct ov_timetable_touch *next, struct ov_times *times)
{
    const bool graph = touch->row == table->rows - 1;
    CUresult result =
        ov_cu->cuEventElapsedTime(&times->compute_ms, touch->waited ? touch->got : touch->asked, next->asked);
    if (result == CUDA_SUCCESS && touch->waited) {
        result = ov_cu->cuEventElapsedTime(&times->wait_ms, touch->asked, touch->got);
    }
    if (result == CUDA_SUCCESS && touch->copied) {
        result = ov_cu->cuEventElapsedTime(&times->copy_ms, graph ? touch->got : touch->sent, touch->came);
    }
    times->compute_ms = times->compute_ms > 0 ? times->compute_ms : 0; /* of two streams the second may be ahead */
    return result;
}

static void add_times(struct ov_ring *ring, uint32_t row, const struct ov_times *times)
{
    struct ov_timetable *table = &ring->timetable;
    struct ov_times *sum = cell_of(table, table->place, row);
    sum->copy_ms += times->copy_ms;
    sum->wait_ms += times->wait_ms;
    sum->compute_ms += times->compute_ms;
    sum->copies += times->copies;
    ring->counts.stall_ns += (uint64_t)(times->wait_ms * 1e6f);
    if (row + 1 < table->rows && times->copies > 0) {
        ring->counts.timed_bytes += table->row[row].bytes;
        ring->counts.timed_ns += (uint64_t)(times->copy_ms * 1e6f);
    }
}

static bool collect_one(struct ov_ring *ring)
{
    struct ov_timetable *table = &ring->timetable;
    if (table->count < 2) {
        return false;
    }
    const struct ov_timetable_touch *touch = &table->queue[table->first];
    struct ov_times times = {.copies = touch->copies};
    const CUresult result = read_times(table, touch, &table->queue[(table->first + 1) % table->room], &times);
    if (result == CUDA_ERROR_NOT_READY) {
        return false;
    }
    table->broken = table->broken || touch->gap;
    if (touch->begins > 0) {
        turn_page(table, touch->begins);
    }
    table->broken = table->broken || result != CUDA_SUCCESS;
    if (table->open && result == CUDA_SUCCESS) {
        add_times(ring, touch->row, &times);
    }
    table->first = (table->first + 1) % table->room;
    table->count--;
    return true;
}

/* Not while somebody captures: then events may not be asked. */
void ov_timetable_collect(struct ov_ring *ring)
{
    while (ring->timetable.passes > 0 && atomic_load(&ov_captures) == 0 && collect_one(ring)) {
    }
}
