/* Streams, each a thread that runs its operations in order, and events. */
#include "stub.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct CUevent_st {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  uint64_t recorded, reached; /* turns: how often it was recorded, and which turn has been reached */
  struct timespec at;         /* when that was */
  CUcontext ctx;
  uint64_t now; /* of the virtual clock, at that time */
  struct stub_counts counts; /* of the thread, when it was recorded */
  bool destroyed;
  uint64_t capture;    /* the capture that it was last recorded in, 0: none */
  struct nodes before; /* of that capture: the nodes before it */
};

static pthread_mutex_t all_mutex = PTHREAD_MUTEX_INITIALIZER;
static CUstream all;

/* ---- Operations ---- */

static void reach(CUevent e, uint64_t turn, uint64_t now) {
  pthread_mutex_lock(&e->mutex);
  if (e->reached < turn) e->reached = turn, e->now = now;
  clock_gettime(CLOCK_MONOTONIC, &e->at);
  pthread_cond_broadcast(&e->changed);
  pthread_mutex_unlock(&e->mutex);
}

static void await(CUevent e, uint64_t turn) {
  pthread_mutex_lock(&e->mutex);
  if (e->reached < turn) stub_end_turn();
  while (e->reached < turn) pthread_cond_wait(&e->changed, &e->mutex);
  pthread_mutex_unlock(&e->mutex);
}

static bool satisfied(const struct op *op) {
  uint32_t now = __atomic_load_n((uint32_t *)op->dst, __ATOMIC_ACQUIRE);
  return op->flags == CU_STREAM_WAIT_VALUE_EQ ? now == op->value : (int32_t)(now - op->value) >= 0;
}

/* How often a wait looks at its word before it sleeps between looks: STUB_CUDA_LOOKS. A device never sleeps. */
static unsigned long looks(void) {
  const char *n = getenv("STUB_CUDA_LOOKS");
  return n == NULL ? 0 : strtoul(n, NULL, 10);
}

static void await_word(const struct op *op) {
  const struct timespec pause = {0, 20000};
  unsigned long left = looks();
  if (!satisfied(op)) stub_end_turn();
  while (!satisfied(op))
    if (left == 0) nanosleep(&pause, NULL);
    else if (--left % 16 == 0) sched_yield();
}

static void copy_rows(const struct op *op) {
  size_t i;
  if (stub_skips(op->size * op->rows)) return;
  for (i = 0; i < op->rows; i++)
    memmove((char *)op->dst + i * op->dst_pitch, (const char *)op->src + i * op->src_pitch, op->size);
}

bool stub_run(struct op *op, CUcontext ctx, bool block) {
  if (op->kind < GRAPH && stub_failed(ctx)) return true; /* events are still reached, and graphs released */
  if (op->kind == COPY || op->kind == WRITE_VALUE || op->kind == KERNEL) stub_take_turn(ctx->device);
  if (op->kind != WAIT_VALUE && op->kind != WAIT_EVENT) stub_time(op, ctx);
  switch (op->kind) {
    case COPY: copy_rows(op); break;
    case CALL:
      stub_end_turn();
      stub_call_back(op->fn, op->data);
      break;
    case WAIT_VALUE:
      if (!block && !satisfied(op)) return false;
      await_word(op);
      stub_time(op, ctx);
      break;
    case WRITE_VALUE:
      if (stub_clock()) stub_stamp(op);
      __atomic_store_n((uint32_t *)op->dst, op->value, __ATOMIC_RELEASE);
      break;
    case KERNEL:
      if (stub_clock()) stub_stamp(op);
      stub_run_kernel(op);
      break;
    case GRAPH: op->end = stub_graph_run(op->graph, ctx, op->end); break;
    case RECORD: reach(op->event, op->turn, op->end); break;
    case WAIT_EVENT:
      await(op->event, op->turn);
      if (op->begun < op->event->now) op->begun = op->event->now;
      stub_time(op, ctx);
      break;
  }
  return true;
}

/* ---- Streams ---- */

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
  if (!stub_any_capture()) return NULL;
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

/* stub_usable for an operation: it invalidates that capture, and the stream must be of the current context. */
static CUresult enqueues(CUstream stream) {
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

static CUevent new_event(CUcontext ctx) {
  CUevent e = calloc(1, sizeof *e);
  pthread_mutex_init(&e->mutex, NULL);
  pthread_cond_init(&e->changed, NULL);
  e->ctx = ctx;
  return e;
}

/* Orders the next operation of s after all operations of other. */
static void follow(CUstream s, CUstream other) {
  CUevent e = new_event(s->ctx);
  e->recorded = 1;
  stub_append(other, (struct op){.kind = RECORD, .event = e, .turn = 1}, true);
  stub_append(s, (struct op){.kind = WAIT_EVENT, .event = e, .turn = 1}, true); /* e is never freed: it is small */
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
  CUresult rc = enqueues(stream);
  if (rc != CUDA_SUCCESS) return rc;
  if (s->capture != NULL) {
    if (s->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    stub_graph_append(s, op);
    return CUDA_SUCCESS;
  }
  order(s);
  stub_append(s, op, false);
  return CUDA_SUCCESS;
}

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
  struct op op;
  unsigned most = kind == WAIT_VALUE ? CU_STREAM_WAIT_VALUE_EQ : 0; /* the largest flag that the stub knows */
  if (reached == NULL || !stub_knows(at) || at % sizeof(uint32_t) != 0 || stub_is_registered(at) || flags > most)
    return CUDA_ERROR_INVALID_VALUE;
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

/* ---- Events ---- */

STUB_API CUresult cuEventCreate(CUevent *event, unsigned flags) {
  (void)flags;
  BEGIN();
  if (stub_current() == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  *event = new_event(stub_current());
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
  if (enqueues(stream) != CUDA_SUCCESS) return enqueues(stream);
  stub_clear_nodes(&e->before);
  e->capture = 0;
  if (stub_clock()) e->counts = *stub_counts();
  if (s->capture != NULL) {
    if (s->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    e->capture = s->capture->id;
    stub_add_nodes(&e->before, &s->at);
    return CUDA_SUCCESS;
  }
  return stub_submit(stream, (struct op){.kind = RECORD, .event = e, .turn = ++e->recorded});
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
  BEGIN();
  if (s == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  if (gone(e)) return CUDA_ERROR_INVALID_HANDLE;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (enqueues(stream) != CUDA_SUCCESS) return enqueues(stream);
  if (e->capture != 0) return join(s, e);
  if (s->capture != NULL) {
    s->capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  return e->recorded == 0 ? CUDA_SUCCESS
                          : stub_submit(stream, (struct op){.kind = WAIT_EVENT, .event = e, .turn = e->recorded});
}

STUB_API CUresult cuEventQuery(CUevent e) {
  bool ready;
  BEGIN();
  if (gone(e)) return CUDA_ERROR_INVALID_HANDLE;
  if (e->capture != 0) return CUDA_ERROR_CAPTURED_EVENT;
  if (stub_capture_forbids()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  pthread_mutex_lock(&e->mutex);
  ready = e->reached == e->recorded;
  if (ready) stub_host_reached(e->now);
  pthread_mutex_unlock(&e->mutex);
  return ready ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

STUB_API CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to) {
  CUresult rc = cuEventQuery(from);
  BEGIN();
  if (rc == CUDA_SUCCESS) rc = cuEventQuery(to);
  if (rc != CUDA_SUCCESS) return rc;
  if (from->recorded == 0 || to->recorded == 0) return CUDA_ERROR_INVALID_HANDLE;
  if (stub_clock()) stub_interval(&from->counts, &to->counts);
  *ms = stub_clock() ? ((float)to->now - (float)from->now) / 1e6f :
        (float)(to->at.tv_sec - from->at.tv_sec) * 1e3f + (float)(to->at.tv_nsec - from->at.tv_nsec) / 1e6f;
  return CUDA_SUCCESS;
}
