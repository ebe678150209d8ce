/* Streams: enqueues operations, into a graph during a capture, and orders streams with the default one. */
#include "stub.h"

#include <stdlib.h>

static pthread_mutex_t all_mutex = PTHREAD_MUTEX_INITIALIZER;
static CUstream all;

CUstream stub_new_stream(CUcontext ctx, bool blocking) {
  static uint64_t ids;
  CUstream s = calloc(1, sizeof *s);
  s->ctx = ctx;
  s->id = __atomic_add_fetch(&ids, 1, __ATOMIC_RELAXED);
  s->blocking = blocking;
  stub_join_queue(s);
  pthread_mutex_lock(&all_mutex);
  s->next = all;
  all = s;
  pthread_mutex_unlock(&all_mutex);
  return s;
}

CUstream stub_stream(CUstream stream) {
  enum { MOST = 64 };
  static __thread CUstream own[MOST]; /* by context */
  CUstream *mine;
  CUcontext ctx = stub_current();
  if (stream != NULL && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD) return stream;
  if (ctx == NULL) return NULL;
  if (stream != CU_STREAM_PER_THREAD) return ctx->legacy;
  mine = &own[ctx->id % MOST];
  if (*mine == NULL || (*mine)->ctx != ctx) *mine = stub_new_stream(ctx, true);
  return *mine;
}

/* The capture that makes the legacy default stream unusable: one of a blocking stream. */
static CUgraph blocking_capture(CUcontext ctx) {
  CUgraph found = NULL;
  CUstream s;
  pthread_mutex_lock(&all_mutex);
  for (s = all; s != NULL && found == NULL; s = s->next)
    if (s->blocking && s->ctx == ctx) found = s->capture;
  pthread_mutex_unlock(&all_mutex);
  return found;
}

CUresult stub_usable(CUstream stream) {
  CUstream s = stub_stream(stream);
  if (s == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  if (s->ended) return CUDA_ERROR_INVALID_HANDLE;
  return s == s->ctx->legacy && blocking_capture(s->ctx) != NULL ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
}

CUresult stub_enqueues(CUstream stream) {
  CUstream s = stub_stream(stream);
  CUresult rc = stub_usable(stream);
  if (rc == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) blocking_capture(s->ctx)->invalid = true;
  return rc == CUDA_SUCCESS && s->ctx != stub_current() ? CUDA_ERROR_INVALID_HANDLE : rc;
}

void stub_leave_capture(CUgraph graph) {
  CUstream s;
  pthread_mutex_lock(&all_mutex);
  for (s = all; s != NULL; s = s->next) {
    if (s->capture != graph) continue;
    s->capture = NULL;
    stub_clear_nodes(&s->at);
  }
  pthread_mutex_unlock(&all_mutex);
}

void stub_drain_context(CUcontext ctx) {
  CUstream s;
  pthread_mutex_lock(&all_mutex);
  s = all;
  pthread_mutex_unlock(&all_mutex);
  for (; s != NULL; s = s->next) /* streams stay in the list, which grows at its head */
    if (s->ctx == ctx) stub_drain(s);
}

CUevent stub_new_event(CUcontext ctx) {
  CUevent e = calloc(1, sizeof *e);
  pthread_mutex_init(&e->mutex, NULL);
  pthread_cond_init(&e->changed, NULL);
  e->ctx = ctx;
  return e;
}

void stub_drop(struct recording *r) {
  if (--r->users == 0) free(r);
}

struct recording *stub_record(CUevent e) {
  struct recording *r = calloc(1, sizeof *r);
  r->users = 2;
  pthread_mutex_lock(&e->mutex);
  if (e->last != NULL) stub_drop(e->last);
  e->last = r;
  pthread_mutex_unlock(&e->mutex);
  return r;
}

struct recording *stub_recorded(CUevent e) {
  struct recording *r;
  pthread_mutex_lock(&e->mutex);
  r = e->last;
  if (r != NULL) r->users++;
  pthread_mutex_unlock(&e->mutex);
  return r;
}

/* Orders the next operation of s after all operations of other. */
static void follow(CUstream s, CUstream other) {
  CUevent e = stub_new_event(s->ctx); /* never freed: it is small */
  stub_append(other, (struct op){.kind = RECORD, .event = e, .record = stub_record(e)}, true);
  stub_append(s, (struct op){.kind = WAIT_EVENT, .event = e, .record = stub_recorded(e)}, true);
}

/* The default stream comes after all blocking streams, and they after it. */
static void order(CUstream s) {
  CUstream other;
  if (s == s->ctx->legacy) {
    pthread_mutex_lock(&all_mutex);
    for (other = all; other != NULL; other = other->next)
      if (other->blocking && !other->ended && other->ctx == s->ctx && stub_busy(other)) follow(s, other);
    pthread_mutex_unlock(&all_mutex);
  } else if (s->blocking && stub_busy(s->ctx->legacy)) {
    follow(s, s->ctx->legacy);
  }
}

CUresult stub_submit(CUstream stream, struct op op) {
  CUstream s = stub_stream(stream);
  CUresult rc = stub_enqueues(stream);
  if (rc != CUDA_SUCCESS) return rc;
  if (s->capture != NULL) {
    if (s->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    stub_capture(s, op);
    return CUDA_SUCCESS;
  }
  order(s);
  stub_append(s, op, false);
  return CUDA_SUCCESS;
}
