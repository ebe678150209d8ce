/* CPU spreading: a rank that shares a CPU with a peer moves to a free one.
 *
 * Two ranks on one CPU take turns, with a yield for each message, which is several times slower than if both ran.
 * The kernel may leave them there for long: it sees a busy CPU. So each rank writes beside its doorbell on which
 * CPU it runs, and a rank that had to yield to a peer on its own CPU moves. Its set of allowed CPUs is the same
 * afterwards. */
#ifndef LP_CPU_SPREAD_H
#define LP_CPU_SPREAD_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

/* The state of a rank; zero at first. */
struct lp_spread {
  uint32_t met;       /* calls in a row in which the rank has yielded to a peer on its CPU */
  int64_t rest;       /* the pause between two moves, in ns */
  int64_t rest_until; /* its end, in ns of CLOCK_MONOTONIC */
};

/* Writes to *where, for the peers, on which CPU the calling thread runs: the CPU + 1, so that 0 means unknown. */
void lp_spread_say(uint32_t* where);

/* Called by a rank that has yielded until its peers came. at[p] is where rank p runs, 0 for the caller. Returns
 * true if the caller has moved. */
bool lp_spread(struct lp_spread* s, const uint32_t* at, uint32_t ranks);

/* For tests: its parts. The allowed CPU to move to from cpu, on which no rank runs; -1 if there is none. */
int lp_spread_target(int cpu, const cpu_set_t* allowed, const uint32_t* at, uint32_t ranks);
/* Whether a rank may move at a time. If so, it begins the next pause. */
bool lp_spread_may_move(struct lp_spread* s, int64_t now);
/* Moves the calling thread to cpu, and restores its set of allowed CPUs. */
bool lp_spread_move(int cpu, const cpu_set_t* allowed);

#endif
