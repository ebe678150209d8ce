/* Ranks that share a CPU while another is free.
 *
 * Two ranks that wake up on one CPU take turns there, by a yield for each message, which is several times slower than
 * if both ran; and the system may leave it at that for long: a CPU is busy, and that is all it sees. So each rank says
 * beside its doorbell where it runs, and one that has had to give its CPU to another rank goes to a free one of those
 * that its thread may use. Which CPUs these are is the same afterwards. */
#ifndef LP_APART_H
#define LP_APART_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

/* What a rank remembers; zero at first. */
struct lp_apart {
  uint32_t met;        /* calls in a row in which it has yielded to a rank on its CPU */
  int64_t rest, until; /* it does not try again before: for so long, and when that ends, in ns of CLOCK_MONOTONIC */
};

/* Says in *where, for the other ranks, that the calling thread runs here: as a CPU + 1, 0 for nothing known. */
void lp_apart_say(uint32_t* where);

/* For a rank that has yielded until the others came, which have said where they are: at[p], of so many
 * ranks, its own 0. True when it has gone to another CPU. */
bool lp_apart(struct lp_apart* a, const uint32_t* at, uint32_t ranks);

/* Parts of it. Where to go from cpu: to one of those allowed that no rank is on; -1 where there is none. */
int lp_apart_where(int cpu, const cpu_set_t* allowed, const uint32_t* at, uint32_t ranks);
/* Whether it may be tried at a time, which is noted: the next time is later. */
bool lp_apart_rested(struct lp_apart* a, int64_t now);
/* Moves the calling thread to cpu, and then leaves it all that are allowed. */
bool lp_apart_go(int cpu, const cpu_set_t* allowed);

#endif
