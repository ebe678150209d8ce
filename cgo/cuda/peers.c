/* Memory of other ranks' devices, and words for which streams of several processes wait. */
#include <string.h>

#include "library.h"

const char *lpc_lacks(void) { return lpc.lacks[LPC_PEERS]; }

static CUresult note(uintptr_t ctx) {
  unsigned long long id = 0;
  CUresult rc = ctx != 0 ? lpc.CtxGetId((CUcontext)ctx, &id) : CUDA_SUCCESS;
  if (rc == CUDA_SUCCESS && ctx != 0) lpc_note_context(ctx, id);
  return rc;
}

CUresult lpc_context(uintptr_t *ctx) {
  CUresult rc = lpc.CtxGetCurrent((CUcontext *)ctx);
  return rc != CUDA_SUCCESS ? rc : note(*ctx);
}

CUresult lpc_primary_context(int device, uintptr_t *ctx) {
  CUresult rc = lpc.DevicePrimaryCtxRetain((CUcontext *)ctx, device);
  return rc != CUDA_SUCCESS ? rc : note(*ctx);
}

CUresult lpc_context_id(uintptr_t ctx, uint64_t *id) {
  unsigned long long number = 0;
  CUresult rc = lpc.CtxGetId((CUcontext)ctx, &number);
  *id = number;
  return rc;
}

CUresult lpc_uuid(void *bytes16) {
  CUdevice device;
  CUresult rc = lpc.CtxGetDevice(&device);
  return rc != CUDA_SUCCESS ? rc : lpc.DeviceGetUuid(bytes16, device);
}

CUresult lpc_total_memory(size_t *bytes) {
  CUdevice device;
  CUresult rc = lpc.CtxGetDevice(&device);
  return rc != CUDA_SUCCESS ? rc : lpc.DeviceTotalMem(bytes, device);
}

CUresult lpc_device_alloc(void **at, size_t size) {
  CUdeviceptr p = 0;
  CUresult rc = lpc.MemAlloc(&p, size);
  *at = (void *)(uintptr_t)p;
  return rc;
}

CUresult lpc_device_free(void *at) { return lpc.MemFree((uintptr_t)at); }

CUresult lpc_allocation(const void *at, uintptr_t *base, size_t *size) {
  CUdeviceptr begin = 0;
  CUresult rc = lpc.MemGetAddressRange(&begin, size, (uintptr_t)at);
  *base = (uintptr_t)begin;
  return rc;
}

CUresult lpc_export(void *at, void *handle64) { return lpc.IpcGetMemHandle(handle64, (uintptr_t)at); }

CUresult lpc_import(const void *handle64, void **at) {
  CUipcMemHandle handle;
  CUdeviceptr p = 0;
  CUresult rc;
  memcpy(&handle, handle64, sizeof handle);
  rc = lpc.IpcOpenMemHandle(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  *at = (void *)(uintptr_t)p;
  return rc;
}

CUresult lpc_unimport(void *at) { return lpc.IpcCloseMemHandle((uintptr_t)at); }

CUresult lpc_reach(void *at) {
  CUcontext own = NULL, owner = NULL;
  CUdevice here = 0;
  int there = 0, can = 1;
  int attributes[] = {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  void *data[] = {&owner, &there};
  CUresult rc = lpc_reach_mapped(at);
  if (rc != (CUresult)LPC_NOT_MAPPED) return rc;
  rc = lpc.PointerGetAttributes(2, attributes, data, (uintptr_t)at);
  if (rc == CUDA_SUCCESS) rc = lpc.CtxGetCurrent(&own);
  if (rc != CUDA_SUCCESS || owner == own) return rc;
  rc = lpc.CtxGetDevice(&here);
  if (rc == CUDA_SUCCESS && here != there) rc = lpc.DeviceCanAccessPeer(&can, here, there);
  if (rc == CUDA_SUCCESS && !can) rc = CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  if (rc == CUDA_SUCCESS) rc = lpc.CtxEnablePeerAccess(owner, 0);
  return rc == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED ? CUDA_SUCCESS : rc;
}

CUresult lpc_register(void *at, size_t size, uintptr_t *device) {
  CUdeviceptr p = 0;
  CUresult rc = lpc.MemHostRegister(at, size, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
  if (rc != CUDA_SUCCESS) return rc;
  rc = lpc.MemHostGetDevicePointer(&p, at, 0);
  if (rc != CUDA_SUCCESS) (void)lpc.MemHostUnregister(at);
  *device = (uintptr_t)p;
  return rc;
}

CUresult lpc_unregister(void *at) { return lpc.MemHostUnregister(at); }

CUresult lpc_new_stream(uintptr_t *stream) {
  CUstream s = NULL;
  CUresult rc = lpc.StreamCreate(&s, CU_STREAM_NON_BLOCKING);
  *stream = (uintptr_t)s;
  return rc;
}

CUresult lpc_free_stream(uintptr_t stream) { return lpc.StreamDestroy((CUstream)stream); }

CUresult lpc_words(uintptr_t stream, const struct lpc_word *words, unsigned n) {
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
  return lpc.StreamBatchMemOp((CUstream)stream, n, ops, 0);
}
