/* Devices, contexts, and the names of errors. */
#include "stub.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

STUB_API CUresult cuDriverGetVersion(int *version) {
  *version = stub_version();
  return CUDA_SUCCESS;
}

STUB_API CUresult cuDeviceGetCount(int *n) {
  BEGIN();
  *n = stub_devices();
  return CUDA_SUCCESS;
}

STUB_API CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
  BEGIN();
  memset(uuid, 0, sizeof *uuid);
  snprintf(uuid->bytes, sizeof uuid->bytes, "stub device %d", device);
  return CUDA_SUCCESS;
}

/* STUB_CUDA_MEMORY: the bytes of a device's memory. By default they are few, or, with a clock, those of an H200. */
STUB_API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
  const char *size = getenv("STUB_CUDA_MEMORY");
  (void)device;
  BEGIN();
  *bytes = size != NULL ? strtoull(size, NULL, 10) : stub_clock() ? (size_t)141e9 : (size_t)1 << 30;
  return CUDA_SUCCESS;
}

STUB_API CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
  BEGIN();
  *can = device != peer && stub_peers();
  return CUDA_SUCCESS;
}

STUB_API CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
  CUcontext ctx = stub_current();
  BEGIN();
  if (ctx == NULL || peer == ctx || flags != 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (peer->device == ctx->device || !stub_peers()) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  return __atomic_exchange_n(&ctx->reaches[peer->device], true, __ATOMIC_ACQ_REL)
             ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
             : CUDA_SUCCESS;
}

static CUcontext new_context(CUdevice device) {
  static unsigned long long ids;
  CUcontext ctx = calloc(1, sizeof *ctx);
  ctx->id = __atomic_add_fetch(&ids, 1, __ATOMIC_RELAXED);
  ctx->device = device;
  pthread_mutex_init(&ctx->lock, NULL);
  stub_made_context();
  ctx->legacy = stub_new_stream(ctx, false);
  return ctx;
}

STUB_API CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice device) {
  static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
  static CUcontext primary[MAX_DEVICES];
  BEGIN();
  if (device < 0 || device >= stub_devices()) return CUDA_ERROR_INVALID_DEVICE;
  pthread_mutex_lock(&making);
  if (primary[device] == NULL) primary[device] = new_context(device);
  *ctx = primary[device];
  pthread_mutex_unlock(&making);
  return CUDA_SUCCESS;
}

STUB_API CUresult cuCtxGetCurrent(CUcontext *ctx) {
  BEGIN();
  *ctx = stub_current();
  return CUDA_SUCCESS;
}

STUB_API CUresult cuCtxSetCurrent(CUcontext ctx) {
  BEGIN();
  stub_set_current(ctx);
  return CUDA_SUCCESS;
}

/* Contexts below the thread's current one. */
static __thread CUcontext stack[16];
static __thread unsigned depth;

static CUresult push(CUcontext ctx) {
  if (ctx == NULL || depth == sizeof stack / sizeof *stack) return CUDA_ERROR_INVALID_CONTEXT;
  stack[depth++] = stub_current();
  stub_set_current(ctx);
  return CUDA_SUCCESS;
}

STUB_API CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
  BEGIN();
  return push(ctx);
}

STUB_API CUresult cuCtxPopCurrent_v2(CUcontext *ctx) {
  BEGIN();
  if (depth == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (ctx != NULL) *ctx = stub_current();
  stub_set_current(stack[--depth]);
  return CUDA_SUCCESS;
}

STUB_API CUresult cuCtxCreate_v2(CUcontext *ctx, unsigned flags, CUdevice device) {
  BEGIN();
  if (flags != 0 || device < 0 || device >= stub_devices()) return CUDA_ERROR_INVALID_VALUE;
  *ctx = new_context(device);
  return push(*ctx);
}

STUB_API CUresult cuCtxGetDevice(CUdevice *device) {
  BEGIN();
  if (stub_current() == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  *device = stub_current()->device;
  return CUDA_SUCCESS;
}

/* The stub never destroys a context. */
STUB_API CUresult cuCtxGetId(CUcontext ctx, unsigned long long *id) {
  BEGIN();
  if (ctx == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  *id = ctx->id;
  return CUDA_SUCCESS;
}

/* The properties of devices, which tests may set. */
static int number(const char *variable, int unless) {
  const char *v = getenv(variable);
  return v != NULL ? atoi(v) : unless;
}

STUB_API CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
  BEGIN();
  if (device < 0 || device >= stub_devices()) return CUDA_ERROR_INVALID_DEVICE;
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = stub_clock() ? 132 : 1; /* 1: so that little data needs several turns */
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = stub_architecture(device) / 10; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = stub_architecture(device) % 10; break;
    case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED: *value = number("STUB_CUDA_DMA_BUF", 1); break;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING: *value = number("STUB_CUDA_WRITES_ORDERING", 100); break;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS: *value = number("STUB_CUDA_FLUSH_OPTIONS", 1); break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

STUB_API CUresult cuGetErrorName(CUresult error, const char **name) {
  static const struct { CUresult error; const char *name;
  } names[] = {
#define NAME(e) {e, #e}
      NAME(CUDA_SUCCESS),
      NAME(CUDA_ERROR_INVALID_VALUE),
      NAME(CUDA_ERROR_OUT_OF_MEMORY),
      NAME(CUDA_ERROR_NOT_INITIALIZED),
      NAME(CUDA_ERROR_NO_DEVICE),
      NAME(CUDA_ERROR_INVALID_DEVICE),
      NAME(CUDA_ERROR_INVALID_IMAGE),
      NAME(CUDA_ERROR_INVALID_CONTEXT),
      NAME(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED),
      NAME(CUDA_ERROR_INVALID_PTX),
      NAME(CUDA_ERROR_INVALID_HANDLE),
      NAME(CUDA_ERROR_ALREADY_MAPPED),
      NAME(CUDA_ERROR_NO_BINARY_FOR_GPU),
      NAME(CUDA_ERROR_UNSUPPORTED_PTX_VERSION),
      NAME(CUDA_ERROR_NOT_PERMITTED),
      NAME(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED),
      NAME(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED),
      NAME(CUDA_ERROR_STREAM_CAPTURE_MERGE),
      NAME(CUDA_ERROR_CAPTURED_EVENT),
      NAME(CUDA_ERROR_NOT_FOUND),
      NAME(CUDA_ERROR_NOT_READY),
      NAME(CUDA_ERROR_ILLEGAL_ADDRESS),
      NAME(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES),
      NAME(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED),
      NAME(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
      NAME(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
      NAME(CUDA_ERROR_STREAM_CAPTURE_UNJOINED),
      NAME(CUDA_ERROR_STREAM_CAPTURE_ISOLATION),
      NAME(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT),
#undef NAME
  };
  size_t i;
  for (i = 0; i < sizeof names / sizeof *names; i++) {
    if (names[i].error == error) {
      *name = names[i].name;
      return CUDA_SUCCESS;
    }
  }
  *name = NULL;
  return CUDA_ERROR_INVALID_VALUE;
}

STUB_API CUresult cuGetErrorString(CUresult error, const char **text) { return cuGetErrorName(error, text); }
