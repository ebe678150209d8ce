/* Makes communicators of the other library. */
#include "other.h"

#include <stdlib.h>
#include <string.h>

static bool same_id(const struct lp_other_init* a, const struct lp_other_init* b) {
  return memcmp(a->id, b->id, sizeof a->id) == 0;
}

/* Whether inits[first] and those behind it are all ranks of a communicator, on devices of their own. Only
 * ncclCommInitAll names devices; other inits use the thread's. */
static bool all_of_one(const struct lp_other_init* inits, size_t n, size_t first, size_t* count) {
  size_t i;
  *count = 0;
  for (i = first; i < n; i++) *count += same_id(&inits[i], &inits[first]);
  if (*count < 2 || *count != (size_t)inits[first].nranks) return false;
  for (i = first + 1; i < n; i++)
    if (same_id(&inits[i], &inits[first])) return inits[i].device != inits[first].device;
  return false;
}

static ncclResult_t make_all(struct lp_other_init* inits, size_t n, size_t first, size_t count) {
  ncclResult_t rc = ncclSystemError;
  __typeof__(ncclCommInitAll)* init_all = LP_OTHER(ncclCommInitAll, &rc);
  ncclComm_t* comms = calloc(count, sizeof *comms);
  int* devices = calloc(count, sizeof *devices);
  size_t i;
  if (inits[first].net != NULL) {
    rc = lp_fail(ncclInvalidUsage, "ncclCommInitAll takes no network by name");
  } else if (comms != NULL && devices != NULL && init_all != NULL) {
    for (i = first; i < n; i++)
      if (same_id(&inits[i], &inits[first])) devices[inits[i].rank] = inits[i].device;
    rc = init_all(comms, (int)count, devices);
    for (i = first; rc == ncclSuccess && i < n; i++)
      if (same_id(&inits[i], &inits[first])) inits[i].comm = (uint64_t)(uintptr_t)comms[inits[i].rank];
  }
  free(comms);
  free(devices);
  return rc;
}

static ncclResult_t make_one(struct lp_other_init* init, ncclComm_t* comm) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclResult_t rc = ncclSuccess;
  ncclUniqueId id;
  memcpy(&id, init->id, sizeof id);
  if (init->net == NULL) {
    __typeof__(ncclCommInitRank)* plain = LP_OTHER(ncclCommInitRank, &rc);
    return plain == NULL ? rc : plain(comm, init->nranks, id, init->rank);
  }
  __typeof__(ncclCommInitRankConfig)* configured = LP_OTHER(ncclCommInitRankConfig, &rc);
  config.netName = init->net;
  config.commName = init->name;
  return configured == NULL ? rc : configured(comm, init->nranks, id, init->rank, &config);
}

/* Makes the communicators that InitAll has not made, as one group. */
static ncclResult_t make_rest(struct lp_other_init* inits, ncclComm_t* made, size_t n) {
  ncclResult_t rc = ncclSuccess, end;
  __typeof__(ncclGroupStart)* open = LP_OTHER(ncclGroupStart, &rc);
  __typeof__(ncclGroupEnd)* close = LP_OTHER(ncclGroupEnd, &rc);
  size_t i, left = 0;
  for (i = 0; i < n; i++) left += inits[i].comm == 0;
  if (left == 0 || rc != ncclSuccess) return rc;
  if (left > 1 && (rc = open()) != ncclSuccess) return rc;
  for (i = 0; rc == ncclSuccess && i < n; i++)
    if (inits[i].comm == 0) rc = make_one(&inits[i], &made[i]);
  end = left > 1 ? close() : ncclSuccess;
  return rc != ncclSuccess ? rc : end;
}

int lp_other_make(struct lp_other_init* inits, size_t n) {
  ncclComm_t* made = calloc(n, sizeof *made);
  ncclResult_t rc = made != NULL ? ncclSuccess : ncclSystemError, none = ncclSuccess;
  __typeof__(ncclCommAbort)* abort_made = LP_OTHER(ncclCommAbort, &none);
  size_t i, k, count;
  for (i = 0; rc == ncclSuccess && i < n; i++) {
    for (k = 0; k < i && !same_id(&inits[k], &inits[i]); k++) {
    }
    if (k == i && all_of_one(inits, n, i, &count)) rc = make_all(inits, n, i, count);
  }
  if (rc == ncclSuccess) rc = make_rest(inits, made, n);
  for (i = 0; i < n; i++) {
    if (made != NULL && made[i] != NULL) inits[i].comm = (uint64_t)(uintptr_t)made[i];
    if (rc != ncclSuccess && inits[i].comm != 0 && abort_made != NULL) (void)abort_made(lp_comm(inits[i].comm));
  }
  free(made);
  return (int)rc;
}
