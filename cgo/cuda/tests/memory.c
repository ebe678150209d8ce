/* Device memory of ncclMemAlloc, full devices, and the thread's state: memory [NAME...] runs some of the tests. */
#include "tests.h"

#define N 40000

static unsigned kind_of(const void *at) {
  unsigned type = 0, managed;
  int device;
  int attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  void *data[] = {&type, &managed, &device};
  IS(gpu.PointerGetAttributes(3, attributes, data, (uintptr_t)at), CUDA_SUCCESS);
  return type;
}

/* ncclMemAlloc gives device memory, which serves for any call and cannot be freed while some of it is registered.
 * Registrations are hints, and windows of it take no puts. */
static void allocated(struct rank *r) {
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  float *a = NULL, *small, mine[4] = {1, 2, 3, 4}, got[4];
  void *handle, *there, *at;
  ncclWindow_t window;
  CUcontext ctx;
  OK(ncclMemAlloc((void **)&a, N * sizeof *a));
  OK(ncclMemAlloc((void **)&small, sizeof mine));
  CHECK(kind_of(a) == CU_MEMORYTYPE_DEVICE && kind_of(small) == CU_MEMORYTYPE_DEVICE);
  CHECK((uintptr_t)a % NCCL_WIN_REQUIRED_ALIGNMENT == 0 && (uintptr_t)small % NCCL_WIN_REQUIRED_ALIGNMENT == 0);
  OK(ncclCommRegister(r->comm, a, N * sizeof *a, &handle));
  gpu_copy(small, mine, sizeof mine);
  OK(ncclAllReduce(small, small, 4, ncclFloat, ncclSum, r->comm, (cudaStream_t)s));
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
  gpu_copy(got, small, sizeof got);
  CHECK(got[3] == 4 * (float)r->world);
  meet();
  if (r->rank == 0)
    FAILS(ncclMemFree(a), ncclInvalidUsage, "deregister it first"); /* the last error belongs to the process */
  meet();
  OK(ncclCommDeregister(r->comm, handle));
  OK(ncclMemFree(a));
  if (r->rank == 0) FAILS(ncclMemFree(a), ncclInvalidArgument, "has been freed");

  OK(ncclCommWindowRegister(r->comm, small, sizeof mine, &window, NCCL_WIN_COLL_SYMMETRIC));
  OK(ncclWinGetUserPtr(r->comm, window, &there));
  CHECK(there == small);
  meet();
  if (r->rank == 0)
    FAILS(ncclPutSignal(mine, 1, ncclFloat, 1, window, 0, 0, 0, 0, r->comm, NULL), ncclInvalidUsage,
          "window number 0 is device memory");
  meet();
  abort_comm(r);
  OK(ncclMemFree(small));
  IS(gpu.CtxGetCurrent(&ctx), CUDA_SUCCESS);
  IS(gpu.CtxSetCurrent(NULL), CUDA_SUCCESS); /* such a thread gets host memory */
  OK(ncclMemAlloc(&at, 100));
  *(volatile char *)at = 1;
  OK(ncclMemFree(at));
  IS(gpu.CtxSetCurrent(ctx), CUDA_SUCCESS);
}

/* A full device, or too much page-locked memory, gives an error, and the communicator still works. LIGHTPATH_STAGING
 * is so small that the call needs more memory than the communicator has made. */
static void full(struct rank *r) {
  enum { LARGE = 9 << 18 };
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  float *a = gpu_alloc(LARGE * sizeof *a);
  void *at;
  gpu.Fail("cuMemAlloc_v2", CUDA_ERROR_OUT_OF_MEMORY, 0);
  FAILS(ncclMemAlloc(&at, 100), ncclUnhandledCudaError,
        "ncclMemAlloc: 100 bytes on device 0: cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY");
  CHECK(at == NULL);
  gpu.Fail("cuMemHostAlloc", CUDA_ERROR_OUT_OF_MEMORY, 0);
  FAILS(ncclAllReduce(a, a, LARGE, ncclFloat, ncclSum, r->comm, (cudaStream_t)s), ncclUnhandledCudaError,
        "bytes of page-locked memory: cuMemHostAlloc: CUDA_ERROR_OUT_OF_MEMORY");
  gpu.Fail(NULL, 0, 0);
  OK(ncclAllReduce(a, a, LARGE, ncclFloat, ncclSum, r->comm, (cudaStream_t)s));
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
  OK(ncclMemAlloc(&at, 100));
  OK(ncclMemFree(at));
}

/* No call changes the thread's context or its capture mode, whether it succeeds or not. */
static void untouched(struct rank *r) {
  static const int modes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                              CU_STREAM_CAPTURE_MODE_RELAXED};
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING), gone = gpu_stream(CU_STREAM_NON_BLOCKING);
  float *a = gpu_alloc(N * sizeof *a), *other;
  CUcontext own, now;
  void *at;
  int i, mode;
  IS(gpu.CtxGetCurrent(&own), CUDA_SUCCESS);
  gpu_use(1);
  other = gpu_alloc(N * sizeof *other);
  IS(gpu.CtxSetCurrent(own), CUDA_SUCCESS);
  IS(gpu.StreamDestroy(gone), CUDA_SUCCESS);
#define LEFT(CALL)                                                     \
  do {                                                                 \
    mode = modes[i];                                                   \
    IS(gpu.ThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);      \
    CALL;                                                              \
    IS(gpu.ThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);      \
    CHECK(mode == modes[i]);                                           \
    IS(gpu.CtxGetCurrent(&now), CUDA_SUCCESS);                         \
    CHECK(now == own);                                                 \
  } while (0)
  for (i = 0; i < 3; i++) {
    LEFT(OK(ncclAllReduce(a, a, N, ncclFloat, ncclSum, r->comm, (cudaStream_t)s)));
    LEFT(OK(ncclAllReduce(a, a, 10, ncclFloat, ncclSum, r->comm, (cudaStream_t)s)));
    LEFT(FAILS(ncclAllReduce(a, other, N, ncclFloat, ncclSum, r->comm, (cudaStream_t)s), ncclInvalidArgument,
               "is memory of device 1"));
    LEFT(FAILS(ncclAllReduce(a, a, N, ncclFloat, ncclSum, r->comm, (cudaStream_t)gone), ncclUnhandledCudaError,
               "has it been destroyed? cuStreamGetId: CUDA_ERROR_INVALID_HANDLE"));
    LEFT(FAILS(ncclAllReduce(a, a, N, (ncclDataType_t)ncclNumTypes, ncclSum, r->comm, (cudaStream_t)s),
               ncclInvalidArgument, "datatype"));
    LEFT(OK(ncclMemAlloc(&at, 1000)));
    LEFT(OK(ncclMemFree(at)));
    gpu.Fail("cuMemAlloc_v2", CUDA_ERROR_OUT_OF_MEMORY, 0);
    LEFT(FAILS(ncclMemAlloc(&at, 1000), ncclUnhandledCudaError, "CUDA_ERROR_OUT_OF_MEMORY"));
    gpu.Fail(NULL, 0, 0);
  }
  for (i = 0; i < 3; i++) { /* each fails in the middle, and fails its communicator */
    static const char *const functions[] = {"cuLaunchHostFunc", "cuMemcpyHtoDAsync_v2", "cuStreamWaitValue32_v2"};
    static const char *const named[] = {"cuLaunchHostFunc: ", "cuMemcpyHtoDAsync: ", "cuStreamWaitValue32: "};
    ncclComm_t comm;
    ncclUniqueId id;
    LEFT(OK(ncclGetUniqueId(&id)));
    LEFT(OK(ncclCommInitRank(&comm, 1, id, 0)));
    gpu.Fail(functions[i], CUDA_ERROR_ILLEGAL_ADDRESS, 0);
    LEFT(FAILS(ncclAllReduce(a, a, N, ncclFloat, ncclSum, comm, (cudaStream_t)s), ncclUnhandledCudaError, named[i]));
    gpu.Fail(NULL, 0, 0);
    LEFT(OK(ncclCommAbort(comm)));
  }
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
  i = 0;
  LEFT(OK(ncclCommDestroy(r->comm)));
  r->comm = NULL;
}

/* A thread without a context has the device of CUDA's runtime: here 3, of a library for tests. */
static void by_runtime(struct rank *r) {
  ncclUniqueId id;
  ncclComm_t comm;
  float *a, *b;
  int device;
  gpu_use(3);
  a = gpu_alloc(N * sizeof *a), b = gpu_alloc(N * sizeof *b);
  IS(gpu.CtxSetCurrent(NULL), CUDA_SUCCESS);
  CHECK(dlopen("libcudart.so.12", RTLD_NOW) != NULL);
  OK(ncclGetUniqueId(&id));
  OK(ncclCommInitRank(&comm, 1, id, 0));
  OK(ncclCommCuDevice(comm, &device));
  CHECK(device == 3);
  OK(ncclAllReduce(a, b, N, ncclFloat, ncclSum, comm, NULL));
  OK(ncclCommDestroy(comm));
  gpu_use(r->device);
}

/* A driver that lacks functions gives an error when a stream is used. Host memory works. */
static void old(struct rank *r) {
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  float a[4] = {1, 2, 3, 4};
  OK(ncclAllReduce(a, a, 4, ncclFloat, ncclSum, r->comm, NULL));
  CHECK(a[3] == 4);
  FAILS(ncclAllReduce(a, a, 4, ncclFloat, ncclSum, r->comm, (cudaStream_t)s), ncclInvalidArgument,
        "the CUDA driver (for CUDA 11.4) has no cuMemcpy2DAsync_v2: one for CUDA 12.0 or later is needed");
}

int main(int argc, char **argv) {
  static const struct test tests[] = {
      {"allocated", 2, allocated},   {"full", 1, full}, {"untouched", 1, untouched}, {"old", 1, old},
      {"by_runtime", 1, by_runtime},
  };
  gpu_open();
  run_tests(tests, sizeof tests / sizeof *tests, argc, argv);
  return 0;
}
