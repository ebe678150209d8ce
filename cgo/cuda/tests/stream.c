/* Calls on streams and in graphs, and their errors. stream [NAME...] runs some of the tests. */
#include <unistd.h>

#include "tests.h"
#include "vector.h"

/* Calls return before their streams reach them, and run in the stream's order. */
static void ordered(struct rank *r) {
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  float *a = gpu_alloc(BYTES), *b = gpu_alloc(BYTES), *c = gpu_alloc(BYTES);
  uint32_t *gate = new_gate();
  put(a, r->rank, -1);
  put(b, r->rank, -1);
  put(c, r->rank, 1);
  wait_for_gate(s, gate);
  OK(sum(r, c, a, s)); /* a = world */
  OK(sum(r, a, b, s)); /* b = world * world */
  IS(gpu.StreamQuery(s), CUDA_ERROR_NOT_READY);
  expect(b, r->rank, -1, 1); /* the stream has not started */
  open_gate(gate);
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
  expect(a, r->rank, (float)r->world, (float)r->world);
  expect(b, r->rank, (float)(r->world * r->world), (float)(r->world * r->world));
}

/* A communicator's calls run in the order in which they were made, also if a later call's stream is free first. */
static void issued(struct rank *r) {
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING), t = gpu_stream(CU_STREAM_NON_BLOCKING);
  float *a = gpu_alloc(BYTES), *b = gpu_alloc(BYTES);
  uint32_t *gate = new_gate();
  put(a, r->rank, 1);
  put(b, r->rank, 2);
  if (r->rank % 2 == 0) wait_for_gate(s, gate); /* on some ranks */
  OK(sum(r, a, a, s));
  OK(sum(r, b, b, t));
  usleep(20000);
  open_gate(gate);
  IS(gpu.StreamSynchronize(t), CUDA_SUCCESS);
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
  expect(a, r->rank, (float)r->world, (float)r->world);
  expect(b, r->rank, 2 * (float)r->world, (float)r->world);
}

/* A group on two streams is a barrier across them. It mixes host memory of all kinds with device memory. */
static void grouped(struct rank *r) {
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING), t = gpu_stream(CU_STREAM_NON_BLOCKING);
  float *a = gpu_alloc(BYTES), *b = gpu_alloc(BYTES), plain[4] = {1, 2, 3, 4};
  CUdeviceptr managed;
  float *m;
  uint32_t *gate = new_gate();
  int i;
  IS(gpu.MemAllocManaged(&managed, 4 * sizeof *m, 1), CUDA_SUCCESS);
  m = (float *)(uintptr_t)managed;
  for (i = 0; i < 4; i++) m[i] = (float)i;
  put(a, r->rank, 1);
  put(b, r->rank, 3);
  wait_for_gate(t, gate);
  OK(ncclGroupStart());
  OK(sum(r, a, a, s));
  OK(sum(r, b, b, t));
  OK(ncclAllReduce(m, m, 4, ncclFloat, ncclSum, r->comm, (cudaStream_t)t));
  OK(ncclGroupEnd());
  usleep(20000);
  IS(gpu.StreamQuery(s), CUDA_ERROR_NOT_READY);
  open_gate(gate);
  /* Memory that is not page-locked may make the caller wait until the stream reaches the call. */
  OK(ncclGroupStart());
  OK(sum(r, a, a, s));
  OK(ncclAllReduce(plain, plain, 4, ncclFloat, ncclSum, r->comm, (cudaStream_t)s));
  OK(ncclGroupEnd());
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
  IS(gpu.StreamSynchronize(t), CUDA_SUCCESS);
  expect(a, r->rank, (float)(r->world * r->world), (float)(r->world * r->world));
  expect(b, r->rank, 3 * (float)r->world, (float)r->world);
  for (i = 0; i < 4; i++) CHECK(plain[i] == (float)((i + 1) * r->world) && m[i] == (float)(i * r->world));
}

/* Calls are captured on two streams that join, and replayed between other calls. */
static void captured(struct rank *r) {
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING), t = gpu_stream(CU_STREAM_NON_BLOCKING);
  float *a = gpu_alloc(BYTES), *b = gpu_alloc(BYTES), *c = gpu_alloc(BYTES);
  CUevent fork, join;
  CUgraphExec exec;
  int i;
  IS(gpu.EventCreate(&fork, 0), CUDA_SUCCESS);
  IS(gpu.EventCreate(&join, 0), CUDA_SUCCESS);
  put(c, r->rank, 1);
  OK(sum(r, c, c, s)); /* the communicator has been used before */
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
  meet(); /* a capture forbids calls of other threads */
  IS(gpu.StreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  IS(gpu.EventRecord(fork, s), CUDA_SUCCESS);
  IS(gpu.StreamWaitEvent(t, fork, 0), CUDA_SUCCESS);
  OK(sum(r, a, a, s));
  OK(sum(r, b, b, t));
  OK(ncclGroupStart());
  OK(ncclSend(a, N, ncclFloat, (r->rank + 1) % r->world, r->comm, (cudaStream_t)s));
  OK(ncclRecv(c, N, ncclFloat, (r->rank + r->world - 1) % r->world, r->comm, (cudaStream_t)s));
  OK(ncclGroupEnd());
  IS(gpu.EventRecord(join, t), CUDA_SUCCESS);
  IS(gpu.StreamWaitEvent(s, join, 0), CUDA_SUCCESS);
  exec = end_capture(s);
  meet();
  for (i = 1; i <= 5; i++) {
    put(a, r->rank, (float)i);
    put(b, r->rank, (float)(10 * i));
    IS(gpu.GraphLaunch(exec, s), CUDA_SUCCESS);
    OK(sum(r, b, b, s));
    IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
    expect(a, r->rank, (float)(i * r->world), (float)r->world);
    expect(c, r->rank, (float)(i * r->world), (float)r->world);
    expect(b, r->rank, (float)(10 * i * r->world * r->world), (float)(r->world * r->world));
  }
  IS(gpu.GraphExecDestroy(exec), CUDA_SUCCESS);
}

/* A stream that waits for a rank continues after an abort. */
static void aborted(struct rank *r) {
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  float *a = gpu_alloc(BYTES);
  put(a, r->rank, 1);
  if (r->rank == 0) {
    OK(sum(r, a, a, s));
    usleep(50000);
    IS(gpu.StreamQuery(s), CUDA_ERROR_NOT_READY);
    abort_comm(r);
    IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
  } else {
    (void)await_failure(r->comm);
    abort_comm(r);
  }
}

/* A graph of a failed communicator does not block a stream, however late and often it is replayed. */
static void orphaned(struct rank *r) {
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  float *a = gpu_alloc(BYTES);
  CUgraphExec exec;
  int i;
  put(a, r->rank, 1);
  meet(); /* a capture forbids calls of other threads */
  IS(gpu.StreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  OK(sum(r, a, a, s));
  exec = end_capture(s);
  meet();
  IS(gpu.GraphLaunch(exec, s), CUDA_SUCCESS);
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
  expect(a, r->rank, (float)r->world, (float)r->world);
  meet();
  if (r->rank == 0) {
    (void)await_failure(r->comm);
    for (i = 0; i < 2; i++) {
      usleep(1200000); /* longer than a watcher looks at a communicator without work */
      IS(gpu.GraphLaunch(exec, s), CUDA_SUCCESS);
      IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
    }
  }
  abort_comm(r);
  IS(gpu.GraphExecDestroy(exec), CUDA_SUCCESS);
}

/* Launched calls complete before a communicator ends. */
static void ended(struct rank *r) {
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  float *a = gpu_alloc(BYTES);
  uint32_t *gate = new_gate();
  pthread_t opener;
  put(a, r->rank, 1);
  wait_for_gate(s, gate);
  OK(sum(r, a, a, s));
  opener = open_gate_later(gate);
  if (r->rank == 0) OK(ncclCommFinalize(r->comm));
  OK(ncclCommDestroy(r->comm));
  r->comm = NULL;
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
  expect(a, r->rank, (float)r->world, (float)r->world);
  pthread_join(opener, NULL);
}

/* Signals wait for their streams, too. */
static void signalled(struct rank *r) {
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  uint32_t *gate = new_gate();
  ncclWaitSignalDesc_t one = {.opCnt = 1, .peer = 0};
  if (r->rank == 0) {
    wait_for_gate(s, gate);
    OK(ncclSignal(1, 0, 0, 0, r->comm, (cudaStream_t)s));
    meet();
    open_gate(gate);
  } else {
    OK(ncclWaitSignal(1, &one, r->comm, (cudaStream_t)s));
    usleep(20000);
    IS(gpu.StreamQuery(s), CUDA_ERROR_NOT_READY);
    meet();
  }
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
  meet();
}

/* Operators of the user: the factor is read when the call is made. In device or page-locked memory it is read when
 * the stream reaches the call, and at every replay. */
static void scaled(struct rank *r) {
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  float *a = gpu_alloc(BYTES), half = 0.5f, quarter = 0.25f, two = 2, *there = gpu_alloc(sizeof half), *locked;
  uint32_t *gate = new_gate();
  ncclRedOp_t op, other;
  CUgraph graph;
  CUgraphExec exec;
  put(a, r->rank, 2);
  OK(ncclRedOpCreatePreMulSum(&op, &half, ncclFloat, ncclScalarHostImmediate, r->comm));
  OK(ncclAllReduce(a, a, N, ncclFloat, op, r->comm, (cudaStream_t)s));
  OK(ncclRedOpDestroy(op, r->comm));
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
  expect(a, r->rank, (float)r->world, 0.5f * (float)r->world);

  IS(gpu.MemHostAlloc((void **)&locked, sizeof *locked, 0), CUDA_SUCCESS);
  OK(ncclRedOpCreatePreMulSum(&op, there, ncclFloat, ncclScalarDevice, r->comm));
  OK(ncclRedOpCreatePreMulSum(&other, locked, ncclFloat, ncclScalarDevice, r->comm));
  put(a, r->rank, 2);
  gpu_copy(there, &half, sizeof half);
  *locked = 1;
  wait_for_gate(s, gate);
  OK(ncclAllReduce(a, a, N, ncclFloat, op, r->comm, (cudaStream_t)s));
  OK(ncclAllReduce(a, a, N, ncclFloat, other, r->comm, (cudaStream_t)s));
  gpu_copy(there, &quarter, sizeof quarter);
  *locked = 3;
  open_gate(gate);
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
  expect(a, r->rank, 1.5f * (float)(r->world * r->world), 0.75f * (float)(r->world * r->world));

  meet(); /* a capture forbids calls of other threads */
  IS(gpu.StreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  OK(ncclAllReduce(a, a, N, ncclFloat, op, r->comm, (cudaStream_t)s));
  IS(gpu.StreamEndCapture(s, &graph), CUDA_SUCCESS);
  OK(ncclRedOpDestroy(op, r->comm));
  OK(ncclRedOpDestroy(other, r->comm));
  IS(gpu.GraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
  IS(gpu.GraphDestroy(graph), CUDA_SUCCESS);
  meet();
  put(a, r->rank, 1);
  IS(gpu.GraphLaunch(exec, s), CUDA_SUCCESS); /* a quarter */
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
  expect(a, r->rank, 0.25f * (float)r->world, 0.25f * (float)r->world);
  put(a, r->rank, 1);
  gpu_copy(there, &two, sizeof two);
  IS(gpu.GraphLaunch(exec, s), CUDA_SUCCESS);
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
  expect(a, r->rank, 2 * (float)r->world, 2 * (float)r->world);
  IS(gpu.GraphExecDestroy(exec), CUDA_SUCCESS);
}

/* Default streams are those of the communicator's device, whatever context the thread has. */
static void defaults(struct rank *r) {
  CUstream streams[] = {NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};
  float *a = gpu_alloc(BYTES);
  CUcontext other, now;
  size_t i;
  IS(gpu.DevicePrimaryCtxRetain(&other, (r->device + r->world) % 8), CUDA_SUCCESS);
  for (i = 0; i < 2 * sizeof streams / sizeof *streams; i++) {
    CUstream s = streams[i / 2];
    CUcontext current = i % 2 == 0 ? other : NULL;
    put(a, r->rank, 1);
    meet();
    IS(gpu.CtxSetCurrent(current), CUDA_SUCCESS);
    OK(sum(r, a, a, s));
    IS(gpu.CtxGetCurrent(&now), CUDA_SUCCESS);
    CHECK(now == current);
    gpu_use(r->device);
    IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
    expect(a, r->rank, (float)r->world, (float)r->world);
  }
}

/* Calls with wrong arguments have no effect. */
static void wrong(struct rank *r) {
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING), gone = gpu_stream(CU_STREAM_NON_BLOCKING), elsewhere, foreign;
  CUcontext own;
  float *a = gpu_alloc(BYTES), *other, *freed = gpu_alloc(1 << 20);
  char expected[80];
  IS(gpu.StreamDestroy(gone), CUDA_SUCCESS);
  gpu_use((r->device + r->world) % 8);
  other = gpu_alloc(BYTES);
  elsewhere = gpu_stream(CU_STREAM_NON_BLOCKING);
  IS(gpu.CtxCreate(&own, 0, r->device), CUDA_SUCCESS);
  foreign = gpu_stream(CU_STREAM_NON_BLOCKING);
  gpu_use(r->device);
  meet();
  if (r->rank > 0) goto right; /* the last error belongs to the process */
  gpu_free(freed); /* no rank allocates until they meet again */
  snprintf(expected, sizeof expected, "is memory of device %d", (r->device + r->world) % 8);
  FAILS(sum(r, a, other, s), ncclInvalidArgument, expected);
  snprintf(expected, sizeof expected, "the stream is of device %d", (r->device + r->world) % 8);
  FAILS(sum(r, a, a, elsewhere), ncclInvalidArgument, expected);
  FAILS(sum(r, a, a, foreign), ncclInvalidArgument, "the stream is of another context of device");
  snprintf(expected, sizeof expected, "the driver does not know stream %p: has it been destroyed?", (void *)gone);
  FAILS(sum(r, a, a, gone), ncclUnhandledCudaError, expected);
  FAILS(ncclAllReduce(a, a, N, (ncclDataType_t)ncclNumTypes, ncclSum, r->comm, (cudaStream_t)s), ncclInvalidArgument,
        "datatype");
  FAILS(ncclSend(other, N, ncclFloat, 1, r->comm, (cudaStream_t)s), ncclInvalidArgument,
        "sendbuff is memory of device");
  FAILS(ncclSend(freed, N, ncclFloat, 1, r->comm, (cudaStream_t)s), ncclInvalidArgument, "has it been freed?");
  FAILS(sum(r, freed, a, s), ncclInvalidArgument, "has it been freed?");
  FAILS(sum(r, freed, freed, NULL), ncclInvalidArgument,
        "has it been freed?"); /* without a stream, this looks like a call on host memory */
  FAILS(ncclAllReduce(a, a, N + 1, ncclFloat, ncclSum, r->comm, (cudaStream_t)s), ncclInvalidArgument,
        "reaches beyond");
right:
  meet();
  put(a, r->rank, 1);
  OK(sum(r, a, a, s)); /* the communicator still works */
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
  expect(a, r->rank, (float)r->world, (float)r->world);
}

/* A driver that fails in the middle of a call fails the communicator, and blocks no stream. If it fails while the
 * communicator is made, the first call tries again. One rank. */
static void refused(struct rank *r) {
  static const char *const functions[] = {"cuEventCreate",        "cuMemHostAlloc",   "cuStreamGetCtx",
                                          "cuMemcpyDtoHAsync_v2", "cuLaunchHostFunc", "cuStreamWaitValue32_v2",
                                          "cuMemcpyHtoDAsync_v2", "cuEventRecord",    "cuPointerGetAttributes"};
  enum { AT_INIT = 2 };
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  float *a = gpu_alloc(BYTES);
  ncclUniqueId id;
  ncclComm_t comm;
  size_t i;
  put(a, r->rank, 1);
  for (i = 0; i < sizeof functions / sizeof *functions; i++) {
    OK(ncclGetUniqueId(&id));
    if (i < AT_INIT) gpu.Fail(functions[i], CUDA_ERROR_OUT_OF_MEMORY, 0);
    OK(ncclCommInitRank(&comm, 1, id, 0));
    gpu.Fail(functions[i], CUDA_ERROR_OUT_OF_MEMORY, 0);
    FAILS(ncclAllReduce(a, a, N, ncclFloat, ncclSum, comm, (cudaStream_t)s), ncclUnhandledCudaError,
          "CUDA_ERROR_OUT_OF_MEMORY");
    gpu.Fail(NULL, 0, 0);
    IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
    OK(ncclCommAbort(comm));
  }
}

int main(int argc, char **argv) {
  static const struct test tests[] = {
      {"refused", 1, refused},   {"ordered", 3, ordered}, {"issued", 2, issued},     {"grouped", 2, grouped},
      {"captured", 2, captured}, {"aborted", 2, aborted}, {"orphaned", 2, orphaned}, {"signalled", 2, signalled},
      {"ended", 2, ended},       {"scaled", 2, scaled},   {"wrong", 2, wrong},       {"defaults", 2, defaults},
  };
  gpu_open();
  run_tests(tests, sizeof tests / sizeof *tests, argc, argv);
  return 0;
}
