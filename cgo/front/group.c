/* Groups: calls of one thread that are queued and run together by the outermost end.
 *
 * Group state is the thread's, as in NCCL. A call that is wrong in itself (ncclInvalidArgument) has
 * no effect and leaves its group intact; any other failure becomes the result of the group, which
 * then runs nothing. */
#include "fallback.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* As many calls as frameworks usually group are kept without allocating. */
#define INLINE_CALLS 32

struct pending_init {
  struct lp_init init;
  ncclComm_t* out;
};

struct pending_end {
  ncclComm_t comm;
  enum lp_end how;
};

static __thread struct {
  int depth;
  ncclResult_t error; /* the first, ncclSuccess while there is none */
  enum { UNKNOWN, BLOCKING, NONBLOCKING } kind; /* of its communicators */
  uint64_t last;                                /* the communicator of the last call */
  struct lp_call few[INLINE_CALLS];
  struct lp_call* many; /* NULL while few suffices; holds all of them otherwise */
  size_t calls, call_room;
  struct pending_init* inits;
  size_t init_count, init_room;
  struct pending_end* ends; /* one per communicator */
  size_t end_count, end_room;
} group;

bool lp_group_open(void) { return group.depth > 0; }

ncclResult_t lp_group_note(ncclResult_t code) {
  if (group.depth > 0 && group.error == ncclSuccess && code != ncclInvalidArgument && code != ncclInProgress)
    group.error = code;
  return code;
}

static ncclResult_t no_memory(void) {
  return lp_group_note(lp_fail(ncclSystemError, "out of memory for the calls of a group"));
}

static ncclResult_t mixed(void) {
  return lp_group_note(lp_fail(
      ncclInvalidUsage, "a group cannot both make communicators and use communicators: end the first group before"));
}

/* Moves the calls to memory that has room for more. */
static bool grow_calls(void) {
  size_t room = 4 * (group.many != NULL ? group.call_room : INLINE_CALLS);
  struct lp_call* bigger = realloc(group.many, room * sizeof *bigger);
  if (bigger == NULL) return false;
  if (group.many == NULL) memcpy(bigger, group.few, sizeof group.few);
  group.many = bigger;
  group.call_room = room;
  return true;
}

/* Communicators that block and that do not have nothing to say to each other in one group: its end
 * either waits or does not. */
static ncclResult_t fit(bool blocking) {
  int kind = blocking ? BLOCKING : NONBLOCKING;
  if (group.kind != UNKNOWN && (int)group.kind != kind)
    return lp_fail(ncclInvalidArgument, "a group cannot hold blocking and nonblocking communicators");
  group.kind = kind;
  return ncclSuccess;
}

/* The same for the communicator of a call, which is mostly that of the call before. */
static ncclResult_t fit_call(uint64_t comm) {
  char err[LP_ERR_BYTES] = "";
  const struct lp_core* core;
  ncclResult_t rc;
  int32_t blocking;
  if (comm == group.last) return ncclSuccess;
  core = lp_core(&rc);
  if (core == NULL) return rc;
  rc = lp_result(core->blocking(comm, &blocking, err, sizeof err), err);
  if (rc == ncclSuccess) rc = fit(blocking != 0);
  if (rc == ncclSuccess) group.last = comm;
  return rc;
}

static struct pending_end* end_of(uint64_t comm) {
  size_t i;
  for (i = 0; i < group.end_count; i++)
    if (lp_handle(group.ends[i].comm) == comm) return &group.ends[i];
  return NULL;
}

/* What ends in a group cannot be used later in it. */
static ncclResult_t not_ended(uint64_t comm) {
  const struct pending_end* e = end_of(comm);
  if (e == NULL) return ncclSuccess;
  return lp_fail(ncclInvalidArgument, "comm has been %s earlier in this group",
                 e->how == LP_DESTROY ? "destroyed" : "finalized");
}

ncclResult_t lp_group_add_call(const struct lp_call* call) {
  size_t room = group.many != NULL ? group.call_room : INLINE_CALLS;
  ncclResult_t rc;
  if (group.init_count > 0) return mixed();
  rc = not_ended(call->comm);
  if (rc == ncclSuccess) rc = fit_call(call->comm);
  if (rc != ncclSuccess) return lp_group_note(rc);
  if (group.calls == room && !grow_calls()) return no_memory();
  (group.many != NULL ? group.many : group.few)[group.calls++] = *call;
  return ncclSuccess;
}

/* Copies bytes; NULL for none, and where there is no memory. */
static void* copy(const void* from, size_t size) {
  void* to = size > 0 ? malloc(size) : NULL;
  return to != NULL ? memcpy(to, from, size) : NULL;
}

/* What an init points to is the caller's and need not outlive its call. */
static bool own(struct lp_init* init) {
  size_t excluded = init->excluded * sizeof *init->exclude;
  size_t more = (size_t)init->more_ids * LP_UNIQUE_ID_BYTES;
  size_t name = init->name != NULL ? strlen(init->name) + 1 : 0;
  init->exclude = copy(init->exclude, excluded);
  init->more = copy(init->more, more);
  init->name = copy(init->name, name);
  return (init->exclude != NULL) == (excluded > 0) && (init->more != NULL) == (more > 0) &&
         (init->name != NULL) == (name > 0);
}

static void disown(struct lp_init* init) {
  free((void*)init->exclude);
  free((void*)init->more);
  free((void*)init->name);
}

ncclResult_t lp_group_add_inits(const struct lp_init* inits, ncclComm_t* const* out, size_t n) {
  size_t i;
  ncclResult_t rc = ncclSuccess;
  if (group.calls > 0) return mixed();
  for (i = 0; rc == ncclSuccess && i < n; i++) {
    if (inits[i].how != LP_BY_ID) rc = not_ended(inits[i].parent);
    if (rc == ncclSuccess) rc = fit(inits[i].blocking != 0);
  }
  if (rc != ncclSuccess) return rc;
  if (group.init_count + n > group.init_room) {
    size_t room = 2 * (group.init_count + n);
    struct pending_init* bigger = realloc(group.inits, room * sizeof *bigger);
    if (bigger == NULL) return no_memory();
    group.inits = bigger;
    group.init_room = room;
  }
  for (i = 0; i < n; i++) {
    struct pending_init* p = &group.inits[group.init_count++];
    p->init = inits[i];
    p->out = out[i];
    if (!own(&p->init)) return no_memory();
  }
  return ncclSuccess;
}

static ncclResult_t push_end(ncclComm_t comm, enum lp_end how) {
  if (group.end_count == group.end_room) {
    size_t room = 2 * group.end_room + 8;
    struct pending_end* bigger = realloc(group.ends, room * sizeof *bigger);
    if (bigger == NULL) return no_memory();
    group.ends = bigger;
    group.end_room = room;
  }
  group.ends[group.end_count++] = (struct pending_end){comm, how};
  return ncclSuccess;
}

ncclResult_t lp_group_add_end(ncclComm_t comm, enum lp_end how) {
  char err[LP_ERR_BYTES] = "";
  struct pending_end* before = end_of(lp_handle(comm));
  const struct lp_core* core;
  ncclResult_t rc;
  int32_t answer;
  if (before != NULL && before->how == LP_FINALIZE && how == LP_DESTROY) {
    before->how = LP_DESTROY; /* which finalizes first */
    return ncclSuccess;
  }
  if (before != NULL) return not_ended(lp_handle(comm));
  core = lp_core(&rc);
  if (core == NULL) return lp_group_note(rc);
  /* Whoever has a rank is made, and has nothing in progress. */
  rc = lp_result(core->rank(lp_handle(comm), &answer, err, sizeof err), err);
  if (rc == ncclSuccess) rc = lp_result(core->blocking(lp_handle(comm), &answer, err, sizeof err), err);
  /* Destroying always waits, so that it goes with both kinds. */
  if (rc == ncclSuccess && how == LP_FINALIZE) rc = fit(answer != 0);
  return rc == ncclSuccess ? push_end(comm, how) : rc;
}

void lp_group_forget(ncclComm_t comm) {
  struct lp_call* calls = group.many != NULL ? group.many : group.few;
  size_t i, left = 0;
  lp_interpose_forget(comm);
  for (i = 0; i < group.calls; i++)
    if (calls[i].comm != lp_handle(comm)) calls[left++] = calls[i];
  group.calls = left;
  for (i = left = 0; i < group.end_count; i++)
    if (group.ends[i].comm != comm) group.ends[left++] = group.ends[i];
  group.end_count = left;
  if (group.last == lp_handle(comm)) group.last = 0;
}

/* Empties the group, which is then as if never used. */
static void reset(void) {
  size_t i;
  lp_interpose_forget(NULL);
  for (i = 0; i < group.init_count; i++) disown(&group.inits[i].init);
  free(group.inits);
  free(group.many);
  free(group.ends);
  group.many = NULL;
  group.inits = NULL;
  group.ends = NULL;
  group.calls = group.call_room = group.init_count = group.init_room = group.end_count = group.end_room = 0;
  group.error = ncclSuccess;
  group.kind = UNKNOWN;
  group.last = 0;
}

static ncclResult_t run_inits(void) {
  struct lp_init* inits = malloc(group.init_count * sizeof *inits);
  ncclComm_t** out = malloc(group.init_count * sizeof *out);
  ncclResult_t rc;
  size_t i;
  if (inits != NULL && out != NULL) {
    for (i = 0; i < group.init_count; i++) {
      inits[i] = group.inits[i].init;
      out[i] = group.inits[i].out;
    }
    rc = lp_init_now(inits, out, group.init_count);
  } else {
    rc = no_memory();
  }
  free(inits);
  free(out);
  return rc;
}

static ncclResult_t run_calls(void) {
  char err[LP_ERR_BYTES];
  ncclResult_t why;
  const struct lp_core* core = lp_core(&why);
  if (core == NULL) return why;
  err[0] = '\0';
  return lp_result(core->run(group.many != NULL ? group.many : group.few, group.calls, err, sizeof err), err);
}

/* Waits for what goes on in the background, and returns how that has ended. LIGHTPATH_TIMEOUT bounds
 * it, whatever it is. */
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

/* Whether something of a group of nonblocking communicators goes on when those that it destroys are gone. */
static bool goes_on(void) {
  const struct lp_call* calls = group.many != NULL ? group.many : group.few;
  size_t i;
  for (i = 0; i < group.calls; i++)
    if (end_of(calls[i].comm) == NULL) return true;
  return group.init_count > 0;
}

/* Ends communicators, all of them, after a group with result rc. Their calls have failed where it has,
 * but a program that has asked for their end will not ask again. */
static ncclResult_t run_ends(ncclResult_t rc) {
  ncclResult_t why;
  const struct lp_core* core = lp_core(&why);
  size_t i;
  if (core == NULL) return why;
  if (rc == ncclInProgress && !goes_on()) rc = ncclSuccess;
  for (i = 0; i < group.end_count; i++) {
    ncclResult_t settled = group.kind == NONBLOCKING ? settle(core, group.ends[i].comm) : ncclSuccess;
    ncclResult_t ended = lp_end_now(group.ends[i].comm, group.ends[i].how);
    if (settled != ncclSuccess) ended = settled;
    if (rc == ncclSuccess || (rc == ncclInProgress && ended != ncclSuccess)) rc = ended;
  }
  return rc;
}

LP_API(ncclResult_t, ncclGroupStart, (void)) {
  if (lp_forked()) return lp_fail_forked();
  group.depth++;
  return ncclSuccess;
}

LP_API(ncclResult_t, ncclGroupEnd, (void)) {
  ncclResult_t rc;
  if (group.depth == 0) return lp_fail(ncclInvalidUsage, "ncclGroupEnd: no group of this thread is open");
  if (group.depth > 1) {
    group.depth--;
    return ncclSuccess;
  }
  /* The depth falls first: what runs now is no longer inside the group. */
  group.depth = 0;
  rc = lp_fallback_group_end(); /* what it runs goes on while ours does */
  if (rc == ncclSuccess) rc = group.error;
  rc = lp_interpose_group_end(rc);
  if (rc == ncclSuccess && group.init_count > 0) rc = run_inits();
  if (rc == ncclSuccess && group.calls > 0) rc = run_calls();
  if (group.error == ncclSuccess && group.end_count > 0) rc = run_ends(rc);
  if (group.kind != UNKNOWN || group.init_count > 0 || group.end_count > 0 || group.error != ncclSuccess) reset();
  return rc;
}

/* What the calls of the group would take. */
static ncclResult_t simulate(float* us) {
  char err[LP_ERR_BYTES] = "";
  const struct lp_core* core;
  ncclResult_t rc;
  double estimate;
  *us = 0;
  if (group.error != ncclSuccess) return group.error;
  if (group.init_count > 0)
    return lp_fail(ncclInvalidUsage, "ncclGroupSimulateEnd: the group makes communicators, which cannot be simulated");
  if (group.end_count > 0)
    return lp_fail(ncclInvalidUsage, "ncclGroupSimulateEnd: the group ends communicators, which cannot be simulated");
  if (group.calls == 0) return ncclSuccess;
  core = lp_core(&rc);
  if (core == NULL) return rc;
  rc = lp_result(core->simulate(group.many != NULL ? group.many : group.few, group.calls, &estimate, err, sizeof err), err);
  if (rc == ncclSuccess) *us = (float)estimate;
  return rc;
}

/* The group ends as if it had run, but nothing of it does. */
LP_API(ncclResult_t, ncclGroupSimulateEnd, (ncclSimInfo_t* simInfo)) {
  static const ncclSimInfo_t fresh = NCCL_SIM_INFO_INITIALIZER;
  ncclResult_t rc = ncclSuccess;
  float us;
  if (group.depth == 0) return lp_fail(ncclInvalidUsage, "ncclGroupSimulateEnd: no group of this thread is open");
  if (simInfo == NULL)
    rc = lp_fail(ncclInvalidArgument, "ncclGroupSimulateEnd: simInfo is NULL");
  else if (simInfo->size < fresh.size || simInfo->magic != fresh.magic)
    rc = lp_fail(ncclInvalidArgument,
                 "ncclGroupSimulateEnd: simInfo is not initialized with NCCL_SIM_INFO_INITIALIZER (size %zu, magic 0x%x)",
                 simInfo->size, simInfo->magic);
  if (--group.depth > 0) return rc;
  if (rc == ncclSuccess) {
    rc = simulate(&us);
    if (rc == ncclSuccess) simInfo->estimatedTime = us;
  }
  reset();
  return rc;
}
