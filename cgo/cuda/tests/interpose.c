/* The interposer, as programs and the other library see it: interpose [TEST...]. Only AllReduce and AlltoAll have
 * algorithms here; all other calls are passed on. */
#include <unistd.h>

#include "peer.h"
#include "tests.h"
#include "vector.h"

static struct {
  __typeof__(peerCounts)* counts;
  __typeof__(peerFail)* fail;
  __typeof__(peerMute)* mute;
  __typeof__(peerBreak)* broken;
} peer;

static void peer_open(void) {
  /* Its symbols are local, as when Lightpath loads it. */
  void* so = dlopen(getenv("LIGHTPATH_NCCL_FALLBACK_LIB"), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  CHECK(so != NULL);
  *(void**)&peer.counts = dlsym(so, "peerCounts");
  *(void**)&peer.fail = dlsym(so, "peerFail");
  *(void**)&peer.mute = dlsym(so, "peerMute");
  *(void**)&peer.broken = dlsym(so, "peerBreak");
}

static struct peer_counts counted(void) {
  struct peer_counts c;
  peer.counts(&c);
  return c;
}

/* Calls return before their streams reach them, and run in order, on any streams. */
static void ordered(struct rank* r) {
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING), t = gpu_stream(CU_STREAM_NON_BLOCKING);
  float *a = gpu_alloc(BYTES), *b = gpu_alloc(BYTES), *c = gpu_alloc(BYTES);
  float w = (float)r->world;
  uint32_t* gate = new_gate();
  put(c, r->rank, 1);
  put(a, r->rank, 0);
  put(b, r->rank, 2);
  if (r->rank == 0) wait_for_gate(s, gate);
  OK(sum(r, c, a, s));
  OK(sum(r, a, a, s));
  OK(sum(r, b, b, t)); /* its stream reaches it first */
  if (r->rank == 0) IS(gpu.StreamQuery(s), CUDA_ERROR_NOT_READY);
  usleep(20000);
  open_gate(gate);
  IS(gpu.StreamSynchronize(t), CUDA_SUCCESS);
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
  expect(a, r->rank, w * w, w * w);
  expect(b, r->rank, 2 * w, w);
  meet();
  CHECK(counted().passed == 0 && counted().groups > 0);
}

/* A group of interposed calls, calls that are passed on, and a call on host memory. */
static void mixed(struct rank* r) {
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  float *a = gpu_alloc(BYTES), *b = gpu_alloc(BYTES), *c = gpu_alloc(BYTES), plain[2] = {1, 2}, scalar = 3;
  struct peer_counts before;
  char algorithm[] = "ring";
  struct { /* of a newer header */
    ncclCollConfig_t known;
    char more[64];
  } config = {.known = NCCL_COLLCONFIG_INITIALIZER};
  ncclRedOp_t op;
  put(a, r->rank, 1);
  put(b, r->rank, (float)r->rank);
  meet();
  before = counted();
  meet();
  config.known.size = sizeof config;
  config.known.userProfilerTag = 9;
  config.known.algSelection = algorithm;
  OK(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat, ncclScalarHostImmediate, r->comm));
  OK(ncclGroupStart());
  OK(ncclSend(b, N, ncclFloat, (r->rank + 1) % r->world, r->comm, (cudaStream_t)s));
  OK(ncclRecv(c, N, ncclFloat, (r->rank + r->world - 1) % r->world, r->comm, (cudaStream_t)s));
  OK(ncclAllReduce(a, a, N, ncclFloat, op, r->comm, (cudaStream_t)s));
  OK(ncclReduce(b, b, N, ncclFloat, op, 0, r->comm, (cudaStream_t)s)); /* passed on, with its operator */
  OK(ncclBroadcast(b, b, N, ncclFloat, 0, r->comm, (cudaStream_t)s));
  OK(ncclAllReduceConfig(a, a, 0, ncclFloat, ncclSum, r->comm, (cudaStream_t)s, &config.known));
  OK(ncclAllReduce(plain, plain, 2, ncclFloat, ncclSum, r->comm, NULL));
  OK(ncclRedOpDestroy(op, r->comm)); /* before its calls run */
  memset(algorithm, 'x', sizeof algorithm - 1);
  CHECK(counted().messages == before.messages); /* the group has not run */
  meet();
  OK(ncclGroupEnd());
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
  expect(a, r->rank, 3 * (float)r->world, 3 * (float)r->world);
  expect(c, r->rank, (float)((r->rank + r->world - 1) % r->world), 1);
  CHECK(plain[0] == (float)r->world && plain[1] == (float)(2 * r->world));
  meet();
  CHECK(counted().passed - before.passed == 2 * r->world && counted().calls - before.calls == 3 * r->world);
  CHECK(counted().size == sizeof config.known); /* of what the group has kept */
  CHECK(counted().tag == 9 && strcmp(counted().algorithm, "ring") == 0);
}

/* A group that is only simulated ends the operators that its program has destroyed. */
static void simulated(struct rank* r) {
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  float *a = gpu_alloc(BYTES), scalar = 3;
  long before = counted().operators;
  ncclRedOp_t op;
  meet();
  OK(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat, ncclScalarHostImmediate, r->comm));
  OK(ncclGroupStart());
  OK(ncclReduce(a, a, N, ncclFloat, op, 0, r->comm, (cudaStream_t)s)); /* passed on */
  OK(ncclRedOpDestroy(op, r->comm));
  OK(ncclGroupSimulateEnd(&info));
  meet();
  CHECK(counted().operators == before);
}

/* Graphs with calls on several streams, replayed between other calls. */
static void captured(struct rank* r) {
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING), t = gpu_stream(CU_STREAM_NON_BLOCKING);
  float *a = gpu_alloc(BYTES), *b = gpu_alloc(BYTES), w = (float)r->world;
  CUevent fork, join;
  CUgraphExec exec;
  int i;
  IS(gpu.EventCreate(&fork, 0), CUDA_SUCCESS);
  IS(gpu.EventCreate(&join, 0), CUDA_SUCCESS);
  put(b, r->rank, 1);
  if (r->rank > 0) OK(sum(r, b, b, s)); /* used before on some ranks only */
  else OK(ncclAllReduce(b, b, N, ncclFloat, ncclSum, r->comm, (cudaStream_t)s));
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
  meet();
  IS(gpu.StreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  IS(gpu.EventRecord(fork, s), CUDA_SUCCESS);
  IS(gpu.StreamWaitEvent(t, fork, 0), CUDA_SUCCESS);
  OK(sum(r, a, a, s));
  OK(sum(r, b, b, t));
  OK(sum(r, a, a, s));
  IS(gpu.EventRecord(join, t), CUDA_SUCCESS);
  IS(gpu.StreamWaitEvent(s, join, 0), CUDA_SUCCESS);
  exec = end_capture(s);
  meet();
  for (i = 1; i <= 4; i++) {
    put(a, r->rank, (float)i);
    put(b, r->rank, (float)(10 * i));
    IS(gpu.GraphLaunch(exec, s), CUDA_SUCCESS);
    OK(sum(r, b, b, s));
    IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
    expect(a, r->rank, (float)i * w * w, w * w);
    expect(b, r->rank, (float)(10 * i) * w * w, w * w);
  }
  IS(gpu.GraphExecDestroy(exec), CUDA_SUCCESS);
}

/* An operator's factor in device memory is read when the stream reaches the call. */
static void scaled(struct rank* r) {
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  float *a = gpu_alloc(BYTES), *there = gpu_alloc(sizeof(float)), two = 2, half = 0.5f;
  uint32_t* gate = new_gate();
  ncclRedOp_t op;
  put(a, r->rank, 2);
  gpu_copy(there, &two, sizeof two);
  OK(ncclRedOpCreatePreMulSum(&op, there, ncclFloat, ncclScalarDevice, r->comm));
  wait_for_gate(s, gate);
  OK(ncclAllReduce(a, a, N, ncclFloat, op, r->comm, (cudaStream_t)s));
  OK(ncclRedOpDestroy(op, r->comm));
  gpu_copy(there, &half, sizeof half);
  open_gate(gate);
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
  expect(a, r->rank, (float)r->world, 0.5f * (float)r->world);
}

/* Calls with wrong arguments have no effect. */
static void wrong(struct rank* r) {
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  float *a = gpu_alloc(BYTES), pageable[4] = {0};
  meet();
  if (r->rank == 0) { /* the last error belongs to the process */
    FAILS(ncclAllReduce(pageable, a, 4, ncclFloat, ncclSum, r->comm, (cudaStream_t)s), ncclInvalidArgument,
          "no device reaches");
    FAILS(ncclAllReduce(a, a, N + 1, ncclFloat, ncclSum, r->comm, (cudaStream_t)s), ncclInvalidArgument,
          "reaches beyond");
    FAILS(ncclAllReduce(a, NULL, N, ncclFloat, ncclSum, r->comm, (cudaStream_t)s), ncclInvalidArgument,
          "recvbuff is NULL");
  }
  put(a, r->rank, 1);
  OK(sum(r, a, a, s)); /* the communicator still works */
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
  expect(a, r->rank, (float)r->world, (float)r->world);
}

/* The other library refuses a message in the middle of a call: all ranks fail, and no stream hangs. */
static void refused(struct rank* r) {
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  float* a = gpu_alloc(BYTES);
  ncclResult_t rc;
  int i;
  put(a, r->rank, 1);
  OK(sum(r, a, a, s));
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
  meet();
  if (r->rank == 0) peer.fail(7);
  meet();
  for (i = 0; i < 8; i++) {
    rc = sum(r, a, a, s);
    if (rc != ncclSuccess) break;
  }
  if (rc != ncclSuccess) CHECK(strstr(ncclGetLastError(NULL), "the peer was asked to fail") != NULL);
  (void)await_failure(r->comm);
  CHECK(strstr(ncclGetLastError(NULL), "interposed: ncclSend and ncclRecv: the peer was asked to fail") != NULL);
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
  abort_comm(r);
  meet();
  peer.fail(-1);
}

/* The same for a driver that refuses in the middle of a call. */
static void unwell(struct rank* r) {
  static const char* const functions[] = {"cuLaunchKernel", "cuEventRecord", "cuStreamWaitEvent"};
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  float* a = gpu_alloc(BYTES);
  ncclComm_t comm;
  size_t i;
  for (i = 0; i < sizeof functions / sizeof *functions; i++) {
    ncclResult_t rc = ncclSuccess;
    int n;
    put(a, r->rank, 1);
    OK(ncclCommSplit(r->comm, 0, r->rank, &comm, NULL));
    OK(ncclAllReduce(a, a, N, ncclFloat, ncclSum, comm, (cudaStream_t)s));
    IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
    meet();
    if (r->rank == 0) gpu.Fail(functions[i], CUDA_ERROR_OUT_OF_MEMORY, 3);
    meet();
    for (n = 0; rc == ncclSuccess && n < 20; n++)
      rc = ncclAllReduce(a, a, N, ncclFloat, ncclSum, comm, (cudaStream_t)s);
    (void)await_failure(comm);
    meet();
    if (r->rank == 0) gpu.Fail(NULL, 0, 0);
    OK(ncclCommAbort(comm));
    IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
    meet();
  }
}

/* Streams that wait inside the other library continue after an abort. */
static void aborted(struct rank* r) {
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  float* a = gpu_alloc(BYTES);
  put(a, r->rank, 1);
  meet();
  peer.mute(true);
  OK(sum(r, a, a, s));
  OK(sum(r, a, a, s));
  usleep(20000);
  IS(gpu.StreamQuery(s), CUDA_ERROR_NOT_READY);
  meet();
  if (r->rank > 0) (void)await_failure(r->comm);
  abort_comm(r);
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
  meet();
  peer.mute(false);
}

/* The other library fails between calls: ncclCommGetAsyncError reports it, and streams continue. */
static void broken(struct rank* r) {
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  float* a = gpu_alloc(BYTES);
  put(a, r->rank, 1);
  meet();
  peer.mute(true);
  OK(sum(r, a, a, s));
  meet();
  peer.broken();
  (void)await_failure(r->comm);
  CHECK(strstr(ncclGetLastError(NULL), "the peer was asked to break") != NULL);
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
  abort_comm(r);
  meet();
  peer.mute(false);
}

/* Work on streams is done before a communicator ends. Then the other library's communicators end, too. */
static void ended(struct rank* r) {
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  float* a = gpu_alloc(BYTES);
  uint32_t* gate = new_gate();
  long before;
  pthread_t opener;
  meet();
  before = counted().destroyed;
  meet();
  put(a, r->rank, 1);
  wait_for_gate(s, gate);
  OK(sum(r, a, a, s));
  opener = open_gate_later(gate);
  OK(ncclCommDestroy(r->comm));
  r->comm = NULL;
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
  expect(a, r->rank, (float)r->world, (float)r->world);
  pthread_join(opener, NULL);
  while (counted().destroyed - before < 2 * r->world)
    usleep(1000); /* each rank has two: for calls that are passed on, and for messages */
  CHECK(counted().aborted == 0);
}

/* On planes with circuits: calls of several shapes on several streams, and in graphs; between them calls on host
 * memory, which use the same planes without the other library. */
static void circuits(struct rank* r) {
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING), t = gpu_stream(CU_STREAM_NON_BLOCKING);
  float *a = gpu_alloc(BYTES), *b = gpu_alloc(BYTES), plain = 1, w = (float)r->world;
  CUgraphExec exec;
  int i;
  for (i = 1; i <= 3; i++) {
    put(a, r->rank, (float)i);
    OK(sum(r, a, b, i % 2 == 0 ? s : t));
    OK(sum(r, b, b, s));
    IS(gpu.StreamSynchronize(s), CUDA_SUCCESS); /* the next call has no stream */
    plain = (float)i;
    OK(ncclAllReduce(&plain, &plain, 1, ncclFloat, ncclSum, r->comm, NULL));
    CHECK(plain == (float)i * w);
    expect(b, r->rank, (float)i * w * w, w * w);
  }
  put(a, r->rank, (float)r->rank);
  OK(ncclAlltoAll(a, b, N / (size_t)r->world, ncclFloat, r->comm, (cudaStream_t)s));
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
  gpu_copy(host[r->rank], b, BYTES);
  for (i = 0; i < r->world; i++) {
    int from = r->rank * (N / r->world); /* where rank i's block for this rank begins in its buffer */
    CHECK(host[r->rank][i * (N / r->world)] == (float)(i + from % 7));
  }
  meet();
  IS(gpu.StreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  OK(sum(r, a, a, s));
  OK(sum(r, a, a, s));
  exec = end_capture(s);
  meet();
  for (i = 1; i <= 3; i++) {
    put(a, r->rank, (float)i);
    put(b, r->rank, 0);
    IS(gpu.GraphLaunch(exec, s), CUDA_SUCCESS);
    OK(sum(r, b, b, s));
    IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
    expect(a, r->rank, (float)i * w * w, w * w);
    expect(b, r->rank, 0, w);
  }
  IS(gpu.GraphExecDestroy(exec), CUDA_SUCCESS);
  meet();
  CHECK(counted().passed == 0 && counted().groups > 0);
}

/* If the library cannot make the communicators that the interposer needs, calls are passed on. */
static void passed(struct rank* r) {
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  float* a = gpu_alloc(BYTES);
  OK(sum(r, a, a, s));
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
  meet();
  CHECK(counted().passed == r->world && counted().messages == 0);
}

int main(int argc, char** argv) {
  static const struct test tests[] = {
    {"ordered", 3, ordered}, {"mixed", 3, mixed}, {"simulated", 2, simulated},
    {"captured", 2, captured}, {"scaled", 2, scaled}, {"wrong", 2, wrong},
    {"ended", 2, ended}, {"refused", 3, refused}, {"unwell", 2, unwell}, {"aborted", 2, aborted}, {"broken", 2, broken},
    {"passed", 2, passed}, {"circuits", 4, circuits},
  };
  gpu_open();
  peer_open();
  run_tests(tests, sizeof tests / sizeof *tests, argc, argv);
  return 0;
}
