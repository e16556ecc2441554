#include "report.h"

#include <stdint.h>

/* Pages of the arena and blocks of the driver. */
#define BLOCK_BYTES ((size_t)2 << 20)
/* Other processes are noticed when they take or give this much: smaller differences are how the driver rounds. */
#define OTHERS_STEP_BYTES ((size_t)256 << 20)

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t less(size_t from, size_t bytes)
{
    return from > bytes ? from - bytes : 0;
}

size_t ov_report_total(const struct ov_options *options, size_t total_bytes)
{
    if (options->report.word == OV_SIZED_BYTES) {
        return options->report.bytes;
    }
    if (options->report.word == OV_OPT_REPORT_BUDGET) {
        return smaller(ov_amount_resolve(&options->budget, total_bytes, total_bytes) & ~(BLOCK_BYTES - 1), total_bytes);
    }
    return total_bytes;
}

/* What can be allocated now, in blocks as it would be taken. */
static size_t capacity(const struct ov_ledger *ledger, bool host_backed)
{
    size_t device = ov_ledger_left(ledger) / BLOCK_BYTES;
    size_t host = host_backed ? ov_ledger_host_left(ledger) / BLOCK_BYTES : 0;
    return device + host < SIZE_MAX / BLOCK_BYTES ? (device + host) * BLOCK_BYTES : SIZE_MAX;
}

static void note_others(struct ov_report *report, const struct ov_ledger *ledger, const struct ov_report_facts *facts)
{
    if (facts->device_free_bytes == SIZE_MAX) {
        return;
    }
    size_t others = less(less(facts->total_bytes, facts->device_free_bytes), ov_ledger_held(ledger));
    size_t change = others > report->others_bytes ? others - report->others_bytes : report->others_bytes - others;
    if (!report->others_known || change >= OTHERS_STEP_BYTES) {
        report->others_bytes = others;
        report->others_known = true;
    }
}

static size_t free_now(struct ov_report *report, const struct ov_options *options, const struct ov_ledger *ledger,
                       const struct ov_report_facts *facts)
{
    size_t total = ov_report_total(options, facts->total_bytes);
    size_t left = less(total, ledger->program_bytes);
    if (options->report.word == OV_OPT_REPORT_BUDGET) {
        left = smaller(left, capacity(ledger, false));
    } else {
        left = smaller(left, capacity(ledger, facts->host_backed));
    }
    if (options->report.word == OV_OPT_REPORT_PHYSICAL && facts->stage > report->stage) {
        report->stage = facts->stage;
        left = smaller(left, less(ledger->budget_bytes, facts->written_bytes) / BLOCK_BYTES * BLOCK_BYTES);
    }
    return left;
}

struct ov_report_answer ov_report_ask(struct ov_report *report, const struct ov_options *options,
                                      const struct ov_ledger *ledger, const struct ov_report_facts *facts)
{
    note_others(report, ledger, facts);
    size_t room = free_now(report, options, ledger, facts) + ledger->program_bytes;
    report->room_bytes = smaller(report->room_bytes, room);
    struct ov_report_answer answer = {ov_report_total(options, facts->total_bytes),
                                      less(report->room_bytes, ledger->program_bytes)};
    if (options->report.word == OV_OPT_REPORT_PHYSICAL) {
        answer.free_bytes =
            smaller(answer.free_bytes, less(facts->total_bytes, report->others_bytes + ledger->program_bytes));
    }
    return answer;
}

void ov_report_freed(struct ov_report *report, const struct ov_ledger *ledger)
{
    if (ledger->program_bytes < ledger->budget_bytes / 2) {
        report->room_bytes = SIZE_MAX;
        report->stage = OV_REPORT_LOADING;
    }
}
