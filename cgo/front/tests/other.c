/* Which calls go to the other library: other MODE, with LIGHTPATH_NCCL_FALLBACK_LIB. */
#include "check.h"

#include <dlfcn.h>
#include <stdarg.h>

enum { RANKS = 2 };

static ncclComm_t comms[RANKS];
static char* const device = (char*)0xdead0000;

/* Checks the lines of the log since the last check. */
static void logged(const char* want) {
  static long seen;
  char got[4096] = "";
  FILE* f = fopen(getenv("FAKE_LOG"), "re");
  if (f != NULL) {
    fseek(f, seen, SEEK_SET);
    got[fread(got, 1, sizeof got - 1, f)] = '\0';
    seen = ftell(f);
    fclose(f);
  }
  if (strcmp(got, want) != 0) {
    fprintf(stderr, "the log has\n%sand not\n%s", got, want);
    exit(1);
  }
}

static void make(void) {
  ncclUniqueId id;
  int r;
  OK(ncclGetUniqueId(&id));
  OK(ncclGroupStart());
  for (r = 0; r < RANKS; r++) OK(ncclCommInitRank(&comms[r], RANKS, id, r));
  OK(ncclGroupEnd());
}

static void on_host(void) {
  float in[RANKS] = {1, 2}, out[RANKS];
  int r;
  OK(ncclGroupStart());
  for (r = 0; r < RANKS; r++) OK(ncclAllReduce(&in[r], &out[r], 1, ncclFloat, ncclSum, comms[r], NULL));
  OK(ncclGroupEnd());
  CHECK(out[0] == 3 && out[1] == 3);
}

static void elsewhere(void) {
  static _Alignas(NCCL_WIN_REQUIRED_ALIGNMENT) char page[NCCL_WIN_REQUIRED_ALIGNMENT];
  ncclWindow_t window;
  ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
  ncclSimInfo_t sim = NCCL_SIM_INFO_INITIALIZER;
  ncclComm_t child[RANKS];
  ncclRedOp_t op;
  float scalar = 2, in[RANKS] = {1, 2}, out[RANKS];
  void *p, *h;
  int r, gone = 1;
  make();
  logged("GetUniqueId\nGroupStart\nCommInitRank fake id 0 of 2\nCommInitRank fake id 1 of 2\nGroupEnd\n");
  on_host();
  logged("");
  /* A stream and device memory. */
  OK(ncclAllReduce(in, out, 4, ncclHalf, ncclMax, comms[1], (cudaStream_t)8));
  OK(ncclAllGather(device, device + 8, 3, ncclInt, comms[0], NULL));
  OK(ncclSend(device, 2, ncclChar, 1, comms[0], NULL));
  config.userProfilerTag = 9;
  config.algSelection = "ring"; /* for the other library */
  OK(ncclAllReduceConfig(device, device, 1, ncclFloat, ncclSum, comms[0], NULL, &config));
  {
    char want[300];
    snprintf(want, sizeof want,
             "AllReduce %p %p 4 6 2 on 1 0x8\nAllGather 0xdead0000 0xdead0008 3 2 on 0 (nil)\n"
             "Send 0xdead0000 2 0 to 1 on 0 (nil)\nAllReduceConfig 0xdead0000 0xdead0000 1 7 0 on 0 (nil) tag 9\n",
             (void*)in, (void*)out);
    logged(want);
  }
  OK(ncclAllReduce(device, device, 14, ncclFloat, ncclSum, comms[0], NULL));
  logged("AllReduce 0xdead0000 0xdead0000 15 7 0 on 0 (nil)\n");
  /* A group with calls for both libraries: Lightpath's run too. */
  OK(ncclGroupStart());
  for (r = 0; r < RANKS; r++) {
    OK(ncclAllReduce(&in[r], &out[r], 1, ncclFloat, ncclSum, comms[r], NULL));
    OK(ncclAllReduce(device, device, 1, ncclFloat, ncclSum, comms[r], NULL));
  }
  out[0] = 0;
  OK(ncclGroupEnd());
  CHECK(out[0] == 3);
  logged(
      "GroupStart\nAllReduce 0xdead0000 0xdead0000 1 7 0 on 0 (nil)\nAllReduce 0xdead0000 0xdead0000 1 7 0 on 1 "
      "(nil)\nGroupEnd\n");
  /* A simulated group is over in the other library, too: the next call runs. */
  OK(ncclGroupStart());
  OK(ncclAllReduce(device, device, 1, ncclFloat, ncclSum, comms[0], NULL));
  OK(ncclGroupSimulateEnd(&sim));
  CHECK(sim.estimatedTime == 1e6);
  OK(ncclGroupStart());
  OK(ncclSend(device, 2, ncclChar, 1, comms[0], NULL));
  OK(ncclGroupEnd());
  logged(
      "GroupStart\nAllReduce 0xdead0000 0xdead0000 1 7 0 on 0 (nil)\nGroupSimulateEnd\n"
      "GroupStart\nSend 0xdead0000 2 0 to 1 on 0 (nil)\nGroupEnd\n");
  /* An error of the other library has its text. */
  FAILS(ncclAllReduce(device, device, 13, ncclFloat, ncclSum, comms[0], NULL), ncclInternalError, "the fake is unwell");
  FAILS(ncclScatter(device, device, 1, ncclFloat, 0, comms[0], NULL), ncclInvalidUsage, "lacks it");
  FAILS(ncclAllReduce(device, device, 1, ncclFloat, ncclSum, (ncclComm_t)&scalar, NULL), ncclInvalidUsage,
        "no such communicator");
  /* Functions that only the other library has. */
  OK(ncclSignal(0, 5, 0, 0, comms[1], NULL));
  FAILS(ncclWaitSignal(0, NULL, comms[1], NULL), ncclInvalidUsage, "lacks it");
  logged("Signal 5 to 0 on 1\n");
  OK(ncclCommWindowRegister(comms[1], page, sizeof page, &window, NCCL_WIN_COLL_SYMMETRIC));
  FAILS(ncclPutSignal(in, 1, ncclFloat, 0, window, 0, 0, 0, 0, comms[1], NULL), ncclInvalidUsage,
        "peerWin is host memory");
  OK(ncclCommWindowDeregister(comms[1], window));
  /* Operators exist in both libraries. */
  OK(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat, ncclScalarHostImmediate, comms[0]));
  OK(ncclAllReduce(device, device, 1, ncclFloat, op, comms[0], NULL));
  OK(ncclRedOpDestroy(op, comms[0]));
  FAILS(ncclAllReduce(device, device, 1, ncclFloat, op, comms[0], NULL), ncclInvalidArgument, "does not exist");
  OK(ncclGroupStart());
  FAILS(ncclAllReduce(device, device, 1, ncclFloat, op, comms[0], NULL), ncclInvalidArgument, "does not exist");
  FAILS(ncclGroupEnd(), ncclInvalidArgument, "does not exist");
  logged("RedOpCreatePreMulSum on 0\nAllReduce 0xdead0000 0xdead0000 1 7 77 on 0 (nil)\nRedOpDestroy 77 on 0\n");
  /* Memory. */
  OK(ncclMemAlloc(&p, 100));
  CHECK(p == device);
  OK(ncclCommRegister(comms[0], p, 100, &h));
  OK(ncclCommDeregister(comms[0], h));
  OK(ncclMemFree(p));
  OK(ncclCommRegister(comms[0], in, sizeof in, &h)); /* Lightpath registers host memory */
  OK(ncclCommDeregister(comms[0], h));
  logged("MemAlloc 100\nCommRegister 0xdead0000 100 on 0\nCommDeregister 1 on 0\nMemFree 0xdead0000\n");
  /* Communicators made from others exist in both libraries. */
  OK(ncclGroupStart());
  for (r = 0; r < RANKS; r++) OK(ncclCommSplit(comms[r], r == 0 ? NCCL_SPLIT_NOCOLOR : 3, 0, &child[r], NULL));
  OK(ncclGroupEnd());
  CHECK(child[0] == NULL && child[1] != NULL);
  OK(ncclSignal(0, 6, 0, 0, child[1], NULL));
  OK(ncclCommDestroy(child[1]));
  logged("GetUniqueId\nCommInitRank fake id 0 of 1\nSignal 6 to 0 on 0\nCommDestroy 0\n");
  OK(ncclCommFinalize(comms[0]));
  OK(ncclCommDestroy(comms[0]));
  OK(ncclCommAbort(comms[1]));
  logged("CommFinalize 0\nCommDestroy 0\nCommDestroy 1\n");
  OK(ncclCommInitAll(comms, RANKS, NULL));
  OK(ncclCommRevoke(comms[1], NCCL_REVOKE_DEFAULT));
  logged("GetUniqueId\nCommInitAll 2 first on 0\nCommRevoke 1 flags 0\n");
  /* A shrink stops the parent there before it makes the child, also in a library that cannot revoke. */
  OK(ncclCommInitAll(comms, RANKS, NULL));
  OK(ncclCommShrink(comms[0], &gone, 1, &child[0], NULL, NCCL_SHRINK_ABORT));
  logged("GetUniqueId\nCommInitAll 2 first on 0\nCommRevoke 0 flags 0\nGetUniqueId\nCommInitRank fake id 0 of 1\n");
  OK(ncclCommInitAll(comms, RANKS, NULL));
  setenv("FAKE_NO_REVOKE", "1", 1);
  OK(ncclCommShrink(comms[0], &gone, 1, &child[0], NULL, NCCL_SHRINK_ABORT));
  logged("GetUniqueId\nCommInitAll 2 first on 0\nCommDestroy 0\nGetUniqueId\nCommInitRank fake id 0 of 1\n");
  OK(ncclCommDestroy(comms[0]));
  logged("");
}

int main(int argc, char** argv) {
  const char* mode = argc > 1 ? argv[1] : "";
  ncclUniqueId id;
  float out = 0;
  CHECK(dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) != NULL);
  if (strcmp(mode, "both") == 0) {
    elsewhere();
  } else if (strcmp(mode, "none") == 0) {
    make();
    on_host();
    FAILS(ncclAllReduce(&out, &out, 1, ncclFloat, ncclSum, comms[0], (cudaStream_t)8), ncclInvalidArgument, "stream");
    FAILS(ncclDevCommCreate(comms[0], NULL, NULL), ncclInvalidUsage, "not implemented");
    OK(ncclSignal(0, 0, 0, 0, comms[0], NULL));
    FAILS(ncclSignal(0, 0, 0, 0, comms[0], (cudaStream_t)8), ncclInvalidArgument, "stream");
    logged("");
  } else if (strcmp(mode, "all") == 0) {
    make();
    OK(ncclAllReduce(&out, &out, 1, ncclFloat, ncclSum, comms[0], NULL));
    CHECK(out == 0);
  } else if (strcmp(mode, "no-device") == 0) {
    make();
    on_host();
    FAILS(ncclAllReduce(device, device, 1, ncclFloat, ncclSum, comms[0], NULL), ncclInvalidUsage, "the fake is unwell");
  } else if (getenv("LIGHTPATH_FALLBACK") != NULL) { /* a wrong setting is an error at once; MODE is its text */
    FAILS(ncclGetUniqueId(&id), ncclInvalidUsage, mode);
  } else { /* a library that cannot be used is an error; MODE is its text */
    OK(ncclGetUniqueId(&id));
    FAILS(ncclCommInitRank(&comms[0], 1, id, 0), ncclInvalidUsage, mode);
  }
  return 0;
}
