/* How tests use a device, through the process's driver; and ranks as threads. */
#ifndef LP_CUDA_TESTS_GPU_H
#define LP_CUDA_TESTS_GPU_H

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "../../front/tests/check.h"
#include "../driver.h"

/* Functions that programs call and Lightpath does not. */
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
  F(GraphDestroy, "cuGraphDestroy", (CUgraph graph))                                       \
  F(MemAllocAsync, "cuMemAllocAsync", (CUdeviceptr * at, size_t size, CUstream stream))     \
  F(MemFreeAsync, "cuMemFreeAsync", (CUdeviceptr at, CUstream stream))                      \
  F(MemGetAllocationGranularity, "cuMemGetAllocationGranularity",                           \
    (size_t *size, const CUmemAllocationProp *prop, int option))                            \
  F(MemCreate, "cuMemCreate",                                                               \
    (CUmemGenericAllocationHandle * piece, size_t size, const CUmemAllocationProp *prop, unsigned long long flags))

extern struct gpu {
#define FUNCTION(name, symbol, params) CUresult(*name) params;
  LP_CUDA_FUNCTIONS(FUNCTION) LP_CUDA_OPTIONAL(FUNCTION) LP_CUDA_MAPPED(FUNCTION) TEST_FUNCTIONS(FUNCTION)
#undef FUNCTION
  /* Of the stub; NULL with a driver. */
  void (*Fail)(const char *function, CUresult error, int after);
  void (*Hold)(CUdeviceptr at, const uint32_t *gate, uint32_t *held);
  unsigned (*Uses)(CUdeviceptr at);
  int (*Imports)(void);
} gpu;

/* Loads the driver. */
void gpu_open(void);
/* Makes a device's context current on the thread. */
void gpu_use(int device);
void *gpu_alloc(size_t size);
void gpu_free(void *at);
/* Copies between any two kinds of memory, now. */
void gpu_copy(void *to, const void *from, size_t size);
CUstream gpu_stream(unsigned flags);

/* Runs a function on n threads, each a rank with a communicator. Each rank has its own device, as far as there are
 * enough. Ranks of one process that share a device must use neither its default stream nor blocking streams. */
struct rank {
  int rank, world, device;
  bool alone; /* on its device */
  ncclComm_t comm;
  void *arg;
};
void ranks(int n, void (*run)(struct rank *r), void *arg);
/* Waits for all ranks. */
void meet(void);

#endif
