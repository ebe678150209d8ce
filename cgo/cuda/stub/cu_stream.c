/* Streams, host functions, and operations on words. */
#include "stub.h"

STUB_API CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
  BEGIN();
  if (stub_current() == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  *stream = stub_new_stream(stub_current(), (flags & CU_STREAM_NON_BLOCKING) == 0);
  return CUDA_SUCCESS;
}

/* It waits for the stream's work; the handle is never given out again. */
STUB_API CUresult cuStreamDestroy_v2(CUstream s) {
  BEGIN();
  s->ended = true;
  stub_leave_queue(s);
  return CUDA_SUCCESS;
}

STUB_API CUresult cuStreamSynchronize(CUstream stream) {
  CUstream s = stub_stream(stream);
  BEGIN();
  if (s == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  if (stub_usable(stream) != CUDA_SUCCESS) return stub_usable(stream);
  if (s->capture != NULL) s->capture->invalid = true;
  if (stub_capture_forbids() || s->capture != NULL) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  stub_drain(s);
  return stub_failed(s->ctx);
}

STUB_API CUresult cuStreamQuery(CUstream stream) {
  CUstream s = stub_stream(stream);
  BEGIN();
  if (stub_usable(stream) != CUDA_SUCCESS) return stub_usable(stream);
  if (s->capture != NULL) s->capture->invalid = true;
  if (stub_capture_forbids() || s->capture != NULL) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return stub_busy(s) ? CUDA_ERROR_NOT_READY : stub_failed(s->ctx);
}

STUB_API CUresult cuStreamGetCtx(CUstream stream, CUcontext *ctx) {
  CUstream s = stub_stream(stream);
  BEGIN();
  if (s == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  if (s->ended) return CUDA_ERROR_INVALID_HANDLE;
  *ctx = s->ctx;
  return CUDA_SUCCESS;
}

STUB_API CUresult cuStreamGetId(CUstream stream, unsigned long long *id) {
  CUstream s = stub_stream(stream);
  BEGIN();
  if (s == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  if (s->ended) return CUDA_ERROR_INVALID_HANDLE;
  *id = s->id;
  return CUDA_SUCCESS;
}

STUB_API CUresult cuLaunchHostFunc(CUstream stream, CUhostFn fn, void *data) {
  BEGIN();
  return stub_submit(stream, (struct op){.kind = CALL, .fn = fn, .data = data});
}

static CUresult word(CUstream stream, enum kind kind, CUdeviceptr at, uint32_t value, unsigned flags) {
  void *reached = stub_reach(at, sizeof(uint32_t));
  struct block b;
  struct op op;
  unsigned most = kind == WAIT_VALUE ? CU_STREAM_WAIT_VALUE_EQ : 0; /* the largest flag that the stub knows */
  if (reached == NULL || !stub_find(at, &b) || at % sizeof(uint32_t) != 0 || flags > most)
    return CUDA_ERROR_INVALID_VALUE;
  if (b.device != NULL) return CUDA_ERROR_INVALID_VALUE; /* the host's pointer to registered memory */
  op = (struct op){.kind = kind, .dst = reached, .value = value, .flags = flags};
  if (stub_clock()) op.key = stub_key(at, &op.of_host), stub_count_word();
  return stub_submit(stream, op);
}

STUB_API CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr at, cuuint32_t value, unsigned flags) {
  BEGIN();
  return word(stream, WAIT_VALUE, at, value, flags);
}

STUB_API CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr at, cuuint32_t value, unsigned flags) {
  BEGIN();
  return word(stream, WRITE_VALUE, at, value, flags);
}

STUB_API CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned n, CUstreamBatchMemOpParams *ops, unsigned flags) {
  unsigned i;
  CUresult rc = CUDA_SUCCESS;
  BEGIN();
  if (n == 0 || n > 255 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  for (i = 0; rc == CUDA_SUCCESS && i < n; i++) {
    bool wait = ops[i].operation == CU_STREAM_MEM_OP_WAIT_VALUE_32;
    if (!wait && ops[i].operation != CU_STREAM_MEM_OP_WRITE_VALUE_32) return CUDA_ERROR_INVALID_VALUE;
    rc = word(stream, wait ? WAIT_VALUE : WRITE_VALUE, ops[i].word.address, ops[i].word.value, ops[i].word.flags);
  }
  return rc;
}
