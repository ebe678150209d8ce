/* The group of a thread: calls that are queued until the outermost ncclGroupEnd. group_end.c runs them.
 *
 * As in NCCL, a group belongs to its thread. The first failure of a call in a group becomes the result of the group,
 * which then runs nothing. */
#include "front.h"

#include <stdlib.h>
#include <string.h>

/* The calls that frameworks usually group need no allocation. */
#define INLINE_CALLS 32

static __thread struct {
  struct lp_group group;
  uint64_t last; /* the communicator of the last call */
  struct lp_call few[INLINE_CALLS]; /* group.calls, until they are more */
  size_t room;                      /* for calls; 0: there is none yet */
} own;

struct lp_group* lp_group(void) { return &own.group; }

bool lp_group_open(void) { return own.group.depth > 0; }

ncclResult_t lp_group_note(ncclResult_t code) {
  struct lp_group* g = &own.group;
  if (g->depth > 0 && g->error == ncclSuccess && code != ncclInProgress) g->error = code;
  return code;
}

ncclResult_t lp_group_no_memory(void) {
  return lp_group_note(lp_fail(ncclSystemError, "out of memory for the calls of a group"));
}

static ncclResult_t mixed(void) {
  return lp_group_note(lp_fail(
      ncclInvalidUsage, "a group cannot both make communicators and use communicators: end the first group before"));
}

/* Makes room for another call. */
static bool make_room(void) {
  struct lp_group* g = &own.group;
  size_t room = own.room == 0 ? INLINE_CALLS : 4 * own.room;
  struct lp_call* calls = own.few;
  if (g->call_count < own.room) return true;
  if (own.room > 0) calls = realloc(g->calls != own.few ? g->calls : NULL, room * sizeof *calls);
  if (calls == NULL) return false;
  if (g->calls == own.few) memcpy(calls, own.few, sizeof own.few);
  g->calls = calls;
  own.room = room;
  return true;
}

/* A group's end either waits or does not, so all its communicators block, or none. */
static ncclResult_t fit(bool blocking) {
  enum lp_group_kind kind = blocking ? LP_GROUP_BLOCKING : LP_GROUP_NONBLOCKING;
  if (own.group.kind != LP_GROUP_UNKNOWN && own.group.kind != kind)
    return lp_fail(ncclInvalidArgument, "a group cannot hold blocking and nonblocking communicators");
  own.group.kind = kind;
  return ncclSuccess;
}

/* fit for the communicator of a call, which usually is that of the call before. */
static ncclResult_t fit_call(uint64_t comm) {
  ncclResult_t rc;
  int32_t blocking;
  if (comm == own.last) return ncclSuccess;
  rc = LP_CORE(ask, comm, LP_ASK_BLOCKING, &blocking);
  if (rc == ncclSuccess) rc = fit(blocking != 0);
  if (rc == ncclSuccess) own.last = comm;
  return rc;
}

static struct lp_pending_end* end_of(uint64_t comm) {
  size_t i;
  for (i = 0; i < own.group.end_count; i++)
    if (lp_handle(own.group.ends[i].comm) == comm) return &own.group.ends[i];
  return NULL;
}

bool lp_group_ends(uint64_t comm) { return end_of(comm) != NULL; }

/* A communicator that the group ends cannot be used later in it. */
static ncclResult_t not_ended(uint64_t comm) {
  const struct lp_pending_end* e = end_of(comm);
  if (e == NULL) return ncclSuccess;
  return lp_fail(ncclInvalidArgument, "comm has been %s earlier in this group",
                 e->how == LP_DESTROY ? "destroyed" : "finalized");
}

ncclResult_t lp_group_add_call(const struct lp_call* call) {
  struct lp_group* g = &own.group;
  ncclResult_t rc;
  if (g->init_count > 0) return mixed();
  rc = not_ended(call->comm);
  if (rc == ncclSuccess) rc = fit_call(call->comm);
  if (rc != ncclSuccess) return lp_group_note(rc);
  if (!make_room()) return lp_group_no_memory();
  g->calls[g->call_count++] = *call;
  return ncclSuccess;
}

/* Copies bytes. NULL for none, and if there is no memory. */
static void* copy(const void* from, size_t size) {
  void* to = size > 0 ? malloc(size) : NULL;
  return to != NULL ? memcpy(to, from, size) : NULL;
}

/* Copies the caller's memory that an init points to: it may be gone when the group ends. */
static bool copy_memory(struct lp_init* init) {
  size_t excluded = init->excluded * sizeof *init->exclude;
  size_t more = (size_t)init->more_ids * LP_UNIQUE_ID_BYTES;
  size_t name = init->name != NULL ? strlen(init->name) + 1 : 0;
  init->exclude = copy(init->exclude, excluded);
  init->more = copy(init->more, more);
  init->name = copy(init->name, name);
  return (init->exclude != NULL) == (excluded > 0) && (init->more != NULL) == (more > 0) &&
         (init->name != NULL) == (name > 0);
}

static void free_memory(struct lp_init* init) {
  free((void*)init->exclude);
  free((void*)init->more);
  free((void*)init->name);
}

ncclResult_t lp_group_add_inits(const struct lp_init* inits, ncclComm_t* const* out, size_t n) {
  struct lp_group* g = &own.group;
  size_t i, all = g->init_count + n;
  struct lp_init* more;
  ncclComm_t** more_out;
  ncclResult_t rc = ncclSuccess;
  if (g->call_count > 0) return mixed();
  for (i = 0; rc == ncclSuccess && i < n; i++) {
    if (inits[i].how != LP_BY_ID) rc = not_ended(inits[i].parent);
    if (rc == ncclSuccess) rc = fit(inits[i].blocking != 0);
  }
  if (rc != ncclSuccess) return lp_group_note(rc);
  if ((more = realloc(g->inits, all * sizeof *more)) == NULL) return lp_group_no_memory();
  g->inits = more;
  if ((more_out = realloc(g->out, all * sizeof *more_out)) == NULL) return lp_group_no_memory();
  g->out = more_out;
  for (i = 0; i < n; i++) {
    g->out[g->init_count] = out[i];
    g->inits[g->init_count] = inits[i];
    if (!copy_memory(&g->inits[g->init_count++])) return lp_group_no_memory();
  }
  return ncclSuccess;
}

static ncclResult_t push_end(ncclComm_t comm, int32_t how) {
  struct lp_group* g = &own.group;
  struct lp_pending_end* more = realloc(g->ends, (g->end_count + 1) * sizeof *more);
  if (more == NULL) return lp_group_no_memory();
  g->ends = more;
  g->ends[g->end_count++] = (struct lp_pending_end){comm, how};
  return ncclSuccess;
}

ncclResult_t lp_group_add_end(ncclComm_t comm, int32_t how) {
  struct lp_pending_end* before = end_of(lp_handle(comm));
  ncclResult_t rc;
  int32_t answer;
  if (before != NULL && before->how == LP_FINALIZE && how == LP_DESTROY) {
    before->how = LP_DESTROY; /* which finalizes first */
    return ncclSuccess;
  }
  if (before != NULL) return not_ended(lp_handle(comm));
  /* The core tells a rank only for a communicator that is made and has nothing in progress. */
  rc = LP_CORE(ask, lp_handle(comm), LP_ASK_RANK, &answer);
  if (rc == ncclSuccess) rc = LP_CORE(ask, lp_handle(comm), LP_ASK_BLOCKING, &answer);
  /* Destroying always waits, so it goes with both kinds of groups. */
  if (rc == ncclSuccess && how == LP_FINALIZE) rc = fit(answer != 0);
  return rc == ncclSuccess ? push_end(comm, how) : rc;
}

void lp_group_forget(ncclComm_t comm) {
  struct lp_group* g = &own.group;
  size_t i, left = 0;
  for (i = 0; i < g->call_count; i++)
    if (g->calls[i].comm != lp_handle(comm)) g->calls[left++] = g->calls[i];
  g->call_count = left;
  for (i = left = 0; i < g->end_count; i++)
    if (g->ends[i].comm != comm) g->ends[left++] = g->ends[i];
  g->end_count = left;
  if (own.last == lp_handle(comm)) own.last = 0;
}

void lp_group_reset(void) {
  struct lp_group* g = &own.group;
  size_t i;
  for (i = 0; i < g->init_count; i++) free_memory(&g->inits[i]);
  free(g->inits);
  free(g->out);
  free(g->ends);
  if (g->calls != own.few) free(g->calls);
  *g = (struct lp_group){.depth = g->depth};
  own.room = 0;
  own.last = 0;
}
