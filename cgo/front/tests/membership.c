/* Communicators made from others by split, shrink and grow, in groups of one thread; calls that must fail; revoke
 * and suspend; configurations by size and version. */
#include "check.h"

enum { RANKS = 4 };

static ncclComm_t world[RANKS];

/* Every communicator of the list computes the sum of its ranks' numbers. */
static void sums(ncclComm_t* comms, int n) {
  int in[8], out[8], r, ranks;
  OK(ncclGroupStart());
  for (r = 0; r < n; r++) {
    if (comms[r] == NULL) continue;
    OK(ncclCommUserRank(comms[r], &in[r]));
    OK(ncclAllReduce(&in[r], &out[r], 1, ncclInt, ncclSum, comms[r], NULL));
  }
  OK(ncclGroupEnd());
  for (r = 0; r < n; r++) {
    if (comms[r] == NULL) continue;
    OK(ncclCommCount(comms[r], &ranks));
    CHECK(out[r] == ranks * (ranks - 1) / 2);
  }
}

static void destroy(ncclComm_t* comms, int n) {
  int r;
  for (r = 0; r < n; r++)
    if (comms[r] != NULL) OK(ncclCommDestroy(comms[r]));
}

static void is(ncclComm_t comm, int rank, int ranks) {
  int n;
  OK(ncclCommUserRank(comm, &n));
  CHECK(n == rank);
  OK(ncclCommCount(comm, &n));
  CHECK(n == ranks);
}

static void split(void) {
  ncclComm_t half[RANKS], some[RANKS];
  int r, device;
  OK(ncclGroupStart());
  for (r = 0; r < RANKS; r++) OK(ncclCommSplit(world[r], r % 2, -r, &half[r], NULL));
  /* A second child of each communicator, in the same group; rank 3 is not in it. */
  for (r = 0; r < RANKS; r++) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    char name[] = "some"; /* the call copies it */
    config.commName = name, config.splitShare = 1;
    OK(ncclCommSplit(world[r], r == 3 ? NCCL_SPLIT_NOCOLOR : 5, 0, &some[r], &config));
    memset(name, '?', sizeof name - 1);
    CHECK(some[r] == NULL);
  }
  OK(ncclGroupEnd());
  for (r = 0; r < RANKS; r++) {
    is(half[r], 1 - r / 2, 2); /* keys are in the opposite order of ranks */
    OK(ncclCommCuDevice(half[r], &device));
    CHECK(device == r);
    if (r < 3) is(some[r], r, 3);
  }
  CHECK(some[3] == NULL);
  sums(half, RANKS);
  sums(some, RANKS);
  sums(world, RANKS);
  destroy(half, RANKS);
  destroy(some, RANKS);
}

static void shrink(void) {
  ncclComm_t left[2];
  int exclude[] = {2, 0}, r;
  OK(ncclGroupStart());
  for (r = 0; r < 2; r++) {
    OK(ncclCommShrink(world[2 * r + 1], exclude, 2, &left[r], NULL, NCCL_SHRINK_DEFAULT));
  }
  exclude[0] = exclude[1] = 99; /* the call copies it */
  OK(ncclGroupEnd());
  for (r = 0; r < 2; r++) is(left[r], r, 2);
  sums(left, 2);
  sums(world, RANKS);
  destroy(left, 2);
}

static void grow(void) {
  ncclComm_t all[RANKS + 2];
  ncclUniqueId id;
  int r;
  OK(ncclCommGetUniqueId(world[2], &id));
  FAILS(ncclCommGetUniqueId(world[2], &id), ncclInvalidUsage, "not been used");
  OK(ncclGroupStart());
  for (r = 0; r < RANKS; r++) OK(ncclCommGrow(world[r], RANKS + 2, r == 2 ? &id : NULL, -1, &all[r], NULL));
  for (; r < RANKS + 2; r++) OK(ncclCommGrow(NULL, RANKS + 2, &id, r, &all[r], NULL));
  OK(ncclGroupEnd());
  for (r = 0; r < RANKS + 2; r++) is(all[r], r, RANKS + 2);
  sums(all, RANKS + 2);
  destroy(all, RANKS + 2);
}

static void refused(void) {
  ncclComm_t c = world[0];
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclUniqueId id;
  int exclude[] = {1, 1};
  FAILS(ncclCommSplit(NULL, 0, 0, &c, NULL), ncclInvalidArgument, "comm is NULL");
  FAILS(ncclCommSplit((ncclComm_t)&id, 0, 0, &c, NULL), ncclInvalidArgument, "not a communicator");
  FAILS(ncclCommSplit(world[0], 0, 0, NULL, NULL), ncclInvalidArgument, "newcomm is NULL");
  FAILS(ncclCommSplit(world[0], -2, 0, &c, NULL), ncclInvalidArgument, "color -2");
  CHECK(c == NULL);
  config.splitShare = 3;
  FAILS(ncclCommSplit(world[0], 0, 0, &c, &config), ncclInvalidArgument, "splitShare 3");
  FAILS(ncclCommShrink(world[0], NULL, 1, &c, NULL, 0), ncclInvalidArgument, "excludeRanksList");
  FAILS(ncclCommShrink(world[0], exclude, 0, &c, NULL, 0), ncclInvalidArgument, "excludeRanksCount is 0");
  FAILS(ncclCommShrink(world[0], exclude, 1, &c, NULL, 2), ncclInvalidArgument, "shrinkFlags");
  FAILS(ncclCommShrink(world[0], exclude, 2, &c, NULL, 0), ncclInvalidArgument, "excludeRanksList[1] is 1");
  FAILS(ncclCommShrink(world[1], exclude, 1, &c, NULL, 0), ncclInvalidArgument, "excludeRanksList[0] is 1");
  FAILS(ncclCommGetUniqueId(world[0], NULL), ncclInvalidArgument, "uniqueId is NULL");
  FAILS(ncclCommGrow(world[0], RANKS, NULL, -1, &c, NULL), ncclInvalidArgument, "nRanks 4");
  FAILS(ncclCommGrow(world[0], RANKS + 1, NULL, 0, &c, NULL), ncclInvalidArgument, "rank is 0");
  FAILS(ncclCommGrow(NULL, RANKS + 1, NULL, RANKS, &c, NULL), ncclInvalidArgument, "uniqueId is NULL");
  FAILS(ncclCommRevoke(world[0], 1), ncclInvalidArgument, "flags are 0x1");
  FAILS(ncclCommSuspend(world[0], 0), ncclInvalidArgument, "flags are 0x0");
  FAILS(ncclCommResume(world[0]), ncclInvalidUsage, "not suspended");
  sums(world, RANKS);
}

static void suspend(void) {
  int x = 0, r;
  for (r = 0; r < RANKS; r++) OK(ncclCommSuspend(world[r], NCCL_SUSPEND_MEM));
  FAILS(ncclAllReduce(&x, &x, 1, ncclInt, ncclSum, world[0], NULL), ncclInvalidUsage, "ncclCommResume");
  for (r = 0; r < RANKS; r++) OK(ncclCommResume(world[r]));
  sums(world, RANKS);
}

static void scalable(void) {
  ncclComm_t comms[6];
  ncclUniqueId ids[3];
  int r;
  for (r = 0; r < 3; r++) OK(ncclGetUniqueId(&ids[r]));
  OK(ncclGroupStart());
  for (r = 0; r < 6; r++) OK(ncclCommInitRankScalable(&comms[r], 6, r, 3, ids, NULL));
  memset(&ids[1], 0, 2 * sizeof *ids); /* the call copies ids */
  OK(ncclGroupEnd());
  for (r = 0; r < 6; r++) is(comms[r], r, 6);
  sums(comms, 6);
  destroy(comms, 6);
  FAILS(ncclCommInitRankScalable(comms, 2, 0, 3, ids, NULL), ncclInvalidArgument, "nId is 3");
}

/* The library reads a field where the caller's header has it. Where two headers have the same size, the version
 * tells them apart. */
static void versions(void) {
  static const struct {
    size_t size;
    unsigned version;
    int refused; /* whether the library reads splitShare or shrinkShare, which is 7 */
  } cases[] = {
      {40, NCCL_VERSION(2, 17, 1), 0}, {48, NCCL_VERSION(2, 17, 1), 0},  {48, NCCL_VERSION(2, 18, 3), 1},
      {120, NCCL_VERSION(2, 17, 0), 0}, {120, NCCL_VERSION(2, 32, 3), 1}, {400, NCCL_VERSION(2, 40, 0), 1},
  };
  size_t i;
  for (i = 0; i < sizeof cases / sizeof *cases; i++) {
    union {
      ncclConfig_t config;
      char bytes[400]; /* the size that a later header may have */
    } u;
    static const ncclConfig_t fresh = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    ncclComm_t c;
    memset(&u, 0x55, sizeof u);
    u.config = fresh;
    u.config.size = cases[i].size, u.config.version = cases[i].version;
    u.config.splitShare = 7;
    OK(ncclGetUniqueId(&id));
    if (cases[i].refused) {
      FAILS(ncclCommInitRankConfig(&c, 1, id, 0, &u.config), ncclInvalidArgument, "splitShare");
    } else {
      OK(ncclCommInitRankConfig(&c, 1, id, 0, &u.config));
      OK(ncclCommDestroy(c));
    }
  }
}

static void revoke(void) {
  ncclComm_t child[RANKS];
  ncclResult_t state;
  int x = 0, r, exclude = 3;
  OK(ncclCommRevoke(world[1], NCCL_REVOKE_DEFAULT));
  FAILS(ncclAllReduce(&x, &x, 1, ncclInt, ncclSum, world[1], NULL), ncclInvalidUsage, "revoked");
  FAILS(ncclCommFinalize(world[1]), ncclInvalidUsage, "revoked");
  OK(ncclCommGetAsyncError(world[1], &state));
  CHECK(state == ncclSuccess);
  for (r = 0; r < RANKS; r++) OK(ncclCommRevoke(world[r], NCCL_REVOKE_DEFAULT)); /* a second revoke succeeds */
  OK(ncclGroupStart());
  for (r = 0; r < RANKS; r++) OK(ncclCommSplit(world[r], 0, 0, &child[r], NULL));
  OK(ncclGroupEnd());
  sums(child, RANKS);
  destroy(child, RANKS);
  OK(ncclGroupStart());
  for (r = 0; r < 3; r++) OK(ncclCommShrink(world[r], &exclude, 1, &child[r], NULL, NCCL_SHRINK_DEFAULT));
  OK(ncclGroupEnd());
  sums(child, 3);
  destroy(child, 3);
}

int main(void) {
  OK(ncclCommInitAll(world, RANKS, NULL));
  split();
  shrink();
  grow();
  refused();
  suspend();
  scalable();
  versions();
  revoke();
  destroy(world, RANKS);
  return 0;
}
