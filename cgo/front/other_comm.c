/* The other library's communicators and operators.
 *
 * Every communicator exists in both libraries, under our handle. The other library's is made together with ours,
 * not by the first call that needs it: such a call may be a send, which only two ranks make. Rank 0 draws the other
 * library's id, and our communicator carries it to the other ranks. If the library cannot make the communicator (no
 * device, say), only a call that needs it fails. */
#include "other.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Our communicators and operators, with the other library's. */
struct comm_pair {
  ncclComm_t ours, other;
  char why[256]; /* other is NULL */
};

struct op_pair {
  ncclComm_t comm;
  ncclRedOp_t ours, other;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct comm_pair* pairs;
static size_t pair_count, pair_room;
static struct op_pair* ops;
static size_t op_count, op_room;

/* ---- Communicators ---- */

static struct comm_pair* find(ncclComm_t ours) {
  size_t i;
  for (i = 0; i < pair_count; i++)
    if (pairs[i].ours == ours) return &pairs[i];
  return NULL;
}

static ncclComm_t other_of(ncclComm_t ours) {
  struct comm_pair* p;
  ncclComm_t other;
  pthread_mutex_lock(&mutex);
  p = find(ours);
  other = p != NULL ? p->other : NULL;
  pthread_mutex_unlock(&mutex);
  return other;
}

/* Returns a list with room for one more element. NULL if there is no memory; then the list is unchanged. */
static void* grown(void* list, size_t count, size_t* room, size_t size) {
  size_t more = *room == 0 ? 16 : 2 * *room;
  if (count < *room) return list;
  list = realloc(list, more * size);
  if (list != NULL) *room = more;
  return list;
}

static void keep(ncclComm_t ours, ncclComm_t other, const char* why) {
  struct comm_pair *list, *p;
  pthread_mutex_lock(&mutex);
  list = grown(pairs, pair_count, &pair_room, sizeof *pairs);
  if (list != NULL) {
    pairs = list;
    p = &pairs[pair_count++];
    p->ours = ours;
    p->other = other;
    snprintf(p->why, sizeof p->why, "%s", why);
  }
  pthread_mutex_unlock(&mutex);
}

ncclComm_t lp_other_comm(const char* function, ncclComm_t ours, ncclResult_t* why) {
  ncclComm_t other = NULL;
  char reason[256] = "it is not a communicator of this library, or is not blocking";
  struct comm_pair* p;
  pthread_mutex_lock(&mutex);
  p = find(ours);
  if (p != NULL) {
    other = p->other;
    memcpy(reason, p->why, sizeof reason);
  }
  pthread_mutex_unlock(&mutex);
  if (other == NULL)
    *why = lp_fail(ncclInvalidUsage, "%s: %s has no such communicator: %s", function, lp_other_path(), reason);
  return other;
}

/* Carries the other library's id from rank 0 of every communicator to its other ranks. The calls run as one group: this
 * thread may have several ranks. */
static ncclResult_t share_ids(const struct lp_core* core, const struct lp_init* inits, ncclUniqueId* ids, size_t n) {
  char err[LP_ERR_BYTES] = "";
  struct lp_call* calls = calloc(n, sizeof *calls);
  ncclResult_t rc = ncclSuccess;
  __typeof__(ncclGetUniqueId)* draw = LP_OTHER(ncclGetUniqueId, &rc);
  size_t i;
  if (calls == NULL) return lp_fail(ncclSystemError, "out of memory for %zu communicators", n);
  for (i = 0; i < n; i++) {
    /* Without an id, rank 0 sends zeros, so that no rank waits for it. */
    if (inits[i].rank == 0 && draw != NULL) {
      ncclResult_t drawn = lp_other_result("ncclGetUniqueId", draw(&ids[i]));
      if (drawn != ncclSuccess) {
        memset(&ids[i], 0, sizeof ids[i]);
        rc = drawn;
      }
    }
    calls[i] = (struct lp_call){.comm = inits[i].comm, .kind = LP_BROADCAST, .type = ncclUint8, .count = sizeof ids[i],
                                .send = &ids[i], .recv = &ids[i]};
  }
  if (core->run(calls, n, err, sizeof err) != ncclSuccess) rc = lp_fail(ncclSystemError, "%s", err);
  for (i = 0; i < n && rc == ncclSuccess; i++) {
    static const ncclUniqueId none;
    if (memcmp(&ids[i], &none, sizeof none) == 0) rc = lp_fail(ncclRemoteError, "rank 0 has no id of that library");
  }
  free(calls);
  return rc;
}

static ncclResult_t make(const struct lp_init* inits, const ncclUniqueId* ids, ncclComm_t* others, size_t n) {
  struct lp_other_init* wanted = calloc(n, sizeof *wanted);
  ncclResult_t rc;
  size_t i;
  if (wanted == NULL) return lp_fail(ncclSystemError, "out of memory for %zu communicators", n);
  for (i = 0; i < n; i++) {
    wanted[i] = (struct lp_other_init){.nranks = inits[i].nranks, .rank = inits[i].rank, .device = inits[i].device};
    memcpy(wanted[i].id, &ids[i], sizeof wanted[i].id);
  }
  rc = lp_other_result("ncclCommInitRank", (ncclResult_t)lp_other_make(wanted, n));
  for (i = 0; i < n; i++) others[i] = lp_comm(wanted[i].comm);
  free(wanted);
  return rc;
}

/* Copies the inits whose communicators exist (a split may make none), with the core's size and rank. Returns how
 * many. */
static size_t existing(const struct lp_core* core, const struct lp_init* inits, size_t n, struct lp_init* real) {
  size_t i, count = 0;
  for (i = 0; i < n; i++) {
    struct lp_init* r = &real[count];
    *r = inits[i];
    if (r->comm != 0 && core->ask(r->comm, LP_ASK_RANKS, &r->nranks, NULL, 0) == ncclSuccess &&
        core->ask(r->comm, LP_ASK_RANK, &r->rank, NULL, 0) == ncclSuccess)
      count++;
  }
  return count;
}

void lp_other_attach(const struct lp_core* core, const struct lp_init* inits, size_t n) {
  struct lp_init* real;
  ncclUniqueId* ids;
  ncclComm_t* others;
  ncclResult_t rc = ncclSystemError;
  size_t i;
  if (!lp_other()) return;
  real = calloc(n, sizeof *real);
  ids = calloc(n, sizeof *ids);
  others = calloc(n, sizeof *others);
  if (real != NULL && ids != NULL && others != NULL) {
    n = existing(core, inits, n, real);
    rc = n > 0 ? share_ids(core, real, ids, n) : ncclSuccess;
    if (rc == ncclSuccess && n > 0) rc = make(real, ids, others, n);
    for (i = 0; i < n; i++)
      keep(lp_comm(real[i].comm), rc == ncclSuccess ? others[i] : NULL,
           rc == ncclSuccess ? "" : pncclGetLastError(NULL));
  }
  free(real);
  free(ids);
  free(others);
}

/* Removes a communicator and its operators from the lists. Returns the other library's communicator. */
static ncclComm_t forget(ncclComm_t ours) {
  ncclComm_t other = NULL;
  struct comm_pair* p;
  size_t i, left = 0;
  pthread_mutex_lock(&mutex);
  p = find(ours);
  if (p != NULL) {
    other = p->other;
    *p = pairs[--pair_count];
  }
  for (i = 0; i < op_count; i++)
    if (ops[i].comm != ours) ops[left++] = ops[i];
  op_count = left;
  pthread_mutex_unlock(&mutex);
  return other;
}

ncclResult_t lp_other_end(ncclComm_t ours, int32_t how) {
  static const char* const functions[] = {
      [LP_FINALIZE] = "ncclCommFinalize", [LP_DESTROY] = "ncclCommDestroy", [LP_ABORT] = "ncclCommAbort"};
  ncclResult_t rc = ncclSuccess;
  ncclResult_t (*end)(ncclComm_t);
  ncclComm_t other;
  if (!lp_other()) return ncclSuccess;
  other = how == LP_FINALIZE ? other_of(ours) : forget(ours); /* else our handle ends, too */
  if (other == NULL) return ncclSuccess;
  *(void**)&end = lp_other_symbol(functions[how], &rc);
  return end == NULL ? rc : lp_other_result(functions[how], end(other));
}

ncclResult_t lp_other_revoke(ncclComm_t ours, int flags) {
  ncclComm_t other = lp_other() ? other_of(ours) : NULL;
  if (other == NULL) return ncclSuccess;
  LP_FORWARD(ncclCommRevoke, other, flags);
}

/* A library without ncclCommRevoke stops work only by ending the communicator. */
void lp_other_stop(ncclComm_t ours) {
  ncclResult_t why = ncclSuccess;
  __typeof__(ncclCommAbort)* abort_it;
  struct comm_pair* p;
  ncclComm_t other = lp_other() ? other_of(ours) : NULL;
  if (other == NULL || lp_other_revoke(ours, NCCL_REVOKE_DEFAULT) == ncclSuccess) return;
  abort_it = LP_OTHER(ncclCommAbort, &why);
  if (abort_it == NULL) return;
  pthread_mutex_lock(&mutex);
  p = find(ours);
  other = p != NULL ? p->other : NULL;
  if (p != NULL) {
    p->other = NULL;
    snprintf(p->why, sizeof p->why, "ncclCommShrink has ended it");
  }
  pthread_mutex_unlock(&mutex);
  if (other != NULL) (void)abort_it(other);
}

ncclResult_t lp_other_async_error(ncclComm_t ours) {
  ncclResult_t state = ncclSuccess, rc = ncclSuccess;
  __typeof__(ncclCommGetAsyncError)* ask;
  ncclComm_t other;
  if (!lp_other()) return ncclSuccess;
  other = other_of(ours);
  if (other == NULL) return ncclSuccess;
  ask = LP_OTHER(ncclCommGetAsyncError, &rc);
  if (ask == NULL) return ncclSuccess;
  rc = ask(other, &state);
  return lp_other_result("ncclCommGetAsyncError", rc != ncclSuccess ? rc : state);
}

/* ---- Operators ---- */

void lp_other_op_create(ncclComm_t comm, ncclRedOp_t ours, void* scalar, ncclDataType_t type,
                        ncclScalarResidence_t residence) {
  ncclResult_t rc = ncclSuccess;
  __typeof__(ncclRedOpCreatePreMulSum)* create;
  struct op_pair* list;
  ncclComm_t other;
  ncclRedOp_t op;
  if (!lp_other()) return;
  other = lp_other_comm("ncclRedOpCreatePreMulSum", comm, &rc);
  create = LP_OTHER(ncclRedOpCreatePreMulSum, &rc);
  if (other == NULL || create == NULL || create(&op, scalar, type, residence, other) != ncclSuccess) return;
  pthread_mutex_lock(&mutex);
  list = grown(ops, op_count, &op_room, sizeof *ops);
  if (list != NULL) {
    ops = list;
    ops[op_count++] = (struct op_pair){comm, ours, op};
  }
  pthread_mutex_unlock(&mutex);
}

/* The other library's number of an operator, ncclNumOps if it has none. end removes the entry. */
static ncclRedOp_t find_op(ncclComm_t comm, ncclRedOp_t ours, bool end) {
  ncclRedOp_t other = ncclNumOps;
  size_t i;
  pthread_mutex_lock(&mutex);
  for (i = 0; i < op_count; i++)
    if (ops[i].comm == comm && ops[i].ours == ours) {
      other = ops[i].other;
      if (end) ops[i] = ops[--op_count];
      break;
    }
  pthread_mutex_unlock(&mutex);
  return other;
}

ncclRedOp_t lp_other_op_remove(ncclComm_t comm, ncclRedOp_t ours) {
  return lp_other() ? find_op(comm, ours, true) : ncclNumOps;
}

ncclResult_t lp_other_op(const char* function, const struct lp_call* call, ncclRedOp_t* op) {
  *op = (ncclRedOp_t)call->op;
  if (call->op >= ncclNumOps && (*op = find_op(lp_comm(call->comm), *op, false)) == ncclNumOps)
    return lp_fail(ncclInvalidArgument, "%s: op %d does not exist in %s", function, call->op, lp_other_path());
  return ncclSuccess;
}

void lp_other_op_destroy(ncclComm_t comm, ncclRedOp_t op) {
  ncclResult_t rc = ncclSuccess;
  __typeof__(ncclRedOpDestroy)* destroy;
  ncclComm_t other;
  other = lp_other_comm("ncclRedOpDestroy", comm, &rc);
  destroy = LP_OTHER(ncclRedOpDestroy, &rc);
  if (other != NULL && destroy != NULL) (void)destroy(op, other); /* our operator is gone even if this fails */
}
