/*
 * plan.h - tier and ring place of every unit, and when each copy is issued. A pure function: no CUDA, no locks, no I/O,
 * no globals.
 *
 * In: units and what each may become; the trace: the learned cycle, its times, how often each part of it is repeated;
 * launch groups; the link's speed; a budget in pages. Out: a tier per unit, for streamed units the first of their ring
 * pages, why, the order of copies, and what a cycle takes next to what it must take at least.
 *
 * What every plan keeps
 *   - resident_pages + ring_pages <= budget_pages, always.
 *   - A streamed unit lies in contiguous ring pages, at one place for as long as the plan lives.
 *   - Streamed units of one launch group lie at disjoint places: they can be in the ring together.
 *   - A unit has a tier that its flags allow. Where that cannot be (it may only be resident and there is no room), it
 *     is host-mapped with OV_PLAN_NO_ROOM and counted in unplaced_pages; the caller decides what that means.
 *
 * Strategies. `auto` tries many plans on the simulation below and keeps the fastest; it stops when one is as good as
 * the lower bound, or when it has looked at `effort` touches. The others are one rule each, for comparison. A plan that
 * is less forgiving (a ring of less than two units, in which one late kernel holds up the link) has to be faster by
 * OV_PLAN_WORTH. Of plans equally fast the one that copies less wins.
 *
 * Modes. `memory`: the fastest plan within the budget. `latency`: the smallest budget at which a cycle takes no more
 * than 1 + slowdown times what it takes when all is resident, and the plan for that.
 *
 * Time. The simulation knows one link and one compute stream, both in the order of the cycle, and passes that follow
 * each other back to back: what it says is the steady state. Copies begin as soon as they can, as in the ring, also
 * beside touches that they slow. The lower bound (plan_bound.h) is of all plans that keep what is said above, whatever
 * their order of copies.
 *
 * Units outside the cycle: host-mapped, else resident if there is room, else streamed. Sparse ones the same.
 *
 * Ownership: the input belongs to the caller and is not kept; ov_plan_make allocates what is in the plan, ov_plan_free
 * frees it. Thread-safety: functions of their arguments. Errors: false only when memory runs out.
 */
#ifndef OV_PLAN_H
#define OV_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ov_tier { OV_TIER_RESIDENT, OV_TIER_STREAMED, OV_TIER_HOST };

/* Sets of tiers: 1 << tier. The bits of OVERSHOT_TIERS. */
#define OV_TIER_BIT(tier) (1u << (tier))
#define OV_TIERS_ALL      7u

/* A page of dense reads in place counts as so many pages copied: the reads go over the link once per wave of blocks. */
#define OV_PLAN_HOST_WEIGHT 8

/* Why a unit got its tier. OV_PLAN_REASON(constant, text for reports) */
#define OV_PLAN_REASONS(OV_PLAN_REASON)                                                             \
    OV_PLAN_REASON(OV_PLAN_ALL_FITS, "everything fits the budget")                                  \
    OV_PLAN_REASON(OV_PLAN_ONLY_TIER, "may be nothing else")                                        \
    OV_PLAN_REASON(OV_PLAN_SPREAD, "chosen evenly over the cycle")                                  \
    OV_PLAN_REASON(OV_PLAN_FITTING, "chosen since together they fill the budget")                   \
    OV_PLAN_REASON(OV_PLAN_ORDER, "chosen in order of use")                                         \
    OV_PLAN_REASON(OV_PLAN_EXCHANGED, "exchanged for a unit whose copy was waited for")             \
    OV_PLAN_REASON(OV_PLAN_PHASE, "takes turns with the weights of another part of the program")    \
    OV_PLAN_REASON(OV_PLAN_OFTEN, "used several times a cycle")                                     \
    OV_PLAN_REASON(OV_PLAN_LEFT_OVER, "fitted into what was left of the budget")                    \
    OV_PLAN_REASON(OV_PLAN_CYCLE, "used in the cycle, and the budget is spent")                     \
    OV_PLAN_REASON(OV_PLAN_OUTSIDE, "not used in the cycle")                                        \
    OV_PLAN_REASON(OV_PLAN_SPARSE, "read sparsely")                                                 \
    OV_PLAN_REASON(OV_PLAN_UNSTREAMABLE, "may not be streamed")                                     \
    OV_PLAN_REASON(OV_PLAN_LARGE, "would ask for too deep a ring")                                  \
    OV_PLAN_REASON(OV_PLAN_GROUP, "the weights of one launch would not fit the ring together")      \
    OV_PLAN_REASON(OV_PLAN_COLLISION, "no ring place apart from the other weights of its launches") \
    OV_PLAN_REASON(OV_PLAN_NO_ROOM, "may only be on the device, and the budget is spent")

enum ov_plan_reason {
#define OV_PLAN_REASON(constant, text) constant,
    OV_PLAN_REASONS(OV_PLAN_REASON)
#undef OV_PLAN_REASON
        OV_PLAN_REASON_COUNT
};

struct ov_plan_unit {
    uint32_t pages; /* of 2 MiB, >= 1 */
    uint8_t may;    /* set of tiers, OV_TIER_BIT; with 0, or if no room is found, OV_PLAN_NO_ROOM */
    bool sparse;    /* a launch reads few of its bytes: in place costs next to nothing */
};

/* The units of one launch: group_unit[start .. start + length). Groups of one unit say nothing and may be left out;
 * duplicates, in a group or of groups, do no harm. */
struct ov_plan_group {
    uint32_t start, length;
};

/* A stretch of the cycle that is gone through `repeats` times in a row before the next begins: a text encoder once, a
 * denoiser fifty times, a decoder once. */
struct ov_plan_part {
    size_t length; /* touches of the cycle */
    uint32_t repeats;
};

/* Speed of the link for copies of one size. */
struct ov_plan_rate {
    double pages, pages_per_s;
};

/* How a plan is found. OV_PLAN_STRATEGY(constant, name, what it does). `nth` takes a number. */
#define OV_PLAN_STRATEGIES(OV_PLAN_STRATEGY)                                                                  \
    OV_PLAN_STRATEGY(OV_PLAN_AUTO, "auto", "the fastest that a search finds")                                 \
    OV_PLAN_STRATEGY(OV_PLAN_KNAPSACK, "knapsack", "resident is what saves most copying for its size")        \
    OV_PLAN_STRATEGY(OV_PLAN_GREEDY, "greedy", "resident is what is used first, until the budget is spent")   \
    OV_PLAN_STRATEGY(OV_PLAN_NTH, "nth", "every nth unit is streamed, and more where the budget asks for it") \
    OV_PLAN_STRATEGY(OV_PLAN_EVEN, "spread", "resident is chosen evenly over the cycle")

enum ov_plan_strategy { /* in the order of the option's values (options.def) */
#define OV_PLAN_STRATEGY(constant, name, help) constant,
                        OV_PLAN_STRATEGIES(OV_PLAN_STRATEGY)
#undef OV_PLAN_STRATEGY
                            OV_PLAN_STRATEGY_COUNT
};

enum ov_plan_mode { OV_PLAN_MEMORY, OV_PLAN_LATENCY };

/* Everything not mentioned may be 0 or NULL. */
struct ov_plan_input {
    const struct ov_plan_unit *unit;
    size_t unit_count;     /* < UINT32_MAX */
    const uint32_t *cycle; /* units in order of use, repeats allowed (not in a row) */
    size_t cycle_length;
    const struct ov_plan_part *part; /* one after the other they are the cycle; NULL: all of it once */
    size_t part_count;
    const double *compute_s; /* of each touch of the cycle. NULL: COMPUTE_PART of the time of its unit's copy */
    /* What copies that run meanwhile add to a touch's time: it takes 1 + stretch times as long. NULL: nothing. */
    const double *stretch;
    const struct ov_plan_group *group;
    size_t group_count;
    const uint32_t *group_unit;
    size_t budget_pages;       /* for resident units and the ring together */
    size_t host_limit_pages;   /* for units that are not resident; 0: no limit */
    size_t ring_request_pages; /* 0: automatic. Raised to what the largest launch needs, lowered to what is of use. */
    unsigned tiers;          /* set of tiers. A unit goes to a tier outside it only if no tier inside can hold it; left
                                out, `resident` holds only what may not be streamed. */
    double link_pages_per_s; /* 0: OV_PLAN_LINK. Of copies of all sizes, unless there is a curve: */
    const struct ov_plan_rate *rate; /* by size, ascending */
    size_t rate_count;
    enum ov_plan_strategy strategy;
    unsigned nth; /* of OV_PLAN_NTH; 0 is 2 */
    enum ov_plan_mode mode;
    double slowdown; /* of OV_PLAN_LATENCY: 0.05 for 5 % */
    double worth;    /* a ring of less than two units has to save so much; 0: OV_PLAN_WORTH */
    size_t effort;   /* touches that a search may look at; 0: OV_PLAN_EFFORT */
};

/* Pages a second of the link when it was not measured: PCIe 5 x16, 55.2 GB/s. */
#define OV_PLAN_LINK 26300.0
/* A copy that had to wait for readers starts so much after they are over. */
#define OV_PLAN_TURNAROUND_S 1e-5
/* About 200 million instructions, and as many for the bound at most. */
#define OV_PLAN_EFFORT 4000000u
/* A ring that forgives less has to save so much, if the times are known well. */
#define OV_PLAN_WORTH 0.005

struct ov_plan_place {
    uint32_t pages;     /* as in the input */
    uint32_t ring_page; /* first page in the ring, if streamed; else 0 */
    uint8_t tier;       /* enum ov_tier */
    uint8_t reason;     /* enum ov_plan_reason */
    bool sparse;        /* as in the input */
};

/* A copy of a steady cycle. Copies are issued in their order, each as soon as the one before is over and `after` has
 * ended. */
struct ov_plan_copy {
    uint32_t unit;
    uint32_t touch; /* of the cycle: needs it */
    uint32_t after; /* of the cycle: the last before it that reads what it overwrites. OV_PLAN_NO_TOUCH: none */
    bool again;     /* in every repetition of the part but the first; else in the first */
};
#define OV_PLAN_NO_TOUCH UINT32_MAX

/* What a simulation says of a plan, for one cycle in steady state with all its repetitions. */
struct ov_plan_score {
    double cycle_s;
    double stall_s;     /* of it: computation waited for copies */
    double link_s;      /* the link was busy */
    size_t cycle_pages; /* copied */
};

struct ov_plan {
    struct ov_plan_place *place; /* one per unit */
    size_t unit_count;
    size_t ring_pages;
    size_t resident_pages, streamed_pages, host_pages; /* sums over units */
    size_t resident_units, streamed_units, host_units;
    size_t cycle_pages;      /* copied per cycle in steady state: pages times loads */
    size_t cycle_host_pages; /* read in place per cycle by dense readers: pages times touches */
    size_t unplaced_pages;   /* of units with OV_PLAN_NO_ROOM */
    size_t host_over_pages;  /* beyond host_limit_pages */
    struct ov_plan_copy *copy;
    size_t copy_count;
    struct ov_plan_score score;
    double cycle_s;                 /* score.cycle_s */
    double bound_s;                 /* no plan for this input is faster */
    double resident_s;              /* a cycle when all is resident */
    enum ov_plan_strategy strategy; /* the rule that chose the tiers */
    size_t tried;                   /* plans that were simulated */
};

/* False: memory ran out, *out untouched. */
bool ov_plan_make(const struct ov_plan_input *input, struct ov_plan *out);
void ov_plan_free(struct ov_plan *plan);
/* A copy of its own. False: memory ran out, and *to need not be freed. */
bool ov_plan_clone(const struct ov_plan *from, struct ov_plan *to);

/* What a cycle takes with the plan's tiers and places. A unit that is not in the ring when its touch comes up is
 * loaded; the copy starts when the link is free and the last touches of all units in its pages are over (10 us later if
 * it waited for them). A touch takes compute_s; of a host-mapped unit (not sparse) at least OV_PLAN_HOST_WEIGHT times
 * its copy, and the link is busy with it for as long. stall_s, where not NULL, gets what each touch waited for copies.
 * False: memory ran out. */
bool ov_plan_simulate(const struct ov_plan_input *input, const struct ov_plan *plan, struct ov_plan_score *score,
                      double *stall_s);

/* How long copies run beside each touch of a cycle meanwhile, of the time that it takes with them. The input has a
 * stretch. False: memory ran out. */
bool ov_plan_beside(const struct ov_plan_input *input, const struct ov_plan *plan, double *beside_s);

/* Time of one copy on the input's link. */
double ov_plan_copy_time(const struct ov_plan_input *input, double pages);

/* True when the places of two streamed units overlap. */
bool ov_plan_overlap(const struct ov_plan *plan, uint32_t a, uint32_t b);

const char *ov_plan_reason_text(enum ov_plan_reason reason);
const char *ov_tier_name(enum ov_tier tier); /* "resident", "streamed", "host" */
const char *ov_plan_strategy_name(enum ov_plan_strategy strategy);

#endif
