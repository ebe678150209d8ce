/* Memory of other ranks' devices, and words for which streams of several processes wait. */
#include <string.h>

#include "library.h"

const char *lpc_lacks(const struct lpc_library *c) { return c->lacks; }

static CUresult note(const struct lpc_library *c, uintptr_t ctx) {
  unsigned long long id = 0;
  CUresult rc = ctx != 0 ? c->CtxGetId((CUcontext)ctx, &id) : CUDA_SUCCESS;
  if (rc == CUDA_SUCCESS && ctx != 0) lpc_note_context(ctx, id);
  return rc;
}

CUresult lpc_context(const struct lpc_library *c, uintptr_t *ctx) {
  CUresult rc = c->CtxGetCurrent((CUcontext *)ctx);
  return rc != CUDA_SUCCESS ? rc : note(c, *ctx);
}

CUresult lpc_primary_context(const struct lpc_library *c, int device, uintptr_t *ctx) {
  CUresult rc = c->DevicePrimaryCtxRetain((CUcontext *)ctx, device);
  return rc != CUDA_SUCCESS ? rc : note(c, *ctx);
}

CUresult lpc_context_id(const struct lpc_library *c, uintptr_t ctx, uint64_t *id) {
  unsigned long long number = 0;
  CUresult rc = c->CtxGetId((CUcontext)ctx, &number);
  *id = number;
  return rc;
}

CUresult lpc_uuid(const struct lpc_library *c, void *bytes16) {
  CUdevice device;
  CUresult rc = c->CtxGetDevice(&device);
  return rc != CUDA_SUCCESS ? rc : c->DeviceGetUuid(bytes16, device);
}

CUresult lpc_total_memory(const struct lpc_library *c, size_t *bytes) {
  CUdevice device;
  CUresult rc = c->CtxGetDevice(&device);
  return rc != CUDA_SUCCESS ? rc : c->DeviceTotalMem(bytes, device);
}

CUresult lpc_device_alloc(const struct lpc_library *c, void **at, size_t size) {
  CUdeviceptr p = 0;
  CUresult rc = c->MemAlloc(&p, size);
  *at = (void *)(uintptr_t)p;
  return rc;
}

CUresult lpc_device_free(const struct lpc_library *c, void *at) { return c->MemFree((uintptr_t)at); }

CUresult lpc_allocation(const struct lpc_library *c, const void *at, uintptr_t *base, size_t *size) {
  CUdeviceptr begin = 0;
  CUresult rc = c->MemGetAddressRange(&begin, size, (uintptr_t)at);
  *base = (uintptr_t)begin;
  return rc;
}

CUresult lpc_export(const struct lpc_library *c, void *at, void *handle64) {
  return c->IpcGetMemHandle(handle64, (uintptr_t)at);
}

CUresult lpc_import(const struct lpc_library *c, const void *handle64, void **at) {
  CUipcMemHandle handle;
  CUdeviceptr p = 0;
  CUresult rc;
  memcpy(&handle, handle64, sizeof handle);
  rc = c->IpcOpenMemHandle(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  *at = (void *)(uintptr_t)p;
  return rc;
}

CUresult lpc_unimport(const struct lpc_library *c, void *at) { return c->IpcCloseMemHandle((uintptr_t)at); }

CUresult lpc_reach(const struct lpc_library *c, void *at) {
  CUcontext own = NULL, owner = NULL;
  CUdevice here = 0;
  int there = 0, can = 1;
  int attributes[] = {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  void *data[] = {&owner, &there};
  CUresult rc = lpc_reach_mapped(c, at);
  if (rc != (CUresult)LPC_NOT_MAPPED) return rc;
  rc = c->PointerGetAttributes(2, attributes, data, (uintptr_t)at);
  if (rc == CUDA_SUCCESS) rc = c->CtxGetCurrent(&own);
  if (rc != CUDA_SUCCESS || owner == own) return rc;
  rc = c->CtxGetDevice(&here);
  if (rc == CUDA_SUCCESS && here != there) rc = c->DeviceCanAccessPeer(&can, here, there);
  if (rc == CUDA_SUCCESS && !can) rc = CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  if (rc == CUDA_SUCCESS) rc = c->CtxEnablePeerAccess(owner, 0);
  return rc == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED ? CUDA_SUCCESS : rc;
}

CUresult lpc_register(const struct lpc_library *c, void *at, size_t size, uintptr_t *device) {
  CUdeviceptr p = 0;
  CUresult rc = c->MemHostRegister(at, size, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
  if (rc != CUDA_SUCCESS) return rc;
  rc = c->MemHostGetDevicePointer(&p, at, 0);
  if (rc != CUDA_SUCCESS) (void)c->MemHostUnregister(at);
  *device = (uintptr_t)p;
  return rc;
}

CUresult lpc_unregister(const struct lpc_library *c, void *at) { return c->MemHostUnregister(at); }

CUresult lpc_new_stream(const struct lpc_library *c, uintptr_t *stream) {
  CUstream s = NULL;
  CUresult rc = c->StreamCreate(&s, CU_STREAM_NON_BLOCKING);
  *stream = (uintptr_t)s;
  return rc;
}

CUresult lpc_free_stream(const struct lpc_library *c, uintptr_t stream) { return c->StreamDestroy((CUstream)stream); }

CUresult lpc_words(const struct lpc_library *c, uintptr_t stream, const struct lpc_word *words, unsigned n) {
  CUstreamBatchMemOpParams ops[LPC_MAX_WORDS];
  unsigned i;
  if (n > LPC_MAX_WORDS) return CUDA_ERROR_INVALID_VALUE;
  memset(ops, 0, n * sizeof *ops);
  for (i = 0; i < n; i++) {
    ops[i].word.operation = words[i].wait ? CU_STREAM_MEM_OP_WAIT_VALUE_32 : CU_STREAM_MEM_OP_WRITE_VALUE_32;
    ops[i].word.address = words[i].at;
    ops[i].word.value = words[i].value;
    ops[i].word.flags = words[i].wait ? CU_STREAM_WAIT_VALUE_EQ : 0;
  }
  return c->StreamBatchMemOp((CUstream)stream, n, ops, 0);
}
