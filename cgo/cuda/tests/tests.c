#include "tests.h"

#include <time.h>
#include <unistd.h>

uint32_t *new_gate(void) {
  void *at;
  IS(gpu.MemHostAlloc(&at, 64, 0), CUDA_SUCCESS);
  memset(at, 0, 64);
  return at;
}

void wait_for_gate(CUstream s, uint32_t *gate) {
  IS(gpu.StreamWaitValue32(s, (uintptr_t)gate, 1, CU_STREAM_WAIT_VALUE_GEQ), CUDA_SUCCESS);
}

void open_gate(uint32_t *gate) { __atomic_store_n(gate, 1, __ATOMIC_RELEASE); }

static void *open_later(void *gate) {
  usleep(20000);
  open_gate(gate);
  return NULL;
}

pthread_t open_gate_later(uint32_t *gate) {
  pthread_t opener;
  CHECK(pthread_create(&opener, NULL, open_later, gate) == 0);
  return opener;
}

void abort_comm(struct rank *r) {
  OK(ncclCommAbort(r->comm));
  r->comm = NULL;
}

ncclResult_t await_failure(ncclComm_t comm) {
  ncclResult_t state;
  for (;;) {
    OK(ncclCommGetAsyncError(comm, &state));
    if (state != ncclSuccess) return state;
    usleep(1000);
  }
}

CUgraphExec end_capture(CUstream s) {
  CUgraph graph;
  CUgraphExec exec;
  IS(gpu.StreamEndCapture(s, &graph), CUDA_SUCCESS);
  IS(gpu.GraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
  IS(gpu.GraphDestroy(graph), CUDA_SUCCESS);
  return exec;
}

static const struct test *named(const struct test *tests, size_t n, const char *name) {
  size_t i;
  for (i = 0; i < n; i++)
    if (strcmp(tests[i].name, name) == 0) return &tests[i];
  fprintf(stderr, "there is no test %s\n", name);
  exit(2);
}

void run_tests(const struct test *tests, size_t n, int argc, char **argv) {
  struct timespec began, ended;
  size_t i;
  int k;
  for (k = 1; k < argc; k++) (void)named(tests, n, argv[k]);
  for (i = 0; i < n; i++) {
    bool wanted = argc == 1;
    for (k = 1; k < argc; k++) wanted |= named(tests, n, argv[k]) == &tests[i];
    if (!wanted) continue;
    clock_gettime(CLOCK_MONOTONIC, &began);
    if (tests[i].timeout != NULL) setenv("LIGHTPATH_TIMEOUT", tests[i].timeout, 1);
    ranks(tests[i].ranks, tests[i].run, NULL);
    unsetenv("LIGHTPATH_TIMEOUT");
    clock_gettime(CLOCK_MONOTONIC, &ended);
    printf("%s: %ld ms\n", tests[i].name,
           (long)(ended.tv_sec - began.tv_sec) * 1000 + (ended.tv_nsec - began.tv_nsec) / 1000000);
    fflush(stdout);
  }
}
