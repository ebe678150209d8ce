/* Communicators: makes them, answers questions about them, ends them. */
#include "other.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

LP_API(ncclResult_t, ncclGetUniqueId, (ncclUniqueId* uniqueId)) {
  if (uniqueId == NULL) return lp_fail(ncclInvalidArgument, "ncclGetUniqueId: uniqueId is NULL");
  return LP_CORE(get_unique_id, (unsigned char*)uniqueId->internal);
}

/* ---- Making ---- */

ncclResult_t lp_init_now(struct lp_init* inits, ncclComm_t* const* out, size_t n) {
  char err[LP_ERR_BYTES] = "";
  ncclResult_t rc;
  size_t i;
  const struct lp_core* core = lp_core(&rc);
  if (core == NULL) return rc;
  rc = lp_other_check();
  if (rc == ncclSuccess) rc = lp_interpose_check();
  if (rc != ncclSuccess) return rc;
  rc = lp_result(core->init(inits, n, err, sizeof err), err);
  if (rc == ncclSuccess) {
    lp_other_attach(core, inits, n);
    lp_interpose_attach(core, inits, n);
  }
  for (i = 0; (rc == ncclSuccess || rc == ncclInProgress) && i < n; i++)
    *out[i] = lp_comm(inits[i].comm);
  return rc;
}

ncclResult_t lp_make(struct lp_init* inits, ncclComm_t* const* out, size_t n) {
  ncclResult_t rc;
  size_t i;
  for (i = 0; i < n; i++) *out[i] = NULL;
  if (!lp_group_open()) return lp_init_now(inits, out, n);
  if (lp_core(&rc) == NULL) return lp_group_note(rc);
  return lp_group_add_inits(inits, out, n);
}

ncclResult_t lp_init_rank(const char* function, ncclComm_t* comm, int nranks, const ncclUniqueId* ids, int nids,
                          int rank, const ncclConfig_t* config) {
  struct lp_init init = {.nranks = nranks, .rank = rank, .device = -1};
  ncclConfig_t mine;
  ncclResult_t rc;
  if (comm == NULL) return LP_REFUSE("%s: comm is NULL", function);
  if (nranks < 1) return LP_REFUSE("%s: nranks is %d, must be at least 1", function, nranks);
  if (rank < 0 || rank >= nranks) return LP_REFUSE("%s: rank is %d, must be 0 .. %d", function, rank, nranks - 1);
  if (nids > nranks) return LP_REFUSE("%s: nId is %d for %d ranks", function, nids, nranks);
  rc = lp_comm_config(function, config, &mine);
  if (rc != ncclSuccess) return lp_group_note(rc);
  memcpy(init.id, ids[0].internal, sizeof init.id);
  init.more_ids = (uint32_t)nids - 1;
  init.more = (const unsigned char*)ids[1].internal;
  init.blocking = mine.blocking != 0; /* undefined is blocking */
  init.name = mine.commName;
  return lp_make(&init, &comm, 1);
}

LP_API(ncclResult_t, ncclCommInitRank, (ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank)) {
  return lp_init_rank("ncclCommInitRank", comm, nranks, &commId, 1, rank, NULL);
}

LP_API(ncclResult_t, ncclCommInitRankConfig,
       (ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t* config)) {
  return lp_init_rank("ncclCommInitRankConfig", comm, nranks, &commId, 1, rank, config);
}

LP_API(ncclResult_t, ncclCommInitRankScalable,
       (ncclComm_t* newcomm, int nranks, int myrank, int nId, ncclUniqueId* commIds, ncclConfig_t* config)) {
  if (commIds == NULL) return LP_REFUSE("ncclCommInitRankScalable: commIds is NULL");
  if (nId < 1) return LP_REFUSE("ncclCommInitRankScalable: nId is %d, must be at least 1", nId);
  return lp_init_rank("ncclCommInitRankScalable", newcomm, nranks, commIds, nId, myrank, config);
}

LP_API(ncclResult_t, ncclCommInitAll, (ncclComm_t* comm, int ndev, const int* devlist)) {
  ncclUniqueId id;
  struct lp_init* inits;
  ncclComm_t** out;
  ncclResult_t rc;
  int i;
  if (comm == NULL) return LP_REFUSE("ncclCommInitAll: comm is NULL");
  if (ndev < 1) return LP_REFUSE("ncclCommInitAll: ndev is %d, must be at least 1", ndev);
  for (i = 0; devlist != NULL && i < ndev; i++)
    if (devlist[i] < 0) return LP_REFUSE("ncclCommInitAll: devlist[%d] is %d", i, devlist[i]);
  rc = pncclGetUniqueId(&id);
  if (rc != ncclSuccess) return lp_group_note(rc);
  inits = calloc((size_t)ndev, sizeof *inits);
  out = calloc((size_t)ndev, sizeof *out);
  if (inits == NULL || out == NULL) {
    rc = lp_group_note(lp_fail(ncclSystemError, "ncclCommInitAll: out of memory for %d communicators", ndev));
  } else {
    for (i = 0; i < ndev; i++) {
      memcpy(inits[i].id, id.internal, sizeof id.internal);
      inits[i].nranks = ndev;
      inits[i].rank = i;
      inits[i].device = devlist != NULL ? devlist[i] : i;
      inits[i].blocking = lp_comm_blocking(1);
      out[i] = &comm[i];
    }
    rc = lp_make(inits, out, (size_t)ndev);
  }
  free(inits);
  free(out);
  return rc;
}

/* ---- Ending. As in NCCL, a NULL communicator succeeds. ---- */

ncclResult_t lp_end_now(ncclComm_t comm, int32_t how) {
  ncclResult_t rc, other;
  if (lp_core(&rc) == NULL) return rc;
  other = lp_other_end(comm, how);
  rc = LP_CORE(act, lp_handle(comm), how);
  return rc == ncclSuccess ? other : rc;
}

static ncclResult_t end_or_queue(ncclComm_t comm, int32_t how) {
  if (comm == NULL) return ncclSuccess;
  return lp_group_open() ? lp_group_add_end(comm, how) : lp_end_now(comm, how);
}

LP_API(ncclResult_t, ncclCommFinalize, (ncclComm_t comm)) { return end_or_queue(comm, LP_FINALIZE); }
LP_API(ncclResult_t, ncclCommDestroy, (ncclComm_t comm)) { return end_or_queue(comm, LP_DESTROY); }

/* Acts at once, also in a group: it ends calls that wait. */
LP_API(ncclResult_t, ncclCommAbort, (ncclComm_t comm)) {
  if (comm == NULL) return ncclSuccess;
  lp_group_forget(comm);
  lp_interpose_forget(comm);
  return lp_end_now(comm, LP_ABORT);
}

/* ---- Questions ---- */

#define ASK(NAME, OUT, QUESTION)                                                       \
  LP_API(ncclResult_t, NAME, (const ncclComm_t comm, int* OUT)) {                      \
    if (comm == NULL) return lp_fail(ncclInvalidArgument, #NAME ": comm is NULL");     \
    if (OUT == NULL) return lp_fail(ncclInvalidArgument, #NAME ": " #OUT " is NULL");  \
    return LP_CORE(ask, lp_handle(comm), QUESTION, OUT);                               \
  }

ASK(ncclCommCount, count, LP_ASK_RANKS)
ASK(ncclCommCuDevice, device, LP_ASK_DEVICE)
ASK(ncclCommUserRank, rank, LP_ASK_RANK)

LP_API(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t* asyncError)) {
  char err[LP_ERR_BYTES] = "";
  ncclResult_t rc;
  const struct lp_core* core;
  int32_t state;
  if (comm == NULL) return lp_fail(ncclInvalidArgument, "ncclCommGetAsyncError: comm is NULL");
  if (asyncError == NULL) return lp_fail(ncclInvalidArgument, "ncclCommGetAsyncError: asyncError is NULL");
  core = lp_core(&rc);
  if (core == NULL) return rc;
  rc = lp_result(core->async_error(lp_handle(comm), &state, err, sizeof err), err);
  if (rc != ncclSuccess) return rc;
  /* The state is the answer. If the communicator has failed, its text becomes the last error. */
  *asyncError = state == ncclSuccess ? lp_other_async_error(comm) : lp_result(state, err);
  return ncclSuccess;
}

/* ---- The library itself ---- */

/* Needs no core: frameworks call this while they are imported. They also enable features by it, so a variable can lower
 * it. */
LP_API(ncclResult_t, ncclGetVersion, (int* version)) {
  const char* given = lp_env("LIGHTPATH_NCCL_VERSION");
  char* end;
  long v;
  if (version == NULL) return lp_fail(ncclInvalidArgument, "ncclGetVersion: version is NULL");
  *version = NCCL_VERSION_CODE;
  if (given == NULL || given[0] == '\0') return ncclSuccess;
  v = strtol(given, &end, 10);
  if (*end != '\0' || v < 2000 || v > 999999)
    return lp_fail(ncclInvalidArgument, "LIGHTPATH_NCCL_VERSION is \"%s\", not a version code such as 22705", given);
  *version = (int)v;
  return ncclSuccess;
}
