/*
 * verdict.h - what was proven of kernels in an earlier run of the program, for those whose code is the same.
 *
 * What is learned of a kernel (kernel.h) is learned of its code: whether it writes through a slot, whether it computes
 * addresses, whether its result can be seen. A run takes it from a few launches for all that come; so does the next
 * run, if the code is the same to the last byte (code.h), its name, and the number of its slots. Then its launches need
 * not be compared before and after once more, each of which would hold up the first pass.
 *
 * It is as sure as it was, and what keeps a wrong verdict from doing silent harm does so here too: a streamed unit is
 * mapped read-only, so a reader that writes after all gets an error; addresses that were computed are found by the
 * search before every plan and by the study that follows a plan made of a profile (recall.h). Verdicts are given out
 * only when the weights were recognised: by then the program is known to be the one that they were found in.
 *
 * - Taken over: a slot's state; a writer stays one, whatever was seen since. That a kernel emits, has an output,
 *   leaves it unseen. That it was looked at: as often as the discovery that the plan rested on did.
 * - Not: counts of launches and hits (they only cost time), and how far kernels reach (reach.h), which is about
 *   addresses, and those are new in every run. Kernels whose code is not known, ever.
 *
 * The table has a lock of its own, behind the registry's. It only grows.
 */
#ifndef OV_VERDICT_H
#define OV_VERDICT_H

#include <stdbool.h>
#include <stddef.h>

struct ov_kernel;
struct ov_profile_kernel;

/* Whether kernels' code has to be told apart: profiles are kept. */
bool ov_verdicts_kept(void);
/* From now on kernels, those that are there and those to come, get what the list says. */
void ov_verdicts_take(const struct ov_profile_kernel *kernel, size_t count);
/* For kernel.c: a kernel becomes known. */
void ov_verdict_give(struct ov_kernel *kernel);

/* Whether the list has a kernel that computes addresses, and whose code is not known. */
bool ov_verdicts_warn(const struct ov_profile_kernel *kernel, size_t count);
/* What is known now, to be kept: free(*list) and the strings, which are one block, free(*strings). 0: nothing, or
 * memory ran out. */
size_t ov_verdicts_list(struct ov_profile_kernel **list, char **strings);

#endif
