/* Ranks that read each other's registered memory in place: in calls and graphs, repeatedly, and when a rank fails. lent
 * [NAME...] runs some of the tests. */
#include <unistd.h>

#include "sums.h"

/* Registered buffers, in calls and graphs. Ranks register in turn, and deregister a buffer when nothing uses it. */
static void lent(struct rank *r) {
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  float *a = buffer(), *b = buffer();
  void *handles[2] = {NULL, NULL};
  CUgraph graph;
  CUgraphExec exec;
  int i;
  for (i = 0; i < 12; i++) {
    bool mine = (r->rank + i) % 3 > 0;
    if (mine) OK(ncclCommRegister(r->comm, a, sizeof host[0], &handles[0]));
    if (mine) OK(ncclCommRegister(r->comm, b, sizeof host[0], &handles[1]));
    put(a, r->rank, i);
    OK(sum(r, a, b, s));
    OK(sum(r, a, a, s));
    IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
    expect_sum(a, r->rank, r->world, i);
    expect_sum(b, r->rank, r->world, i);
    meet(); /* a capture forbids calls of other threads */
    IS(gpu.StreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    OK(sum(r, a, b, s));
    IS(gpu.StreamEndCapture(s, &graph), CUDA_SUCCESS);
    IS(gpu.GraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
    meet();
    if (mine) { /* one rank at a time: the last error belongs to the process */
      ncclResult_t rc = ncclCommDeregister(r->comm, handles[0]);
      IS(rc, ncclInvalidUsage);
    }
    put(a, r->rank, i + 1);
    IS(gpu.GraphLaunch(exec, s), CUDA_SUCCESS);
    OK(sum(r, a, a, s));
    IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
    expect_sum(a, r->rank, r->world, i + 1);
    expect_sum(b, r->rank, r->world, i + 1);
    IS(gpu.GraphExecDestroy(exec), CUDA_SUCCESS);
    IS(gpu.GraphDestroy(graph), CUDA_SUCCESS);
    if (mine) OK(ncclCommDeregister(r->comm, handles[0]));
    if (mine) OK(ncclCommDeregister(r->comm, handles[1]));
  }
}

/* Communicators leave no descriptors behind. */
static void churn(struct rank *r) {
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  float *a = buffer();
  static ncclUniqueId id;
  void *handle;
  int i, files = 0;
  put(a, r->rank, 0);
  for (i = 0; i < 80; i++) {
    ncclComm_t comm;
    if (r->rank == 0) OK(ncclGetUniqueId(&id));
    meet();
    OK(ncclCommInitRank(&comm, r->world, id, r->rank));
    OK(ncclCommRegister(comm, a, sizeof host[0], &handle));
    OK(ncclAllReduce(a, a, 10, ncclFloat, ncclMax, comm, (cudaStream_t)s));
    OK(ncclAllReduce(a, a, i % 4 == 0 ? N : N / 8, ncclFloat, ncclMax, comm, (cudaStream_t)s));
    IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
    if (i % 2 == 0) OK(ncclCommDeregister(comm, handle));
    OK(ncclGroupStart());
    OK(ncclSend(a, 10, ncclFloat, 1 - r->rank, comm, (cudaStream_t)s));
    OK(ncclRecv(a + 10, 10, ncclFloat, 1 - r->rank, comm, (cudaStream_t)s));
    OK(ncclGroupEnd());
    OK(ncclCommDestroy(comm));
    meet();
    if (i == 20) files = count_entries("/proc/self/fd");
  }
  if (r->rank > 0) return;
  for (i = 0; i < 3000 && count_entries("/proc/self/fd") > files + 20; i++)
    usleep(10000); /* some are closed in the background */
  CHECK(count_entries("/proc/self/fd") <= files + 20);
}

/* A call with a registered buffer completes only when no peer reads the buffer any more, also if the communicator
 * fails. Then the rank may free it. */
static void outlived(struct rank *r, int aborts) {
  enum { CALLS = 6, COUNT = N / 4 * 4 }; /* only blocks of whole 16 bytes are read in place */
  static uint32_t gate, held;
  static bool lent;
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  float *a = buffer(), *all = gpu_alloc((size_t)r->world * sizeof host[0]);
  void *handle;
  int i;
  put(a, r->rank, 0);
  OK(ncclCommRegister(r->comm, a, sizeof host[0], &handle));
  if (r->rank == 0) {
    gate = held = 0;
    gpu.Hold((uintptr_t)a, &gate, &held);
  }
  do { /* until the peers have opened it */
    meet();
    for (i = 0; i < CALLS; i++) OK(ncclAllGather(a, all, COUNT, ncclFloat, r->comm, (cudaStream_t)s));
    if (r->rank == 0) {
      while (__atomic_load_n(&held, __ATOMIC_ACQUIRE) == 0 && gpu.StreamQuery(s) != CUDA_SUCCESS) usleep(1000);
      lent = __atomic_load_n(&held, __ATOMIC_ACQUIRE) > 0;
    }
    meet();
  } while (!lent);
  if (r->rank == aborts) abort_comm(r);
  if (r->comm != NULL) (void)await_failure(r->comm);
  if (r->rank == 0) {
    usleep(1500000); /* in which the call would end if it did not wait */
    IS(gpu.StreamQuery(s), CUDA_ERROR_NOT_READY);
    open_gate(&gate);
  }
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
  gpu_free(a);
  if (r->comm != NULL) abort_comm(r);
}
static void lender_aborts(struct rank *r) { outlived(r, 0); }
static void reader_aborts(struct rank *r) { outlived(r, 1); }

int main(int argc, char **argv) {
  static const struct test tests[] = {
    {"lent", 4, lent},
    {"churn", 2, churn},
    {"lender_aborts", 2, lender_aborts},
    {"reader_aborts", 3, reader_aborts},
  };
  gpu_open();
  setenv("LIGHTPATH_DEVICE_PATH", "direct", 1);
  run_tests(tests, sizeof tests / sizeof *tests, argc, argv);
  return 0;
}
