/* Events. */
#include "stub.h"

STUB_API CUresult cuEventCreate(CUevent *event, unsigned flags) {
  (void)flags;
  BEGIN();
  if (stub_current() == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  *event = stub_new_event(stub_current());
  return CUDA_SUCCESS;
}

static bool gone(CUevent e) { return e == NULL || e->destroyed; }

/* Operations may still use it, so its memory stays. */
STUB_API CUresult cuEventDestroy_v2(CUevent e) {
  BEGIN();
  if (gone(e)) return CUDA_ERROR_INVALID_HANDLE;
  e->destroyed = true;
  return CUDA_SUCCESS;
}

STUB_API CUresult cuEventRecord(CUevent e, CUstream stream) {
  CUstream s = stub_stream(stream);
  BEGIN();
  if (s == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  if (gone(e) || e->ctx != s->ctx) return CUDA_ERROR_INVALID_HANDLE;
  if (stub_enqueues(stream) != CUDA_SUCCESS) return stub_enqueues(stream);
  stub_clear_nodes(&e->before);
  e->capture = 0;
  if (stub_clock()) e->counts = *stub_counts();
  if (s->capture != NULL) {
    if (s->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    e->capture = s->capture->id;
    stub_add_nodes(&e->before, &s->at);
    return CUDA_SUCCESS;
  }
  return stub_submit(stream, (struct op){.kind = RECORD, .event = e, .record = stub_record(e)});
}

/* In a capture, the next operation of the stream depends on the nodes before the event. */
static CUresult join(CUstream s, CUevent e) {
  CUgraph g = stub_capturing(e->capture);
  if (g == NULL) return CUDA_ERROR_CAPTURED_EVENT;
  if (s->capture != NULL && s->capture != g) {
    s->capture->invalid = g->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  if (g->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (s == s->ctx->legacy) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  s->capture = g;
  stub_add_nodes(&s->at, &e->before);
  return CUDA_SUCCESS;
}

STUB_API CUresult cuStreamWaitEvent(CUstream stream, CUevent e, unsigned flags) {
  CUstream s = stub_stream(stream);
  struct recording *last;
  BEGIN();
  if (s == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  if (gone(e)) return CUDA_ERROR_INVALID_HANDLE;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (stub_enqueues(stream) != CUDA_SUCCESS) return stub_enqueues(stream);
  if (e->capture != 0) return join(s, e);
  if (s->capture != NULL) {
    s->capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  last = stub_recorded(e);
  return last == NULL ? CUDA_SUCCESS
                      : stub_submit(stream, (struct op){.kind = WAIT_EVENT, .event = e, .record = last});
}

static CUresult query(CUevent e) {
  bool ready;
  if (gone(e)) return CUDA_ERROR_INVALID_HANDLE;
  if (e->capture != 0) return CUDA_ERROR_CAPTURED_EVENT;
  if (stub_capture_forbids()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  pthread_mutex_lock(&e->mutex);
  ready = e->last == NULL || e->last->reached;
  if (ready && e->last != NULL) stub_host_reached(e->last->now);
  pthread_mutex_unlock(&e->mutex);
  return ready ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

STUB_API CUresult cuEventQuery(CUevent e) {
  BEGIN();
  return query(e);
}

STUB_API CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to) {
  struct recording *a, *b;
  CUresult rc;
  BEGIN();
  rc = query(from);
  if (rc == CUDA_SUCCESS) rc = query(to);
  if (rc != CUDA_SUCCESS) return rc;
  a = from->last, b = to->last;
  if (a == NULL || b == NULL) return CUDA_ERROR_INVALID_HANDLE;
  if (stub_clock()) stub_interval(&from->counts, &to->counts);
  *ms = stub_clock() ? ((float)b->now - (float)a->now) / 1e6f :
        (float)(b->at.tv_sec - a->at.tv_sec) * 1e3f + (float)(b->at.tv_nsec - a->at.tv_nsec) / 1e6f;
  return CUDA_SUCCESS;
}
