/* Groups: nesting, several communicators of a thread, creation in groups, and errors. */
#include "check.h"

#include <pthread.h>

enum { RANKS = 3 };

static ncclComm_t comms[RANKS];

static void make_in_group(void) {
  ncclUniqueId id;
  int r, n;
  OK(ncclGetUniqueId(&id));
  OK(ncclGroupStart());
  for (r = 0; r < RANKS; r++) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    char name[] = "trio"; /* the call copies it */
    config.commName = name;
    OK(ncclCommInitRankConfig(&comms[r], RANKS, id, r, &config));
    memset(name, '?', sizeof name - 1);
    CHECK(comms[r] == NULL);
  }
  OK(ncclGroupEnd());
  for (r = 0; r < RANKS; r++) {
    OK(ncclCommUserRank(comms[r], &n));
    CHECK(n == r);
    OK(ncclCommCount(comms[r], &n));
    CHECK(n == RANKS);
  }
}

static void nested(void) {
  int in[RANKS], out[RANKS] = {0}, r;
  OK(ncclGroupStart());
  for (r = 0; r < RANKS; r++) {
    in[r] = r + 1;
    OK(ncclGroupStart());
    OK(ncclAllReduce(&in[r], &out[r], 1, ncclInt, ncclSum, comms[r], NULL));
    OK(ncclGroupEnd());
    CHECK(out[r] == 0); /* only the outermost ncclGroupEnd runs the calls */
  }
  OK(ncclGroupEnd());
  for (r = 0; r < RANKS; r++) CHECK(out[r] == 6);
}

/* More calls than the group keeps without an allocation, all in flight at once. */
static void exchange(void) {
  enum { N = 40 };
  static int in[RANKS][N], out[RANKS][N];
  int r, i;
  OK(ncclGroupStart());
  for (i = 0; i < N; i++)
    for (r = 0; r < RANKS; r++) {
      in[r][i] = 1000 * r + i;
      OK(ncclSend(&in[r][i], 1, ncclInt, (r + 1) % RANKS, comms[r], NULL));
      OK(ncclRecv(&out[r][i], 1, ncclInt, (r + RANKS - 1) % RANKS, comms[r], NULL));
    }
  OK(ncclGroupEnd());
  for (r = 0; r < RANKS; r++)
    for (i = 0; i < N; i++) CHECK(out[r][i] == 1000 * ((r + RANKS - 1) % RANKS) + i);
}

/* A failed call fails its group, which runs nothing. The next group is not affected. */
static void individual(void) {
  int in[RANKS] = {1, 1, 1}, out[RANKS] = {0}, r, wrong;
  for (wrong = 0; wrong < 3; wrong++) {
    OK(ncclGroupStart());
    for (r = 0; r < RANKS; r++) OK(ncclAllReduce(&in[r], &out[r], 1, ncclInt, ncclSum, comms[r], NULL));
    if (wrong == 1) FAILS(ncclBroadcast(in, out, 1, ncclInt, RANKS, comms[0], NULL), ncclInvalidArgument, "root");
    if (wrong == 2) FAILS(ncclAllReduce(in, out, 1, ncclInt, ncclSum, NULL, NULL), ncclInvalidArgument, "comm");
    for (r = 0; r < RANKS; r++) OK(ncclAllReduce(&in[r], &out[r], 1, ncclInt, ncclSum, comms[r], NULL));
    IS(ncclGroupEnd(), wrong ? ncclInvalidArgument : ncclSuccess);
    for (r = 0; r < RANKS; r++) {
      CHECK(out[r] == (wrong ? 0 : RANKS));
      out[r] = 0;
    }
  }
  nested();
}

/* So does one that is refused before the core sees it, whatever function it is of. */
static void refused(void) {
  ncclCollConfig_t call = NCCL_COLLCONFIG_INITIALIZER;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclComm_t comm = comms[0], made = NULL;
  ncclUniqueId id;
  int in[RANKS] = {1, 1, 1}, out[RANKS] = {0}, r, wrong;
  call.magic = config.magic = 3;
  OK(ncclGetUniqueId(&id));
  for (wrong = 0; wrong < 12; wrong++) {
    ncclResult_t rc = ncclSuccess;
    OK(ncclGroupStart());
    for (r = 0; r < RANKS; r++) OK(ncclAllReduce(&in[r], &out[r], 1, ncclInt, ncclSum, comms[r], NULL));
    switch (wrong) {
      case 0: rc = ncclAllReduceConfig(in, out, 1, ncclInt, ncclSum, comm, NULL, &call); break;
      case 1: rc = ncclPutSignal(in, 1, ncclInt, 1, NULL, 0, 0, 0, 0, comm, NULL); break;
      case 2: rc = ncclSignal(1, 1, 0, 0, comm, NULL); break;
      case 3: rc = ncclSignal(1, 0, 0, 0, NULL, NULL); break;
      case 4: rc = ncclWaitSignal(0, NULL, comm, NULL); break;
      case 5: rc = ncclCommInitRank(&made, 1, id, 4); break;
      case 6: rc = ncclCommInitRankConfig(&made, 1, id, 0, &config); break;
      case 7: rc = ncclCommInitRankScalable(&made, 1, 0, 1, NULL, NULL); break;
      case 8: rc = ncclCommInitAll(&made, 0, NULL); break;
      case 9: rc = ncclCommSplit(comm, 0, 0, &made, &config); break;
      case 10: rc = ncclCommShrink(comm, NULL, 0, &made, NULL, NCCL_SHRINK_DEFAULT); break;
      case 11: rc = ncclCommGrow(comm, RANKS + 1, NULL, 0, &made, NULL); break;
    }
    CHECK(rc == ncclInvalidArgument);
    IS(ncclGroupEnd(), ncclInvalidArgument);
    for (r = 0; r < RANKS; r++) CHECK(out[r] == 0);
  }
  nested();
}

/* A group that creates and uses communicators fails and runs nothing. The next group is not affected. */
static void mixing(void) {
  ncclUniqueId id;
  ncclComm_t other;
  int in = 1, out = 7;
  OK(ncclGetUniqueId(&id));
  OK(ncclGroupStart());
  OK(ncclAllReduce(&in, &out, 1, ncclInt, ncclSum, comms[0], NULL));
  FAILS(ncclCommInitRank(&other, 1, id, 0), ncclInvalidUsage, "group");
  IS(ncclGroupEnd(), ncclInvalidUsage);
  CHECK(out == 7);
  OK(ncclGroupStart());
  OK(ncclCommInitRank(&other, 1, id, 0));
  FAILS(ncclAllReduce(&in, &out, 1, ncclInt, ncclSum, comms[0], NULL), ncclInvalidUsage, "group");
  IS(ncclGroupEnd(), ncclInvalidUsage);
  CHECK(other == NULL);
  nested();
}

/* More calls than a group holds without allocating. */
static void many(void) {
  enum { EACH = 60 };
  int in[RANKS][EACH], out[RANKS][EACH], r, i;
  OK(ncclGroupStart());
  for (i = 0; i < EACH; i++)
    for (r = 0; r < RANKS; r++) {
      in[r][i] = r * i;
      OK(ncclAllReduce(&in[r][i], &out[r][i], 1, ncclInt, ncclSum, comms[r], NULL));
    }
  OK(ncclGroupEnd());
  for (i = 0; i < EACH; i++)
    for (r = 0; r < RANKS; r++) CHECK(out[r][i] == RANKS * (RANKS - 1) / 2 * i);
}

static void simulate(void) {
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  int in = 1, out = 7;
  OK(ncclGroupStart());
  OK(ncclAllReduce(&in, &out, 1, ncclInt, ncclSum, comms[0], NULL));
  OK(ncclGroupStart());
  OK(ncclGroupSimulateEnd(&info)); /* an inner group does not end the outer one */
  CHECK(info.estimatedTime < 0);
  OK(ncclGroupSimulateEnd(&info));
  FAILS(ncclGroupEnd(), ncclInvalidUsage, "no group");
  CHECK(out == 7 && info.estimatedTime > 0);
  OK(ncclGroupStart());
  OK(ncclGroupSimulateEnd(&info));
  CHECK(info.estimatedTime == 0);
  info.magic = 3;
  OK(ncclGroupStart());
  FAILS(ncclGroupSimulateEnd(&info), ncclInvalidArgument, "NCCL_SIM_INFO_INITIALIZER");
  FAILS(ncclGroupSimulateEnd(&info), ncclInvalidUsage, "no group");
  OK(ncclGroupStart());
  FAILS(ncclGroupSimulateEnd(NULL), ncclInvalidArgument, "simInfo is NULL");
  FAILS(ncclGroupEnd(), ncclInvalidUsage, "no group");
}

/* A group belongs to its thread: this thread has none while the main thread has one open. */
static void* outside(void* arg) {
  (void)arg;
  FAILS(ncclGroupEnd(), ncclInvalidUsage, "no group");
  return NULL;
}

static void threads(void) {
  pthread_t t;
  OK(ncclGroupStart());
  CHECK(pthread_create(&t, NULL, outside, NULL) == 0 && pthread_join(t, NULL) == 0);
  OK(ncclGroupEnd());
}

int main(void) {
  int r;
  FAILS(ncclGroupEnd(), ncclInvalidUsage, "no group");
  OK(ncclGroupStart());
  OK(ncclGroupEnd()); /* an empty group */
  make_in_group();
  nested();
  exchange();
  many();
  individual();
  refused();
  mixing();
  simulate();
  threads();
  for (r = 0; r < RANKS; r++) OK(ncclCommDestroy(comms[r]));
  return 0;
}
