/* Wrong arguments: each gets its own error that names the argument, and no call crashes or hangs. */
#include "check.h"

#include <limits.h>

static ncclComm_t comm;
static float in[8], out[8];

static void creation(void) {
  ncclUniqueId id, junk;
  ncclComm_t c = (ncclComm_t)&in, all[2];
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  int devices[2] = {0, -1};
  memset(&junk, 0x5a, sizeof junk);
  OK(ncclGetUniqueId(&id));
  FAILS(ncclCommInitRank(NULL, 1, id, 0), ncclInvalidArgument, "comm is NULL");
  FAILS(ncclCommInitRank(&c, 0, id, 0), ncclInvalidArgument, "nranks");
  FAILS(ncclCommInitRank(&c, -4, id, 0), ncclInvalidArgument, "nranks");
  FAILS(ncclCommInitRank(&c, 2, id, 2), ncclInvalidArgument, "rank");
  FAILS(ncclCommInitRank(&c, 2, id, -1), ncclInvalidArgument, "rank");
  FAILS(ncclCommInitRank(&c, INT_MAX, id, 0), ncclInvalidArgument, "ranks");
  FAILS(ncclCommInitRank(&c, 1, junk, 0), ncclInvalidArgument, "commId");
  CHECK(c == NULL); /* a failed creation leaves no handle */
  FAILS(ncclCommInitAll(all, 0, NULL), ncclInvalidArgument, "ndev");
  FAILS(ncclCommInitAll(NULL, 1, NULL), ncclInvalidArgument, "comm");
  FAILS(ncclCommInitAll(all, 2, devices), ncclInvalidArgument, "devlist[1]");
  FAILS(ncclCommInitRankScalable(&c, 1, 0, 1, NULL, NULL), ncclInvalidArgument, "commIds");
  FAILS(ncclCommInitRankScalable(&c, 1, 0, 0, &id, NULL), ncclInvalidArgument, "nId");
  config.magic = 1;
  FAILS(ncclCommInitRankConfig(&c, 1, id, 0, &config), ncclInvalidArgument, "NCCL_CONFIG_INITIALIZER");
  config.magic = NCCL_API_MAGIC;
  config.size = 8;
  FAILS(ncclCommInitRankConfig(&c, 1, id, 0, &config), ncclInvalidArgument, "NCCL_CONFIG_INITIALIZER");
  config.size = sizeof config;
  config.blocking = 2;
  FAILS(ncclCommInitRankConfig(&c, 1, id, 0, &config), ncclInvalidArgument, "blocking");
  config.blocking = 1;
  config.minCTAs = 4, config.maxCTAs = 2;
  FAILS(ncclCommInitRankConfig(&c, 1, id, 0, &config), ncclInvalidArgument, "minCTAs");
}

/* Configurations of older headers: shorter, and with another version. */
static void old_config(void) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclUniqueId id;
  ncclComm_t c;
  int n = -1;
  OK(ncclGetUniqueId(&id));
  config.size = 48, config.version = NCCL_VERSION(2, 18, 3);
  config.trafficClass = 0x7777; /* was padding */
  config.commName = (const char*)1;
  OK(ncclCommInitRankConfig(&c, 1, id, 0, &config));
  OK(ncclCommDestroy(c));
  OK(ncclGetUniqueId(&id));
  OK(ncclCommInitRankScalable(&c, 1, 0, 1, &id, NULL));
  OK(ncclCommCuDevice(c, &n));
  CHECK(n == 0);
  OK(ncclCommDestroy(c));
}

static void handles(void) {
  const uintptr_t foreign[] = {1, 0x10, (uintptr_t)in, 0x7f0012345678, UINTPTR_MAX, 0x4c50000000000000};
  ncclResult_t state;
  size_t i;
  int n;
  for (i = 0; i < sizeof foreign / sizeof *foreign; i++) {
    ncclComm_t c = (ncclComm_t)foreign[i];
    FAILS(ncclAllReduce(in, out, 1, ncclFloat, ncclSum, c, NULL), ncclInvalidArgument, "comm");
    FAILS(ncclCommCount(c, &n), ncclInvalidArgument, "comm");
    FAILS(ncclCommGetAsyncError(c, &state), ncclInvalidArgument, "comm");
    FAILS(ncclCommFinalize(c), ncclInvalidArgument, "comm");
    FAILS(ncclCommDestroy(c), ncclInvalidArgument, "comm");
    FAILS(ncclCommAbort(c), ncclInvalidArgument, "comm");
    CHECK(ncclTeamWorld(c).nRanks == 0);
  }
  FAILS(ncclCommCount(NULL, &n), ncclInvalidArgument, "comm is NULL");
  FAILS(ncclCommCount(comm, NULL), ncclInvalidArgument, "count is NULL");
  FAILS(ncclCommUserRank(comm, NULL), ncclInvalidArgument, "rank is NULL");
  FAILS(ncclCommGetAsyncError(comm, NULL), ncclInvalidArgument, "asyncError is NULL");
  FAILS(ncclCommRegister(comm, NULL, 4, (void**)&state), ncclInvalidArgument, "buff");
  OK(ncclCommGetAsyncError(comm, &state));
  CHECK(state == ncclSuccess);
  /* ncclMemFree(NULL) succeeds, as free(NULL) does. */
  OK(ncclCommDestroy(NULL));
  OK(ncclCommAbort(NULL));
  OK(ncclCommFinalize(NULL));
}

static void calls(void) {
  FAILS(ncclAllReduce(in, out, 1, ncclFloat, ncclSum, NULL, NULL), ncclInvalidArgument, "comm is NULL");
  FAILS(ncclAllReduce(NULL, out, 1, ncclFloat, ncclSum, comm, NULL), ncclInvalidArgument, "send");
  FAILS(ncclAllReduce(in, NULL, 1, ncclFloat, ncclSum, comm, NULL), ncclInvalidArgument, "recv");
  FAILS(ncclAllReduce(in, out, 1, ncclNumTypes, ncclSum, comm, NULL), ncclInvalidArgument, "type");
  FAILS(ncclAllReduce(in, out, 1, (ncclDataType_t)-1, ncclSum, comm, NULL), ncclInvalidArgument, "datatype -1 is none");
  FAILS(ncclAllReduce(in, out, 1, (ncclDataType_t)256, ncclSum, comm, NULL), ncclInvalidArgument,
        "datatype 256 is none");
  FAILS(ncclAllReduce(in, out, 1, ncclFloat, ncclNumOps, comm, NULL), ncclInvalidArgument, "op");
  FAILS(ncclAllReduce(in, out, 1, ncclFloat, (ncclRedOp_t)-1, comm, NULL), ncclInvalidArgument, "operator -1 is none");
  FAILS(ncclAllReduce(in, out, SIZE_MAX, ncclFloat, ncclSum, comm, NULL), ncclInvalidArgument, "count");
  FAILS(ncclAllReduce(in, out, (size_t)-1 / 4 + 2, ncclFloat, ncclSum, comm, NULL), ncclInvalidArgument, "count");
  FAILS(ncclBroadcast(in, out, 1, ncclFloat, -1, comm, NULL), ncclInvalidArgument, "root");
  FAILS(ncclReduce(in, out, 1, ncclFloat, ncclSum, 1, comm, NULL), ncclInvalidArgument, "root");
  FAILS(ncclGather(in, out, 1, ncclFloat, 99, comm, NULL), ncclInvalidArgument, "root");
  FAILS(ncclScatter(in, out, 1, ncclFloat, INT_MIN, comm, NULL), ncclInvalidArgument, "root");
  FAILS(ncclSend(in, 1, ncclFloat, 1, comm, NULL), ncclInvalidArgument, "peer");
  FAILS(ncclRecv(out, 1, ncclFloat, -7, comm, NULL), ncclInvalidArgument, "peer");
  FAILS(ncclAllReduce(in, out, 1, ncclFloat, ncclSum, comm, (cudaStream_t)in), ncclInvalidArgument,
        "stream is not NULL, and the communicator has no device");
}

static void configs(void) {
  ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
  ncclConfigExt_t option = {NULL, {0x5eed, 1}, {.i = 3}};
  in[0] = 5;
  OK(ncclAllReduceConfig(in, out, 1, ncclFloat, ncclSum, comm, NULL, NULL));
  config.ext = &option;
  OK(ncclAllReduceConfig(in, out, 1, ncclFloat, ncclSum, comm, NULL, &config));
  CHECK(out[0] == 5);
  config.algSelection = "tree";
  FAILS(ncclBroadcastConfig(in, out, 1, ncclFloat, 0, comm, NULL, &config), ncclInvalidArgument, "algSelection");
  config.forceAlgSelection = 0;
  OK(ncclBroadcastConfig(in, out, 1, ncclFloat, 0, comm, NULL, &config));
  config.minCTAs = 8, config.maxCTAs = 1;
  FAILS(ncclAllGatherConfig(in, out, 1, ncclFloat, comm, NULL, &config), ncclInvalidArgument, "minCTAs");
  config.magic = 0;
  FAILS(ncclAlltoAllConfig(in, out, 1, ncclFloat, comm, NULL, &config), ncclInvalidArgument, "magic");
}

static void nothing_and_one_rank(void) {
  in[0] = 4;
  OK(ncclAllReduce(NULL, NULL, 0, ncclFloat, ncclSum, comm, NULL));
  OK(ncclBcast(NULL, 0, ncclFloat, 0, comm, NULL));
  OK(ncclReduceScatter(in, out, 1, ncclFloat, ncclAvg, comm, NULL));
  CHECK(out[0] == 4);
  OK(ncclBcast(in, 8, ncclFloat, 0, comm, NULL));
  CHECK(in[0] == 4);
}

static void after_destroy(void) {
  ncclComm_t gone = comm;
  int n;
  OK(ncclCommFinalize(comm));
  FAILS(ncclAllReduce(in, out, 1, ncclFloat, ncclSum, comm, NULL), ncclInvalidArgument, "comm");
  OK(ncclCommDestroy(comm));
  FAILS(ncclAllReduce(in, out, 1, ncclFloat, ncclSum, gone, NULL), ncclInvalidArgument, "destroyed");
  FAILS(ncclCommCount(gone, &n), ncclInvalidArgument, "destroyed");
  FAILS(ncclCommDestroy(gone), ncclInvalidArgument, "destroyed");
  FAILS(ncclCommAbort(gone), ncclInvalidArgument, "destroyed");
}

int main(void) {
  ncclUniqueId id;
  creation();
  old_config();
  OK(ncclGetUniqueId(&id));
  OK(ncclCommInitRank(&comm, 1, id, 0));
  handles();
  calls();
  configs();
  nothing_and_one_rank();
  after_destroy();
  return 0;
}
