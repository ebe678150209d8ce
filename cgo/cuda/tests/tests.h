/* Helpers of programs with several tests. */
#ifndef LP_CUDA_TESTS_TESTS_H
#define LP_CUDA_TESTS_TESTS_H

#include <pthread.h>
#include <stdint.h>

#include "gpu.h"

/* A gate makes streams wait until it is opened. */
uint32_t *new_gate(void);
void wait_for_gate(CUstream s, uint32_t *gate);
void open_gate(uint32_t *gate);
/* Starts a thread that opens the gate 20 ms later. */
pthread_t open_gate_later(uint32_t *gate);

/* Waits until a communicator has failed, and returns how. */
ncclResult_t await_failure(ncclComm_t comm);

/* Aborts the rank's communicator. */
void abort_comm(struct rank *r);

/* Ends the capture of a stream, and returns the graph, ready to be launched. */
CUgraphExec end_capture(CUstream s);

struct test {
  const char *name;
  int ranks;
  void (*run)(struct rank *r);
  const char *timeout; /* LIGHTPATH_TIMEOUT, NULL for the default */
};
/* Runs the tests that the program's arguments name, or all, and prints their times. */
void run_tests(const struct test *tests, size_t n, int argc, char **argv);

#endif
