/* The table as others see it: see timetable.h. */
#include "timetable.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"

static struct ov_timetable_text *make_text(uint32_t rows, uint32_t passes)
{
    struct ov_timetable_text *text = calloc(1, sizeof *text);
    if (text == NULL) {
        return NULL;
    }
    text->rows = rows;
    text->passes = passes;
    text->row = calloc(rows, sizeof *text->row);
    text->sum = calloc(rows, sizeof *text->sum);
    text->worst_wait_ms = calloc(rows, sizeof *text->worst_wait_ms);
    text->pass = calloc(passes, sizeof *text->pass);
    text->graphs = calloc(passes, sizeof *text->graphs);
    text->number = calloc(passes, sizeof *text->number);
    if (text->row == NULL || text->sum == NULL || text->worst_wait_ms == NULL || text->pass == NULL ||
        text->graphs == NULL || text->number == NULL) {
        ov_timetable_free(text);
        return NULL;
    }
    return text;
}

void ov_timetable_free(struct ov_timetable_text *text)
{
    if (text != NULL) {
        free(text->row);
        free(text->sum);
        free(text->worst_wait_ms);
        free(text->pass);
        free(text->graphs);
        free(text->number);
        free(text);
    }
}

static void add(struct ov_times *sum, const struct ov_times *times)
{
    sum->copy_ms += times->copy_ms;
    sum->wait_ms += times->wait_ms;
    sum->compute_ms += times->compute_ms;
    sum->copies += times->copies;
}

static void sum_up(const struct ov_timetable *table, struct ov_timetable_text *text)
{
    for (uint32_t i = 0; i < text->passes; i++) {
        const uint32_t place = (table->place + table->passes + 1 - text->passes + i) % (table->passes + 1);
        text->number[i] = table->number[place];
        for (uint32_t row = 0; row < table->rows; row++) {
            const struct ov_times *times = &table->cell[(size_t)place * table->rows + row];
            add(&text->sum[row], times);
            add(row + 1 < table->rows ? &text->pass[i] : &text->graphs[i], times);
            text->worst_wait_ms[row] =
                times->wait_ms > text->worst_wait_ms[row] ? times->wait_ms : text->worst_wait_ms[row];
        }
    }
}

static struct ov_timetable_text *copy_of(const struct ov_timetable_text *from)
{
    struct ov_timetable_text *text = make_text(from->rows, from->passes);
    if (text != NULL) {
        memcpy(text->row, from->row, from->rows * sizeof *from->row);
        memcpy(text->sum, from->sum, from->rows * sizeof *from->sum);
        memcpy(text->worst_wait_ms, from->worst_wait_ms, from->rows * sizeof *from->worst_wait_ms);
        memcpy(text->pass, from->pass, from->passes * sizeof *from->pass);
        memcpy(text->graphs, from->graphs, from->passes * sizeof *from->graphs);
        memcpy(text->number, from->number, from->passes * sizeof *from->number);
        text->begun = from->begun;
        text->left_out = from->left_out;
        text->plan = from->plan;
    }
    return text;
}

struct ov_timetable_text *ov_timetable_read(const struct ov_engine *engine)
{
    const struct ov_timetable *table = &engine->ring.timetable;
    if (table->kept == 0) {
        return table->former != NULL ? copy_of(table->former) : NULL;
    }
    struct ov_timetable_text *text = make_text(table->rows, table->kept);
    if (text != NULL) {
        memcpy(text->row, table->row, table->rows * sizeof *table->row);
        text->begun = table->number[table->place];
        text->left_out = table->left_out;
        text->plan = engine->plans;
        sum_up(table, text);
    }
    return text;
}

/* ---- as lines ---- */

struct teller {
    void (*line)(void *context, const char *text);
    void *context;
};

static void say(const struct teller *teller, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(const struct teller *teller, const char *format, ...)
{
    char text[192];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    teller->line(teller->context, text);
}

static double gb_per_s(double bytes, double ms)
{
    return ms > 0 ? bytes / ms * 1e-6 : 0;
}

static void tell_weights(const struct ov_timetable_text *text, const struct teller *teller)
{
    const double passes = text->passes;
    struct ov_times all = {0};
    double all_bytes = 0;
    say(teller, "%8s %10s %8s %9s %8s %9s %7s %9s %9s %9s", "weight", "allocation", "at MiB", "MiB", "copies", "copy",
        "GB/s", "wait", "longest", "compute");
    for (uint32_t i = 0; i + 1 < text->rows; i++) {
        const struct ov_times *sum = &text->sum[i];
        const struct ov_timetable_row *row = &text->row[i];
        const double bytes = (double)row->bytes * sum->copies;
        if (sum->copies > 0 || sum->compute_ms > 0 || sum->wait_ms > 0) {
            say(teller, "%8u %10u %8zu %9zu %8.2f %9.3f %7.1f %9.3f %9.3f %9.3f", i, row->ordinal, row->offset >> 20,
                row->bytes >> 20, sum->copies / passes, sum->copy_ms / passes, gb_per_s(bytes, sum->copy_ms),
                sum->wait_ms / passes, text->worst_wait_ms[i], sum->compute_ms / passes);
            add(&all, sum);
            all_bytes += bytes;
        }
    }
    say(teller, "%8s %10s %8s %9.0f %8.2f %9.3f %7.1f %9.3f %9s %9.3f", "all", "", "", all_bytes / passes / 0x1p20,
        all.copies / passes, all.copy_ms / passes, gb_per_s(all_bytes, all.copy_ms), all.wait_ms / passes, "",
        all.compute_ms / passes);
}

static void tell_graphs(const struct ov_timetable_text *text, const struct teller *teller)
{
    const double passes = text->passes;
    const struct ov_times *sum = &text->sum[text->rows - 1];
    if (sum->copies > 0 || sum->copy_ms > 0) {
        say(teller, "  graphs with copies in them: %.2f copies, %.3f from launch to end, %.3f waited before",
            sum->copies / passes, sum->copy_ms / passes, sum->wait_ms / passes);
    }
}

void ov_timetable_tell(const struct ov_timetable_text *text, int device, void (*line)(void *context, const char *text),
                       void *context)
{
    const struct teller teller = {line, context};
    say(&teller, "device %d: plan %u, the last %u of %llu passes (%llu left out), ms a pass:", device, text->plan,
        text->passes, (unsigned long long)text->begun, (unsigned long long)text->left_out);
    tell_weights(text, &teller);
    tell_graphs(text, &teller);
    say(&teller, "%8s %9s %9s %9s %9s", "pass", "time", "copy", "wait", "compute");
    for (uint32_t i = 0; i < text->passes; i++) {
        const struct ov_times *units = &text->pass[i], *graphs = &text->graphs[i];
        const double wait_ms = (double)units->wait_ms + graphs->wait_ms;
        const double compute_ms = (double)units->compute_ms + graphs->compute_ms;
        say(&teller, "%8llu %9.3f %9.3f %9.3f %9.3f", (unsigned long long)text->number[i], wait_ms + compute_ms,
            units->copy_ms, wait_ms, compute_ms);
    }
}
