/* Communicators that do not block. One thread makes the calls of all ranks, and polls as frameworks do. */
#include "check.h"

#include <time.h>

enum { RANKS = 3 };

static ncclComm_t comms[RANKS];
static ncclConfig_t quick = NCCL_CONFIG_INITIALIZER;

/* Polls until the communicator is no longer in progress, and returns its state. */
static ncclResult_t ready(ncclComm_t comm) {
  const struct timespec moment = {0, 1000 * 1000};
  ncclResult_t state;
  int i;
  for (i = 0; i < 60 * 1000; i++) {
    OK(ncclCommGetAsyncError(comm, &state));
    if (state != ncclInProgress) return state;
    nanosleep(&moment, NULL);
  }
  CHECK(!"ready in a minute");
  return ncclInternalError;
}

static void make(void) {
  ncclUniqueId id;
  ncclResult_t state;
  int r, n;
  OK(ncclGetUniqueId(&id));
  for (r = 0; r < RANKS; r++) {
    IS(ncclCommInitRankConfig(&comms[r], RANKS, id, r, &quick), ncclInProgress);
    CHECK(comms[r] != NULL);
    if (r == 0) {
      /* The other ranks have not joined, so it is not ready. Every call but ncclCommGetAsyncError and
       * ncclCommAbort fails. */
      OK(ncclCommGetAsyncError(comms[0], &state));
      CHECK(state == ncclInProgress);
      FAILS(ncclCommCount(comms[0], &n), ncclInvalidArgument, "ncclCommGetAsyncError");
      FAILS(ncclCommDestroy(comms[0]), ncclInvalidArgument, "ncclCommGetAsyncError");
      FAILS(ncclCommFinalize(comms[0]), ncclInvalidArgument, "ncclCommGetAsyncError");
      FAILS(ncclAllReduce(&n, &n, 1, ncclInt, ncclSum, comms[0], NULL), ncclInvalidArgument, "ncclCommGetAsyncError");
    }
  }
  for (r = 0; r < RANKS; r++) OK(ready(comms[r]));
  for (r = 0; r < RANKS; r++) {
    OK(ncclCommUserRank(comms[r], &n));
    CHECK(n == r);
  }
}

static void calls(void) {
  int in[RANKS], out[RANKS], r;
  for (r = 0; r < RANKS; r++) {
    in[r] = r + 1;
    IS(ncclAllReduce(&in[r], &out[r], 1, ncclInt, ncclSum, comms[r], NULL), ncclInProgress);
    if (r == 0) {
      FAILS(ncclAllReduce(&in[0], &out[0], 1, ncclInt, ncclSum, comms[0], NULL), ncclInvalidArgument,
            "ncclCommGetAsyncError");
      FAILS(ncclCommSplit(comms[0], 0, 0, &(ncclComm_t){NULL}, NULL), ncclInvalidArgument, "ncclCommGetAsyncError");
    }
  }
  for (r = 0; r < RANKS; r++) {
    OK(ready(comms[r]));
    CHECK(out[r] == 6);
  }
  /* A group of all ranks. Calls copy operators, so a program may destroy its own while the group runs. */
  OK(ncclGroupStart());
  for (r = 0; r < RANKS; r++) {
    int twice = 2;
    ncclRedOp_t op;
    OK(ncclRedOpCreatePreMulSum(&op, &twice, ncclInt, ncclScalarHostImmediate, comms[r]));
    OK(ncclAllReduce(&in[r], &out[r], 1, ncclInt, op, comms[r], NULL));
    OK(ncclRedOpDestroy(op, comms[r]));
  }
  IS(ncclGroupEnd(), ncclInProgress);
  for (r = 0; r < RANKS; r++) {
    OK(ready(comms[r]));
    CHECK(out[r] == 12);
  }
}

static void children(void) {
  ncclComm_t child[RANKS], blocking;
  ncclConfig_t patient = NCCL_CONFIG_INITIALIZER;
  int r, n, in = 4, out = 0;
  for (r = 0; r < RANKS; r++) {
    /* With an empty configuration, or none, a new communicator blocks or not as its parent does. */
    ncclConfig_t nothing = NCCL_CONFIG_INITIALIZER;
    IS(ncclCommSplit(comms[r], r == 1 ? NCCL_SPLIT_NOCOLOR : 1, 0, &child[r], r == 0 ? &nothing : NULL),
       ncclInProgress);
    CHECK((child[r] == NULL) == (r == 1));
  }
  for (r = 0; r < RANKS; r++) {
    OK(ready(comms[r]));
    if (r != 1) OK(ready(child[r]));
  }
  OK(ncclCommUserRank(child[2], &n));
  CHECK(n == 1);
  for (r = 0; r < RANKS; r += 2) IS(ncclCommFinalize(child[r]), ncclInProgress);
  for (r = 0; r < RANKS; r += 2) {
    OK(ready(child[r]));
    OK(ncclCommDestroy(child[r]));
  }
  /* A communicator that blocks, from a parent that does not. */
  patient.blocking = 1;
  n = 0;
  OK(ncclGroupStart());
  for (r = 0; r < RANKS; r++) OK(ncclCommSplit(comms[r], r, 0, &child[r], &patient));
  FAILS(ncclCommSplit(comms[0], 0, 0, &blocking, &quick), ncclInvalidArgument, "blocking and nonblocking");
  IS(ncclGroupEnd(), ncclInvalidArgument);
  OK(ncclGroupStart());
  for (r = 0; r < RANKS; r++) OK(ncclCommSplit(comms[r], r, 0, &child[r], &patient));
  OK(ncclGroupEnd());
  for (r = 0; r < RANKS; r++) {
    OK(ncclAllReduce(&in, &out, 1, ncclInt, ncclSum, child[r], NULL));
    CHECK(out == 4);
  }
  /* A group takes communicators of one kind only. */
  OK(ncclGroupStart());
  OK(ncclAllReduce(&in, &out, 1, ncclInt, ncclSum, child[0], NULL));
  FAILS(ncclAllReduce(&in, &out, 1, ncclInt, ncclSum, comms[0], NULL), ncclInvalidArgument, "blocking and nonblocking");
  IS(ncclGroupEnd(), ncclInvalidArgument);
  for (r = 0; r < RANKS; r++) OK(ncclCommDestroy(child[r]));
}

/* Aborts while a rank waits for ranks that never join, and for calls that they never make. */
static void aborts(void) {
  ncclComm_t lonely;
  ncclUniqueId id;
  int x = 0, r, exclude = 2;
  OK(ncclGetUniqueId(&id));
  IS(ncclCommInitRankConfig(&lonely, 2, id, 1, &quick), ncclInProgress);
  OK(ncclCommAbort(lonely));
  FAILS(ncclCommAbort(lonely), ncclInvalidArgument, "destroyed");
  IS(ncclCommShrink(comms[0], &exclude, 1, &lonely, NULL, NCCL_SHRINK_DEFAULT), ncclInProgress);
  OK(ncclCommAbort(lonely));
  OK(ready(comms[0])); /* the parent has not failed */
  IS(ncclAllReduce(&x, &x, 1, ncclInt, ncclSum, comms[0], NULL), ncclInProgress);
  IS(ncclCommRevoke(comms[0], NCCL_REVOKE_DEFAULT), ncclInProgress);
  OK(ready(comms[0]));
  for (r = 0; r < RANKS; r++) OK(ncclCommAbort(comms[r]));
}

/* If a rank never joins, the state of the ranks that waited for it is an error. */
static void never_comes(void) {
  ncclComm_t lonely;
  ncclUniqueId id;
  OK(ncclGetUniqueId(&id));
  IS(ncclCommInitRankConfig(&lonely, 2, id, 0, &quick), ncclInProgress);
  IS(ready(lonely), ncclTimeout);
  CHECK(strstr(ncclGetLastError(lonely), "rank 1 never arrived") != NULL);
  OK(ncclCommAbort(lonely));
}

/* NCCL_COMM_BLOCKING overrides the configuration, also a missing one. A value other than 0 and 1 is ignored. */
static void environment(void) {
  static const struct {
    const char* value;
    int configured, waits; /* configured is 2 for no configuration */
  } cases[] = {{"0", 2, 0}, {"0", 1, 0}, {"1", 0, 1}, {"1", 2, 1}, {"2", 0, 0}, {"2", 2, 1}, {"", 0, 0}};
  size_t i;
  for (i = 0; i < sizeof cases / sizeof *cases; i++) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    const ncclResult_t want = cases[i].waits ? ncclSuccess : ncclInProgress;
    ncclUniqueId id;
    ncclComm_t c, child;
    config.blocking = cases[i].configured;
    CHECK(setenv("NCCL_COMM_BLOCKING", cases[i].value, 1) == 0);
    OK(ncclGetUniqueId(&id));
    IS(ncclCommInitRankConfig(&c, 1, id, 0, cases[i].configured == 2 ? NULL : &config), want);
    OK(ready(c));
    IS(ncclCommSplit(c, 0, 0, &child, NULL), want);
    OK(ready(c));
    OK(ready(child));
    OK(ncclCommDestroy(child));
    OK(ncclCommDestroy(c));
  }
  CHECK(setenv("NCCL_COMM_BLOCKING", "0", 1) == 0);
  IS(ncclCommInitAll(comms, RANKS, NULL), ncclInProgress);
  for (i = 0; i < RANKS; i++) {
    OK(ready(comms[i]));
    OK(ncclCommDestroy(comms[i]));
  }
  CHECK(unsetenv("NCCL_COMM_BLOCKING") == 0);
}

int main(int argc, char** argv) {
  (void)argv;
  quick.blocking = 0;
  if (argc > 1) { /* with a short LIGHTPATH_TIMEOUT */
    never_comes();
    return 0;
  }
  environment();
  make();
  calls();
  children();
  aborts();
  return 0;
}
