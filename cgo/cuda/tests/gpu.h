/* What the tests do with a device, through the driver that the process finds; and ranks as threads. */
#ifndef LP_CUDA_TESTS_GPU_H
#define LP_CUDA_TESTS_GPU_H

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "../../front/tests/check.h"
#include "../driver.h"

/* Functions that programs call and Lightpath does not, beside those that both do. */
#define TEST_FUNCTIONS(F)                                                                   \
  F(Init, "cuInit", (unsigned flags))                                                       \
  F(DeviceGetCount, "cuDeviceGetCount", (int *n))                                           \
  F(CtxSetCurrent, "cuCtxSetCurrent", (CUcontext ctx))                                      \
  F(CtxCreate, "cuCtxCreate_v2", (CUcontext * ctx, unsigned flags, CUdevice device))        \
  F(MemAllocManaged, "cuMemAllocManaged", (CUdeviceptr * at, size_t size, unsigned flags))  \
  F(StreamSynchronize, "cuStreamSynchronize", (CUstream stream))                            \
  F(StreamQuery, "cuStreamQuery", (CUstream stream))                                        \
  F(EventElapsedTime, "cuEventElapsedTime", (float *ms, CUevent from, CUevent to))          \
  F(StreamBeginCapture, "cuStreamBeginCapture_v2", (CUstream stream, int mode))             \
  F(StreamEndCapture, "cuStreamEndCapture", (CUstream stream, CUgraph * graph))             \
  F(GraphInstantiate, "cuGraphInstantiateWithFlags", (CUgraphExec * exec, CUgraph graph, unsigned long long flags)) \
  F(GraphLaunch, "cuGraphLaunch", (CUgraphExec exec, CUstream stream))                      \
  F(GraphExecDestroy, "cuGraphExecDestroy", (CUgraphExec exec))                             \
  F(GraphDestroy, "cuGraphDestroy", (CUgraph graph))

extern struct gpu {
#define FUNCTION(name, symbol, params) CUresult(*name) params;
  LP_CUDA_FUNCTIONS(FUNCTION) LP_CUDA_OPTIONAL(FUNCTION) TEST_FUNCTIONS(FUNCTION)
#undef FUNCTION
  /* Of the stub; NULL with a driver. */
  void (*Fail)(const char *function, CUresult error, int after);
  void (*Hold)(CUdeviceptr at, const uint32_t *gate, uint32_t *held);
} gpu;

/* Loads the driver. */
void gpu_open(void);
/* Makes a device's context the thread's. */
void gpu_use(int device);
void *gpu_alloc(size_t size);
void gpu_free(void *at);
/* Copies between any two kinds of memory, now. */
void gpu_copy(void *to, const void *from, size_t size);
CUstream gpu_stream(unsigned flags);

/* Runs a function on n threads, each a rank with a communicator. Each has a device of its own, as far as there are
 * devices: ranks of one process that share one must not share its default stream, nor use streams that are in
 * order with it. */
struct rank {
  int rank, world, device;
  bool alone; /* on its device */
  ncclComm_t comm;
  void *arg;
};
void ranks(int n, void (*run)(struct rank *r), void *arg);
/* All ranks meet. */
void meet(void);

#endif
