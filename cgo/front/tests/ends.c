/* Groups in which communicators end. They end after the calls and creations of the group; an abort takes effect at
 * once. */
#include "check.h"

#include <stdbool.h>
#include <time.h>

enum { RANKS = 3 };

static ncclComm_t comms[RANKS];
static int in[RANKS], out[RANKS];

static void make(ncclComm_t* c, bool blocking) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclUniqueId id;
  ncclResult_t state;
  int r;
  config.blocking = blocking;
  OK(ncclGetUniqueId(&id));
  OK(ncclGroupStart());
  for (r = 0; r < RANKS; r++) OK(ncclCommInitRankConfig(&c[r], RANKS, id, r, &config));
  IS(ncclGroupEnd(), blocking ? ncclSuccess : ncclInProgress);
  for (r = 0; r < RANKS; r++) {
    const struct timespec moment = {0, 1000 * 1000};
    do {
      OK(ncclCommGetAsyncError(c[r], &state));
      nanosleep(&moment, NULL);
    } while (state == ncclInProgress);
    OK(state);
  }
}

static void sum(ncclComm_t* c) {
  int r;
  for (r = 0; r < RANKS; r++) {
    in[r] = r + 1, out[r] = 0;
    OK(ncclAllReduce(&in[r], &out[r], 1, ncclInt, ncclSum, c[r], NULL));
  }
}

static void summed(void) {
  int r;
  for (r = 0; r < RANKS; r++) CHECK(out[r] == 6);
}

static void gone(ncclComm_t* c) {
  int r, n;
  for (r = 0; r < RANKS; r++) FAILS(ncclCommCount(c[r], &n), ncclInvalidArgument, "destroyed");
}

/* Calls made before ncclCommFinalize or ncclCommDestroy in a group have their results. */
static void after_calls(bool blocking) {
  int r, n;
  make(comms, blocking);
  OK(ncclGroupStart());
  sum(comms);
  for (r = 0; r < RANKS; r++) OK(ncclCommFinalize(comms[r]));
  for (r = 0; r < RANKS; r++) OK(ncclCommUserRank(comms[r], &n)); /* the communicators still exist */
  IS(ncclGroupEnd(), blocking ? ncclSuccess : ncclInProgress);
  summed();
  if (blocking) FAILS(ncclAllReduce(in, out, 1, ncclInt, ncclSum, comms[0], NULL), ncclInvalidArgument, "finalized");
  OK(ncclGroupStart());
  if (blocking)
    for (r = 0; r < RANKS; r++) OK(ncclCommDestroy(comms[r]));
  OK(ncclGroupEnd());
  if (blocking) gone(comms);
  make(comms, blocking);
  OK(ncclGroupStart());
  sum(comms);
  for (r = 0; r < RANKS; r++) {
    if (r == 1) OK(ncclCommFinalize(comms[r]));
    OK(ncclCommDestroy(comms[r]));
  }
  OK(ncclGroupEnd()); /* waits: a destroyed communicator cannot be polled */
  summed();
  gone(comms);
}

/* One group may create and end communicators, also a parent of new ones, and communicators of several kinds. */
static void while_making(void) {
  ncclComm_t other[RANKS], half[RANKS], left[2], again[2];
  ncclUniqueId id;
  int r, n, exclude = 1;
  make(comms, true);
  OK(ncclGetUniqueId(&id));
  OK(ncclGroupStart());
  for (r = 0; r < RANKS; r++) {
    OK(ncclCommInitRank(&other[r], RANKS, id, RANKS - 1 - r));
    OK(ncclCommSplit(comms[r], r / 2, 0, &half[r], NULL));
    if (r != 1) {
      OK(ncclCommShrink(comms[r], &exclude, 1, &left[r / 2], NULL, NCCL_SHRINK_DEFAULT));
      OK(ncclCommShrink(comms[r], &exclude, 1, &again[r / 2], NULL, NCCL_SHRINK_DEFAULT));
    }
    OK(ncclCommDestroy(comms[r]));
  }
  OK(ncclGroupEnd());
  for (r = 0; r < RANKS; r++) {
    OK(ncclCommUserRank(other[r], &n));
    CHECK(n == RANKS - 1 - r);
    OK(ncclCommCount(half[r], &n));
    CHECK(n == (r < 2 ? 2 : 1));
  }
  for (r = 0; r < 2; r++) {
    OK(ncclCommCount(left[r], &n));
    CHECK(n == 2);
    OK(ncclCommUserRank(again[r], &n));
    CHECK(n == r && again[r] != left[r]);
  }
  OK(ncclGroupStart());
  sum(other);
  OK(ncclGroupEnd());
  summed();
  OK(ncclGroupStart());
  for (r = 0; r < 2; r++) OK(ncclAllReduce(&in[r], &out[r], 1, ncclInt, ncclSum, again[r], NULL));
  OK(ncclGroupEnd());
  CHECK(out[0] == 3 && out[1] == 3);
  OK(ncclGroupStart());
  for (r = 0; r < RANKS; r++) {
    OK(ncclCommDestroy(other[r]));
    OK(ncclCommDestroy(half[r]));
  }
  for (r = 0; r < 2; r++) {
    OK(ncclCommDestroy(left[r]));
    OK(ncclCommDestroy(again[r]));
  }
  OK(ncclGroupEnd());
  gone(other);
}

static void refused(void) {
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  ncclUniqueId id;
  ncclComm_t c;
  int r;
  make(comms, true);
  OK(ncclGroupStart());
  sum(comms);
  OK(ncclCommFinalize(comms[0]));
  FAILS(ncclCommFinalize(comms[0]), ncclInvalidArgument, "finalized earlier in this group");
  FAILS(ncclAllReduce(in, out, 1, ncclInt, ncclSum, comms[0], NULL), ncclInvalidArgument, "finalized earlier");
  OK(ncclCommDestroy(comms[0]));
  FAILS(ncclCommDestroy(comms[0]), ncclInvalidArgument, "destroyed earlier in this group");
  FAILS(ncclCommFinalize(comms[0]), ncclInvalidArgument, "destroyed earlier in this group");
  FAILS(ncclCommDestroy((ncclComm_t)&id), ncclInvalidArgument, "not a communicator");
  OK(ncclCommDestroy(NULL));
  IS(ncclGroupSimulateEnd(&info), ncclInvalidArgument); /* the group has failed */
  OK(ncclGroupStart());
  OK(ncclCommDestroy(comms[0]));
  FAILS(ncclCommSplit(comms[0], 0, 0, &c, NULL), ncclInvalidArgument, "destroyed earlier in this group");
  IS(ncclGroupEnd(), ncclInvalidArgument);
  OK(ncclGroupStart());
  OK(ncclCommDestroy(comms[0]));
  FAILS(ncclGroupSimulateEnd(&info), ncclInvalidUsage, "ends communicators");
  /* Those groups have no effect; nor has the next one. */
  OK(ncclGetUniqueId(&id));
  OK(ncclGroupStart());
  sum(comms);
  OK(ncclCommDestroy(comms[0]));
  FAILS(ncclCommInitRank(&c, 1, id, 0), ncclInvalidUsage, "group");
  IS(ncclGroupEnd(), ncclInvalidUsage);
  OK(ncclGroupStart());
  sum(comms);
  OK(ncclGroupEnd());
  summed();
  for (r = 0; r < RANKS; r++) OK(ncclCommDestroy(comms[r]));
}

/* An abort does not wait; the group continues without the aborted communicator. */
static void aborts(void) {
  ncclComm_t other[RANKS];
  ncclResult_t state;
  int x = 0, r;
  make(comms, true);
  make(other, true);
  OK(ncclGroupStart());
  OK(ncclAllReduce(&x, &x, 1, ncclInt, ncclSum, other[1], NULL)); /* the other ranks make no such call */
  sum(comms);
  OK(ncclCommDestroy(other[1]));
  OK(ncclCommAbort(other[1]));
  FAILS(ncclCommAbort(other[1]), ncclInvalidArgument, "destroyed");
  do {
    OK(ncclCommGetAsyncError(other[0], &state)); /* while the group is open */
  } while (state == ncclSuccess);
  CHECK(state == ncclRemoteError && strstr(ncclGetLastError(NULL), "rank 1 aborted") != NULL);
  OK(ncclGroupEnd());
  summed();
  OK(ncclCommAbort(other[0]));
  OK(ncclCommDestroy(other[2]));
  OK(ncclGroupStart());
  for (r = 0; r < RANKS; r++) OK(ncclCommDestroy(comms[r]));
  OK(ncclGroupEnd());
}

int main(void) {
  after_calls(true);
  after_calls(false);
  while_making();
  refused();
  aborts();
  return 0;
}
