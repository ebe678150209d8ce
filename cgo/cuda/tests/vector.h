/* Vectors of floats with known values, in device memory. */
#ifndef LP_CUDA_TESTS_VECTOR_H
#define LP_CUDA_TESTS_VECTOR_H

#include "gpu.h"

#define N 5000
#define BYTES (N * sizeof(float))

extern float host[8][N]; /* by rank: a copy of device memory */

/* Element i of a rank's device memory becomes value + i % 7. */
void put(float *device, int rank, float value);
/* Ends the program unless every element i is value + copies * (i % 7). */
void expect(const float *device, int rank, float value, float copies);
ncclResult_t sum(struct rank *r, float *send, float *recv, CUstream s);

#endif
