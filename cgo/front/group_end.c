/* The end of a group: runs what its thread has queued. */
#include "other.h"

#include <time.h>

/* Waits for what a communicator has in progress, and returns its result. LIGHTPATH_TIMEOUT bounds every such
 * operation. */
static ncclResult_t settle(const struct lp_core* core, ncclComm_t comm) {
  struct timespec pause = {0, 20 * 1000};
  char err[LP_ERR_BYTES] = "";
  int32_t state;
  for (;;) {
    if (core->async_error(lp_handle(comm), &state, err, sizeof err) != ncclSuccess) return ncclSuccess;
    if (state != ncclInProgress) return lp_result(state, err);
    nanosleep(&pause, NULL);
    if (pause.tv_nsec < 1000 * 1000) pause.tv_nsec *= 2;
  }
}

/* Reports whether a group of nonblocking communicators has calls on communicators that it does not end. */
static bool continues(const struct lp_group* g) {
  size_t i;
  for (i = 0; i < g->call_count; i++)
    if (!lp_group_ends(g->calls[i].comm)) return true;
  return g->init_count > 0;
}

/* Ends communicators, after calls with result rc. It ends them even if the calls have failed: the program will not ask
 * again. */
static ncclResult_t run_ends(const struct lp_group* g, ncclResult_t rc) {
  ncclResult_t why;
  const struct lp_core* core = lp_core(&why);
  size_t i;
  if (core == NULL) return why;
  if (rc == ncclInProgress && !continues(g)) rc = ncclSuccess;
  for (i = 0; i < g->end_count; i++) {
    ncclResult_t settled = g->kind == LP_GROUP_NONBLOCKING ? settle(core, g->ends[i].comm) : ncclSuccess;
    ncclResult_t ended = lp_end_now(g->ends[i].comm, g->ends[i].how);
    if (settled != ncclSuccess) ended = settled;
    if (rc == ncclSuccess || (rc == ncclInProgress && ended != ncclSuccess)) rc = ended;
  }
  return rc;
}

static void reset(void) {
  lp_interpose_forget(NULL);
  lp_group_reset();
}

LP_API(ncclResult_t, ncclGroupStart, (void)) {
  ncclResult_t rc = lp_check_fork();
  if (rc == ncclSuccess) lp_group()->depth++;
  return rc;
}

LP_API(ncclResult_t, ncclGroupEnd, (void)) {
  struct lp_group* g = lp_group();
  ncclResult_t rc;
  if (g->depth == 0) return lp_fail(ncclInvalidUsage, "ncclGroupEnd: no group of this thread is open");
  if (g->depth > 1) {
    g->depth--;
    return ncclSuccess;
  }
  /* The depth changes first: calls made from now on are outside the group. */
  g->depth = 0;
  rc = lp_other_group_end(NULL); /* the other library's calls run while ours do */
  if (rc == ncclSuccess) rc = g->error;
  rc = lp_interpose_group_end(rc);
  if (rc == ncclSuccess && g->init_count > 0) rc = lp_init_now(g->inits, g->out, g->init_count);
  if (rc == ncclSuccess && g->call_count > 0) rc = LP_CORE(run, g->calls, g->call_count);
  if (g->error == ncclSuccess && g->end_count > 0) rc = run_ends(g, rc);
  reset();
  return rc;
}

/* Writes the predicted time of the group's calls. */
static ncclResult_t simulate(const struct lp_group* g, float* us) {
  ncclResult_t rc;
  double estimate;
  *us = 0;
  if (g->error != ncclSuccess) return g->error;
  if (g->init_count > 0)
    return lp_fail(ncclInvalidUsage, "ncclGroupSimulateEnd: the group makes communicators, which cannot be simulated");
  if (g->end_count > 0)
    return lp_fail(ncclInvalidUsage, "ncclGroupSimulateEnd: the group ends communicators, which cannot be simulated");
  if (g->call_count == 0) return ncclSuccess;
  rc = LP_CORE(simulate, g->calls, g->call_count, &estimate);
  if (rc == ncclSuccess) *us = (float)estimate;
  return rc;
}

/* Ends the group without running it. */
LP_API(ncclResult_t, ncclGroupSimulateEnd, (ncclSimInfo_t* simInfo)) {
  static const ncclSimInfo_t fresh = NCCL_SIM_INFO_INITIALIZER;
  struct lp_group* g = lp_group();
  ncclSimInfo_t other = fresh;
  ncclResult_t rc = ncclSuccess, closed;
  float us;
  if (g->depth == 0) return lp_fail(ncclInvalidUsage, "ncclGroupSimulateEnd: no group of this thread is open");
  if (simInfo == NULL)
    rc = lp_fail(ncclInvalidArgument, "ncclGroupSimulateEnd: simInfo is NULL");
  else if (simInfo->size < fresh.size || simInfo->magic != fresh.magic)
    rc = lp_fail(
        ncclInvalidArgument,
        "ncclGroupSimulateEnd: simInfo is not initialized with NCCL_SIM_INFO_INITIALIZER (size %zu, magic 0x%x)",
        simInfo->size, simInfo->magic);
  if (--g->depth > 0) return rc;
  closed = lp_other_group_end(&other);
  if (rc == ncclSuccess) rc = closed;
  if (rc == ncclSuccess) rc = simulate(g, &us);
  /* The other library's calls run while ours do. */
  if (rc == ncclSuccess) simInfo->estimatedTime = us > other.estimatedTime ? us : other.estimatedTime;
  reset();
  return rc;
}
