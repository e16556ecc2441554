/*
 * report.h - what the program is told of a device's memory: total and free, the same through every interface.
 *
 * The device looks as large as OVERSHOT_REPORT says. What the program has allocated, wherever it is, is used. What is
 * left is told as free, in so far as it can be allocated: in device memory that the budget leaves and, where host
 * memory stands in, in host memory. docs/memory-answers.md tells why, program by program.
 *
 * Two rules hold, whatever is moved behind the scenes:
 *   - free + used is never more than the total;
 *   - free never rises, but by what the program frees (or other processes do). So the *room*, free and allocated memory
 *     together, only shrinks. It opens again when the program has given back all but what half of the budget holds: it
 *     starts anew.
 *
 * Admission checks ask before weights are loaded and want to see room for all of them. Fillers, such as key-value
 * caches, ask after that and take what is left. So with OVERSHOT_REPORT=physical the surplus over the budget is there
 * until all that was uploaded has been used by a launch, while not all of it fits. Then the room becomes what is
 * allocated and what the budget leaves for memory that is written; and once more when the first plan is made, because
 * only then it is known well what is written.
 *
 * Pure: no CUDA, no lock. The engine's lock guards struct ov_report.
 */
#ifndef OV_REPORT_H
#define OV_REPORT_H

#include <stdbool.h>
#include <stddef.h>

#include "ledger.h"
#include "options.h"

enum ov_report_stage { OV_REPORT_LOADING, OV_REPORT_IN_USE, OV_REPORT_PLANNED };

struct ov_report {
    size_t room_bytes;          /* free and allocated; SIZE_MAX: open */
    enum ov_report_stage stage; /* in which the room was last cut */
    size_t others_bytes;        /* device memory held by other processes, and by the driver for this one */
    bool others_known;
};

struct ov_report_facts {
    size_t total_bytes;         /* of the device */
    size_t device_free_bytes;   /* what the driver calls free; SIZE_MAX: not asked */
    bool host_backed;           /* host memory stands in for device memory */
    enum ov_report_stage stage; /* past loading: not all fits, and all that was uploaded has been used */
    size_t written_bytes;       /* then: memory that is written or may be, and the ring */
};

struct ov_report_answer {
    size_t total_bytes, free_bytes;
};

/* The total that is told. It does not depend on when it is asked: a budget of "auto" is known only later, and then the
 * total is the real one. */
size_t ov_report_total(const struct ov_options *options, size_t total_bytes);
struct ov_report_answer ov_report_ask(struct ov_report *report, const struct ov_options *options,
                                      const struct ov_ledger *ledger, const struct ov_report_facts *facts);
/* The program has freed memory; the ledger knows already. */
void ov_report_freed(struct ov_report *report, const struct ov_ledger *ledger);

#endif
