/* Buffers of N floats with known sums, and the end of a failed communicator. */
#ifndef LP_SUMS_H
#define LP_SUMS_H

#include "tests.h"

#define N 100001 /* more than a slot of the smallest exchange memory */

static float host[8][N]; /* by rank */

/* Element i of a rank's buffer in round v. */
static inline float value(int rank, int v, int i) { return (float)(rank * 3 + v + i % 5); }

static inline void put(float *device, int rank, int v) {
  int i;
  for (i = 0; i < N; i++) host[rank][i] = value(rank, v, i);
  gpu_copy(device, host[rank], sizeof host[rank]);
}

/* Checks that the device has a rank's buffer of round v. */
static inline void expect_of(const float *device, int me, int rank, int v) {
  int i;
  gpu_copy(host[me], device, sizeof host[me]);
  for (i = 0; i < N; i++) {
    if (host[me][i] != value(rank, v, i)) {
      fprintf(stderr, "rank %d: element %d is %g, want %g of rank %d\n", me, i, host[me][i], value(rank, v, i), rank);
      exit(1);
    }
  }
}

static inline void expect_sum(const float *device, int me, int world, int v) {
  int i, r;
  gpu_copy(host[me], device, sizeof host[me]);
  for (i = 0; i < N; i++) {
    float want = 0;
    for (r = 0; r < world; r++) want += value(r, v, i);
    if (host[me][i] != want) {
      fprintf(stderr, "rank %d: element %d is %g, want the sum %g\n", me, i, host[me][i], want);
      exit(1);
    }
  }
}

static inline float *buffer(void) { return gpu_alloc(sizeof host[0]); }

static inline ncclResult_t sum(struct rank *r, float *send, float *recv, CUstream s) {
  return ncclAllReduce(send, recv, N, ncclFloat, ncclSum, r->comm, (cudaStream_t)s);
}

/* Waits for the communicator to fail, checks that its stream continues, and aborts it. */
static inline void expect_failure(struct rank *r, CUstream s, ncclResult_t want) {
  IS(await_failure(r->comm), want);
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
  OK(ncclCommAbort(r->comm));
  r->comm = NULL;
}

#endif
