/* Ranks whose devices reach each other: graphs, groups and failures. direct [NAME...] runs some of the tests. direct
 * unreachable needs a driver whose devices do not reach each other, direct full one whose devices have no memory. */
#include <unistd.h>

#include "sums.h"

/* Graphs and calls in a random mix on two streams, in one order on all ranks. */
static void mixed(struct rank *r) {
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING), t = gpu_stream(CU_STREAM_NON_BLOCKING);
  float *a = buffer(), *b = buffer(), *c = buffer();
  CUgraph graph;
  CUgraphExec exec;
  uint32_t random = 1;
  int i;
  meet(); /* a capture forbids calls of other threads */
  IS(gpu.StreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  OK(sum(r, a, b, s));
  OK(ncclGroupStart());
  OK(ncclSend(a, N, ncclFloat, (r->rank + 1) % r->world, r->comm, (cudaStream_t)s));
  OK(ncclRecv(c, N, ncclFloat, (r->rank + r->world - 1) % r->world, r->comm, (cudaStream_t)s));
  OK(ncclGroupEnd());
  IS(gpu.StreamEndCapture(s, &graph), CUDA_SUCCESS);
  IS(gpu.GraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
  meet();
  for (i = 0; i < 30; i++) {
    random = random * 1664525 + 1013904223;
    put(a, r->rank, i);
    if (random >> 31) {
      IS(gpu.GraphLaunch(exec, s), CUDA_SUCCESS);
      IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
      expect_of(c, r->rank, (r->rank + r->world - 1) % r->world, i);
    } else {
      OK(sum(r, a, b, random >> 30 & 1 ? s : t));
      IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
      IS(gpu.StreamSynchronize(t), CUDA_SUCCESS);
    }
    expect_sum(b, r->rank, r->world, i);
  }
  IS(gpu.GraphExecDestroy(exec), CUDA_SUCCESS);
  IS(gpu.GraphDestroy(graph), CUDA_SUCCESS);
}

/* All sends and receives of a group are in flight at once: rank 0's second message needs messages that the others
 * send after its first. */
static void side_by_side(struct rank *r) {
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  float *a = buffer(), *b = buffer(), *c = buffer();
  put(a, r->rank, 0);
  switch (r->rank) {
    case 0:
      OK(ncclGroupStart());
      OK(ncclRecv(c, N, ncclFloat, 2, r->comm, (cudaStream_t)s));
      OK(ncclSend(a, N, ncclFloat, 1, r->comm, (cudaStream_t)s));
      OK(ncclGroupEnd());
      break;
    case 1:
      OK(ncclRecv(b, N, ncclFloat, 0, r->comm, (cudaStream_t)s));
      OK(ncclSend(a, N, ncclFloat, 2, r->comm, (cudaStream_t)s));
      break;
    default:
      OK(ncclRecv(b, N, ncclFloat, 1, r->comm, (cudaStream_t)s));
      OK(ncclSend(a, N, ncclFloat, 0, r->comm, (cudaStream_t)s));
  }
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
  expect_of(r->rank == 0 ? c : b, r->rank, (r->rank + 2) % 3, 0);
}

/* Several messages between two ranks, empty ones, and to the rank itself. */
static void messages(struct rank *r) {
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  float *a = buffer(), *b = buffer(), *c = buffer(), *d = buffer();
  int peer = 1 - r->rank;
  put(a, r->rank, 0);
  put(b, r->rank, 1);
  OK(ncclGroupStart());
  OK(ncclSend(a, N, ncclFloat, peer, r->comm, (cudaStream_t)s));
  OK(ncclSend(NULL, 0, ncclFloat, peer, r->comm, (cudaStream_t)s));
  OK(ncclSend(b, N - 1, ncclFloat, peer, r->comm, (cudaStream_t)s));
  OK(ncclSend(b, 1, ncclFloat, r->rank, r->comm, (cudaStream_t)s));
  OK(ncclRecv(d, 1, ncclFloat, r->rank, r->comm, (cudaStream_t)s));
  OK(ncclRecv(c, N, ncclFloat, peer, r->comm, (cudaStream_t)s));
  OK(ncclRecv(NULL, 0, ncclFloat, peer, r->comm, (cudaStream_t)s));
  OK(ncclRecv(d + 1, N - 1, ncclFloat, peer, r->comm, (cudaStream_t)s));
  OK(ncclGroupEnd());
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
  expect_of(c, r->rank, peer, 0);
  gpu_copy(host[r->rank], d, sizeof host[0]);
  CHECK(host[r->rank][0] == value(r->rank, 1, 0) && host[r->rank][1] == value(peer, 1, 0));
  CHECK(host[r->rank][N - 1] == value(peer, 1, N - 2));
  meet(); /* the last error belongs to the process */
  if (r->rank > 0) return;
  FAILS(ncclSend(a, 1, ncclFloat, 0, r->comm, (cudaStream_t)s), ncclInvalidUsage, "must receive in the same group");
}

/* Calls with only host memory have ended when they return, whatever memory the other ranks use. */
static void from_host(struct rank *r) {
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  float *a = buffer(), *plain = malloc(sizeof host[0]), *result = malloc(sizeof host[0]);
  int i, k;
  for (k = 0; k < 3; k++) {
    if ((r->rank + k) % 2 == 0) {
      for (i = 0; i < N; i++) plain[i] = value(r->rank, k, i);
      OK(sum(r, plain, result, NULL));
      for (i = 0; i < N; i++) CHECK(result[i] == value(0, k, i) + value(1, k, i));
    } else {
      put(a, r->rank, k);
      OK(sum(r, a, a, s));
      IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
      expect_sum(a, r->rank, r->world, k);
    }
  }
  free(plain);
  free(result);
}

/* Ranks that make different calls get an error, whichever is last, and no stream hangs. */
static void mismatched(struct rank *r) {
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  float *a = buffer();
  ncclResult_t rc;
  put(a, r->rank, 0);
  rc = r->rank == 0 ? sum(r, a, a, s) : ncclBroadcast(a, a, N, ncclFloat, 1, r->comm, (cudaStream_t)s);
  CHECK(rc == ncclSuccess || rc == ncclInvalidUsage);
  expect_failure(r, s, ncclInvalidUsage);
  CHECK(strstr(ncclGetLastError(NULL), "rank 0 called AllReduce(count 100001") != NULL);
  CHECK(strstr(ncclGetLastError(NULL), "rank 1 called Broadcast(count 100001") != NULL);
}

/* A different operator does not stop a stream: the error comes when the calls are compared. */
static void other_operator(struct rank *r) {
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  float *a = buffer();
  ncclResult_t rc;
  int i;
  for (i = 0; i < 100; i++) OK(ncclAllReduce(a, a, 1, ncclFloat, ncclSum, r->comm, (cudaStream_t)s));
  rc = ncclAllReduce(a, a, 1, ncclFloat, r->rank == 0 ? ncclMax : ncclMin, r->comm, (cudaStream_t)s);
  CHECK(rc == ncclSuccess || rc == ncclInvalidUsage);
  expect_failure(r, s, ncclInvalidUsage);
  CHECK(strstr(ncclGetLastError(NULL), "operation 101: rank 0 called AllReduce(count 1, type float, op max)") != NULL);
}

static void other_size(struct rank *r) {
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  float *a = buffer();
  ncclResult_t rc = r->rank == 0 ? ncclSend(a, 100, ncclFloat, 1, r->comm, (cudaStream_t)s)
                                 : ncclRecv(a, 200, ncclFloat, 0, r->comm, (cudaStream_t)s);
  CHECK(rc == ncclSuccess || rc == ncclInvalidUsage);
  expect_failure(r, s, ncclInvalidUsage);
  CHECK(strstr(ncclGetLastError(NULL), "message 1 from rank 0 to rank 1: 400 bytes are sent, 800 are to be received") !=
        NULL);
}

/* A rank that does not come is named after the timeout. A stream that has not reached the call may take longer. */
static void late(struct rank *r) {
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  float *a = buffer();
  put(a, r->rank, 0);
  if (r->rank != 1) OK(sum(r, a, a, s));
  expect_failure(r, s, ncclTimeout);
  CHECK(strstr(ncclGetLastError(NULL), "rank 1 did not arrive") != NULL);
}

/* A rank that is far ahead does not block the other ranks of its process in the driver. */
static void ahead(struct rank *r) {
  enum { CALLS = 60 };
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  float *a = buffer(), *b = buffer();
  int i;
  put(a, r->rank, 0);
  meet();
  if (r->rank != 0) usleep(50000); /* rank 0 has enqueued as much as it can */
  for (i = 0; i < CALLS; i++) OK(sum(r, a, b, s));
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
  expect_sum(b, r->rank, r->world, 0);
}

/* The same with messages, in both directions at once. */
static void ahead_messages(struct rank *r) {
  enum { CALLS = 20 };
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  float *a = buffer(), *b = buffer();
  int i, next = (r->rank + 1) % r->world, before = (r->rank + r->world - 1) % r->world;
  put(a, r->rank, 0);
  meet();
  if (r->rank != 0) usleep(50000);
  for (i = 0; i < CALLS; i++) {
    OK(ncclGroupStart());
    OK(ncclSend(a, N, ncclFloat, next, r->comm, (cudaStream_t)s));
    OK(ncclRecv(b, N, ncclFloat, before, r->comm, (cudaStream_t)s));
    OK(ncclGroupEnd());
  }
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
  expect_of(b, r->rank, before, 0);
}

/* A driver that fails while a communicator is made: all ranks get an error. */
static void unmade(struct rank *r) {
  static const char *const functions[] = {"cuMemHostRegister_v2", "cuMemHostGetDevicePointer_v2", "cuIpcGetMemHandle",
                                          "cuCtxEnablePeerAccess"};
  static ncclUniqueId id;
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  float *a = buffer();
  size_t i;
  put(a, r->rank, 0);
  OK(sum(r, a, a, s)); /* so that the kernels are loaded */
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
  for (i = 0; i < sizeof functions / sizeof *functions; i++) {
    ncclComm_t comm;
    meet();
    if (r->rank == 0) {
      OK(ncclGetUniqueId(&id));
      gpu.Fail(functions[i], CUDA_ERROR_OUT_OF_MEMORY, 1);
    }
    meet();
    IS(ncclCommInitRank(&comm, r->world, id, r->rank), ncclInvalidUsage);
    meet();
    if (r->rank == 0) {
      CHECK(strstr(ncclGetLastError(NULL), "LIGHTPATH_DEVICE_PATH=direct: rank ") != NULL);
      CHECK(strstr(ncclGetLastError(NULL), "CUDA_ERROR_OUT_OF_MEMORY") != NULL);
      gpu.Fail(NULL, 0, 0);
    }
  }
}

/* A device without memory for the exchange: the error names rank, device and setting, or launches are staged. It
 * runs first in its process, which keeps such memory. */
static void unmade_full(void) {
  ncclComm_t comms[2];
  gpu_use(0);
  setenv("LIGHTPATH_DEVICE_PATH", "direct", 1);
  gpu.Fail("cuMemAlloc_v2", CUDA_ERROR_OUT_OF_MEMORY, 0);
  FAILS(ncclCommInitAll(comms, 2, NULL), ncclInvalidUsage, "bytes on device 0: cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY");
  CHECK(strstr(ncclGetLastError(NULL), "LIGHTPATH_DEVICE_PATH=direct: rank 0") != NULL);
  CHECK(strstr(ncclGetLastError(NULL), "LIGHTPATH_DEVICE_EXCHANGE=1048576 bytes") != NULL);
  setenv("LIGHTPATH_DEVICE_PATH", "auto", 1);
  OK(ncclCommInitAll(comms, 2, NULL));
  gpu.Fail(NULL, 0, 0);
  OK(ncclCommDestroy(comms[0]));
  OK(ncclCommDestroy(comms[1]));
}

/* A driver that fails in the middle of a launch: the communicator fails on all ranks, and no stream hangs. */
static void refused(struct rank *r) {
  static const char *const functions[] = {"cuStreamBatchMemOp_v2", "cuEventRecord", "cuLaunchKernel"};
  static ncclUniqueId id;
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  float *a = buffer(), *b = buffer();
  size_t i;
  put(a, r->rank, 0);
  for (i = 0; i < sizeof functions / sizeof *functions; i++) {
    struct rank other = *r;
    ncclResult_t rc;
    meet();
    if (r->rank == 0) {
      OK(ncclGetUniqueId(&id));
    }
    meet();
    OK(ncclCommInitRank(&other.comm, r->world, id, r->rank));
    meet();
    if (r->rank == 0) gpu.Fail(functions[i], CUDA_ERROR_ILLEGAL_ADDRESS, 1);
    meet();
    rc = sum(&other, a, b, s);
    CHECK(rc == ncclSuccess || rc == ncclUnhandledCudaError);
    expect_failure(&other, s, ncclUnhandledCudaError);
    meet();
    if (r->rank == 0) gpu.Fail(NULL, 0, 0);
  }
}

/* Communicators made from others, and groups over several of them on one stream, in another order on each rank. */
static void related(struct rank *r) {
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  float *a = buffer(), *b = buffer(), *c = buffer();
  ncclComm_t all, same;
  int i;
  OK(ncclCommSplit(r->comm, 0, r->rank, &all, NULL));
  OK(ncclCommSplit(r->comm, 0, r->rank, &same, NULL));
  put(a, r->rank, 0);
  for (i = 0; i < 3; i++) {
    OK(ncclGroupStart());
    OK(ncclAllReduce(a, b, N, ncclFloat, ncclSum, r->rank == 0 ? all : same, (cudaStream_t)s));
    OK(ncclAllReduce(a, c, N, ncclFloat, ncclSum, r->rank == 0 ? same : all, (cudaStream_t)s));
    OK(ncclGroupEnd());
  }
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
  expect_sum(b, r->rank, r->world, 0);
  expect_sum(c, r->rank, r->world, 0);
  OK(ncclCommDestroy(all));
  OK(ncclCommDestroy(same));
}

/* One thread drives all ranks, each on its own device, with device memory and with none. */
static void one_thread(struct rank *r) {
  ncclComm_t comms[3];
  CUstream s[3];
  float *a[3], *plain = malloc(3 * sizeof host[0]), *result = malloc(3 * sizeof host[0]);
  int i, k;
  if (r->rank > 0) return;
  OK(ncclCommInitAll(comms, 3, NULL));
  for (i = 0; i < 3; i++) {
    gpu_use(i);
    s[i] = gpu_stream(CU_STREAM_NON_BLOCKING);
    a[i] = buffer();
    put(a[i], i, 0);
    memcpy(plain + (size_t)i * N, host[i], sizeof host[i]);
  }
  OK(ncclGroupStart());
  for (i = 0; i < 3; i++) OK(ncclAllReduce(a[i], a[i], N, ncclFloat, ncclSum, comms[i], (cudaStream_t)s[i]));
  OK(ncclGroupEnd());
  for (i = 0; i < 3; i++) {
    IS(gpu.StreamSynchronize(s[i]), CUDA_SUCCESS);
    gpu_use(i);
    expect_sum(a[i], i, 3, 0);
  }
  OK(ncclGroupStart());
  for (i = 0; i < 3; i++)
    OK(ncclAllReduce(plain + (size_t)i * N, result + (size_t)i * N, N, ncclFloat, ncclSum, comms[i], NULL));
  OK(ncclGroupEnd());
  for (i = 0; i < 3; i++) {
    gpu_use(i);
    gpu_copy(a[i], result + (size_t)i * N, sizeof host[0]);
    expect_sum(a[i], i, 3, 0);
    for (k = 0; k < N; k++) CHECK(plain[(size_t)i * N + (size_t)k] == value(i, 0, k));
    OK(ncclCommDestroy(comms[i]));
  }
  gpu_use(r->device);
  free(plain);
  free(result);
}

/* One thread drives all ranks, with calls of more operations than fit into a stream's queue. */
static void one_thread_long(struct rank *r) {
  enum { SIZE = 64 << 20 };
  ncclComm_t comms[2];
  CUstream s[2];
  char *a[2], *result = malloc(SIZE);
  int i;
  if (r->rank > 0) return;
  OK(ncclCommInitAll(comms, 2, NULL));
  for (i = 0; i < 2; i++) {
    gpu_use(i);
    s[i] = gpu_stream(CU_STREAM_NON_BLOCKING);
    a[i] = gpu_alloc(SIZE);
    memset(result, i + 1, SIZE);
    gpu_copy(a[i], result, SIZE);
  }
  OK(ncclGroupStart());
  for (i = 0; i < 2; i++) OK(ncclBroadcast(a[i], a[i], SIZE, ncclChar, 0, comms[i], (cudaStream_t)s[i]));
  OK(ncclGroupEnd());
  for (i = 0; i < 2; i++) {
    IS(gpu.StreamSynchronize(s[i]), CUDA_SUCCESS);
    gpu_use(i);
    gpu_copy(result, a[i], SIZE);
    CHECK(result[0] == 1 && memcmp(result, result + 1, SIZE - 1) == 0);
    gpu_free(a[i]);
    OK(ncclCommDestroy(comms[i]));
  }
  gpu_use(r->device);
  free(result);
}

static void unreachable(void) {
  ncclComm_t comms[2];
  int i;
  float *a[2];
  CUstream s[2];
  setenv("LIGHTPATH_DEVICE_PATH", "direct", 1);
  gpu_use(0);
  FAILS(ncclCommInitAll(comms, 2, NULL), ncclInvalidUsage, "LIGHTPATH_DEVICE_PATH=direct: rank 0");
  CHECK(strstr(ncclGetLastError(NULL), "memory of rank 1") != NULL);
  setenv("LIGHTPATH_DEVICE_PATH", "auto", 1);
  OK(ncclCommInitAll(comms, 2, NULL));
  for (i = 0; i < 2; i++) {
    gpu_use(i);
    a[i] = buffer();
    s[i] = gpu_stream(CU_STREAM_NON_BLOCKING);
    put(a[i], i, 0);
  }
  OK(ncclGroupStart());
  for (i = 0; i < 2; i++) OK(ncclAllReduce(a[i], a[i], N, ncclFloat, ncclSum, comms[i], (cudaStream_t)s[i]));
  OK(ncclGroupEnd());
  for (i = 0; i < 2; i++) {
    IS(gpu.StreamSynchronize(s[i]), CUDA_SUCCESS);
    expect_sum(a[i], i, 2, 0);
    OK(ncclCommDestroy(comms[i]));
  }
}

int main(int argc, char **argv) {
  static const struct test tests[] = {
    {"mixed", 3, mixed},
    {"side_by_side", 3, side_by_side},
    {"messages", 2, messages},
    {"from_host", 2, from_host},
    {"mismatched", 2, mismatched},
    {"other_operator", 2, other_operator},
    {"other_size", 2, other_size},
    {"late", 3, late, "2s"},
    {"ahead", 2, ahead},
    {"ahead_messages", 3, ahead_messages},
    {"related", 2, related},
    {"one_thread", 2, one_thread},
    {"one_thread_long", 2, one_thread_long},
    {"unmade", 2, unmade},
    {"refused", 3, refused},
  };
  gpu_open();
  if (argc == 2 && strcmp(argv[1], "unreachable") == 0) {
    unreachable();
    return 0;
  }
  if (argc == 2 && strcmp(argv[1], "full") == 0) {
    unmade_full();
    return 0;
  }
  setenv("LIGHTPATH_DEVICE_PATH", "direct", 1);
  run_tests(tests, sizeof tests / sizeof *tests, argc, argv);
  return 0;
}
