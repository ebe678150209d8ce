/* Streams, each a thread that carries out its operations in order, and events. */
#include "stub.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct CUevent_st {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  uint64_t recorded, reached; /* turns: how often it was recorded, and which of them has been reached */
  struct timespec at;         /* when that was */
  CUgraph capture;            /* that it was last recorded in */
};

static pthread_mutex_t all_mutex = PTHREAD_MUTEX_INITIALIZER;
static CUstream all;

/* ---- Operations ---- */

static void reach(CUevent e, uint64_t turn) {
  pthread_mutex_lock(&e->mutex);
  if (e->reached < turn) e->reached = turn;
  clock_gettime(CLOCK_MONOTONIC, &e->at);
  pthread_cond_broadcast(&e->changed);
  pthread_mutex_unlock(&e->mutex);
}

static void await(CUevent e, uint64_t turn) {
  pthread_mutex_lock(&e->mutex);
  while (e->reached < turn) pthread_cond_wait(&e->changed, &e->mutex);
  pthread_mutex_unlock(&e->mutex);
}

static bool satisfied(const struct op *op) {
  uint32_t now = __atomic_load_n((uint32_t *)op->dst, __ATOMIC_ACQUIRE);
  return op->flags == CU_STREAM_WAIT_VALUE_EQ ? now == op->value : (int32_t)(now - op->value) >= 0;
}

void stub_run(struct op *op) {
  const struct timespec pause = {0, 20000};
  switch (op->kind) {
    case COPY: memmove(op->dst, op->src, op->size); break;
    case CALL: op->fn(op->data); break;
    case WAIT_VALUE:
      while (!satisfied(op)) nanosleep(&pause, NULL);
      break;
    case WRITE_VALUE: __atomic_store_n((uint32_t *)op->dst, op->value, __ATOMIC_RELEASE); break;
    case KERNEL: stub_run_kernel(op); break;
    case RECORD: reach(op->event, op->turn); break;
    case WAIT_EVENT: await(op->event, op->turn); break;
  }
}

/* ---- Streams ---- */

static void *serve(void *arg) {
  CUstream s = arg;
  struct op *op;
  pthread_mutex_lock(&s->mutex);
  for (;;) {
    while (s->first == NULL && !s->ended) pthread_cond_wait(&s->changed, &s->mutex);
    if (s->first == NULL) break;
    op = s->first;
    pthread_mutex_unlock(&s->mutex);
    if (op->kind >= RECORD || !stub_failed(s->ctx)) stub_run(op);
    pthread_mutex_lock(&s->mutex);
    s->first = op->next;
    if (s->first == NULL) s->last = &s->first;
    s->done++;
    pthread_cond_broadcast(&s->changed);
    free(op);
  }
  pthread_mutex_unlock(&s->mutex);
  return NULL;
}

CUstream stub_new_stream(CUcontext ctx, bool blocking) {
  CUstream s = calloc(1, sizeof *s);
  s->ctx = ctx;
  s->blocking = blocking;
  s->last = &s->first;
  pthread_mutex_init(&s->mutex, NULL);
  pthread_cond_init(&s->changed, NULL);
  pthread_create(&s->thread, NULL, serve, s);
  pthread_mutex_lock(&all_mutex);
  s->next = all;
  all = s;
  pthread_mutex_unlock(&all_mutex);
  return s;
}

CUstream stub_stream(CUstream stream) {
  CUcontext ctx = stub_current();
  if (stream != NULL) return stream;
  return ctx != NULL ? ctx->legacy : NULL;
}

void stub_leave_capture(CUgraph graph) {
  CUstream s;
  pthread_mutex_lock(&all_mutex);
  for (s = all; s != NULL; s = s->next)
    if (s->capture == graph) s->capture = NULL;
  pthread_mutex_unlock(&all_mutex);
}

static void append(CUstream s, struct op op) {
  struct op *own = malloc(sizeof *own);
  *own = op;
  own->next = NULL;
  pthread_mutex_lock(&s->mutex);
  *s->last = own;
  s->last = &own->next;
  s->queued++;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->mutex);
}

static void drain(CUstream s) {
  uint64_t upto;
  pthread_mutex_lock(&s->mutex);
  for (upto = s->queued; s->done < upto;) pthread_cond_wait(&s->changed, &s->mutex);
  pthread_mutex_unlock(&s->mutex);
}

static bool busy(CUstream s) {
  bool is;
  pthread_mutex_lock(&s->mutex);
  is = s->queued > s->done;
  pthread_mutex_unlock(&s->mutex);
  return is;
}

/* What one stream does next comes after what another has been given. */
static void follow(CUstream s, CUstream other) {
  CUevent e;
  if (cuEventCreate(&e, 0) != CUDA_SUCCESS) return;
  e->recorded = 1;
  append(other, (struct op){.kind = RECORD, .event = e, .turn = 1});
  append(s, (struct op){.kind = WAIT_EVENT, .event = e, .turn = 1}); /* e lives on: it is small */
}

/* The default stream comes after all blocking streams, and they after it. */
static void order(CUstream s) {
  CUstream other;
  if (s == s->ctx->legacy) {
    pthread_mutex_lock(&all_mutex);
    for (other = all; other != NULL; other = other->next)
      if (other->blocking && !other->ended && other->ctx == s->ctx && busy(other)) follow(s, other);
    pthread_mutex_unlock(&all_mutex);
  } else if (s->blocking && busy(s->ctx->legacy)) {
    follow(s, s->ctx->legacy);
  }
}

CUresult stub_submit(CUstream stream, struct op op) {
  CUstream s = stub_stream(stream);
  if (s == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  if (s->capture != NULL) {
    if (s->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    stub_graph_append(s->capture, op);
    return CUDA_SUCCESS;
  }
  order(s);
  append(s, op);
  return CUDA_SUCCESS;
}

STUB_API CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
  BEGIN();
  if (stub_current() == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  *stream = stub_new_stream(stub_current(), (flags & CU_STREAM_NON_BLOCKING) == 0);
  return CUDA_SUCCESS;
}

/* The stream's thread ends when its work has; the handle is never given out again. */
STUB_API CUresult cuStreamDestroy_v2(CUstream s) {
  BEGIN();
  pthread_mutex_lock(&s->mutex);
  s->ended = true;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->mutex);
  pthread_join(s->thread, NULL);
  return CUDA_SUCCESS;
}

STUB_API CUresult cuStreamSynchronize(CUstream stream) {
  CUstream s = stub_stream(stream);
  BEGIN();
  if (s == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  if (stub_capture_forbids() || s->capture != NULL) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  drain(s);
  return stub_failed(s->ctx);
}

STUB_API CUresult cuStreamQuery(CUstream stream) {
  CUstream s = stub_stream(stream);
  bool ready;
  BEGIN();
  if (s == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  pthread_mutex_lock(&s->mutex);
  ready = s->done == s->queued;
  pthread_mutex_unlock(&s->mutex);
  return ready ? stub_failed(s->ctx) : CUDA_ERROR_NOT_READY;
}

STUB_API CUresult cuStreamGetCtx(CUstream stream, CUcontext *ctx) {
  CUstream s = stub_stream(stream);
  BEGIN();
  if (s == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  if (s->ended) return CUDA_ERROR_INVALID_HANDLE;
  *ctx = s->ctx;
  return CUDA_SUCCESS;
}

STUB_API CUresult cuLaunchHostFunc(CUstream stream, CUhostFn fn, void *data) {
  BEGIN();
  return stub_submit(stream, (struct op){.kind = CALL, .fn = fn, .data = data});
}

static CUresult word(CUstream stream, enum kind kind, CUdeviceptr at, uint32_t value, unsigned flags) {
  void *reached = stub_reach(at, sizeof(uint32_t));
  if (reached == NULL || at % sizeof(uint32_t) != 0 || stub_is_registered(at)) return CUDA_ERROR_INVALID_VALUE;
  return stub_submit(stream, (struct op){.kind = kind, .dst = reached, .value = value, .flags = flags});
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
  if (n > 255 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  for (i = 0; rc == CUDA_SUCCESS && i < n; i++) {
    bool wait = ops[i].operation == CU_STREAM_MEM_OP_WAIT_VALUE_32;
    if (!wait && ops[i].operation != CU_STREAM_MEM_OP_WRITE_VALUE_32) return CUDA_ERROR_INVALID_VALUE;
    rc = word(stream, wait ? WAIT_VALUE : WRITE_VALUE, ops[i].word.address, ops[i].word.value, ops[i].word.flags);
  }
  return rc;
}

/* ---- Events ---- */

STUB_API CUresult cuEventCreate(CUevent *event, unsigned flags) {
  CUevent e;
  (void)flags;
  BEGIN();
  e = calloc(1, sizeof *e);
  pthread_mutex_init(&e->mutex, NULL);
  pthread_cond_init(&e->changed, NULL);
  *event = e;
  return CUDA_SUCCESS;
}

/* Operations may still refer to it: its memory stays. */
STUB_API CUresult cuEventDestroy_v2(CUevent e) {
  BEGIN();
  return e == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

STUB_API CUresult cuEventRecord(CUevent e, CUstream stream) {
  CUstream s = stub_stream(stream);
  BEGIN();
  if (s == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  e->capture = s->capture;
  if (s->capture != NULL) return CUDA_SUCCESS; /* a graph runs in the order of its making */
  return stub_submit(s, (struct op){.kind = RECORD, .event = e, .turn = ++e->recorded});
}

STUB_API CUresult cuStreamWaitEvent(CUstream stream, CUevent e, unsigned flags) {
  CUstream s = stub_stream(stream);
  (void)flags;
  BEGIN();
  if (s == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  if (e->capture != NULL) {
    if (s->capture != NULL && s->capture != e->capture) return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    s->capture = e->capture; /* it joins */
    return CUDA_SUCCESS;
  }
  if (s->capture != NULL) {
    s->capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  return e->recorded == 0 ? CUDA_SUCCESS : stub_submit(s, (struct op){.kind = WAIT_EVENT, .event = e, .turn = e->recorded});
}

STUB_API CUresult cuEventQuery(CUevent e) {
  bool ready;
  BEGIN();
  if (stub_capture_forbids()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  pthread_mutex_lock(&e->mutex);
  ready = e->reached == e->recorded;
  pthread_mutex_unlock(&e->mutex);
  return ready ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

STUB_API CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to) {
  CUresult rc = cuEventQuery(from);
  BEGIN();
  if (rc == CUDA_SUCCESS) rc = cuEventQuery(to);
  if (rc != CUDA_SUCCESS) return rc;
  if (from->recorded == 0 || to->recorded == 0) return CUDA_ERROR_INVALID_HANDLE;
  *ms = (float)(to->at.tv_sec - from->at.tv_sec) * 1e3f + (float)(to->at.tv_nsec - from->at.tv_nsec) / 1e6f;
  return CUDA_SUCCESS;
}
