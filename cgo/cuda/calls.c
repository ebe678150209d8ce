#include "library.h"

#include <pthread.h>
#include <stdlib.h>

extern void lpCudaReady(uintptr_t job);

CUresult lpc_error(const struct lpc_library *c, CUresult rc, const char **name, const char **text) {
  CUresult found = c->GetErrorName(rc, name);
  return found != CUDA_SUCCESS ? found : c->GetErrorString(rc, text);
}

CUresult lpc_current(const struct lpc_library *c, int *device, int *has) {
  CUcontext ctx = NULL;
  CUresult rc = c->CtxGetCurrent(&ctx);
  *has = ctx != NULL;
  if (rc != CUDA_SUCCESS) return rc;
  if (ctx == NULL) {
    *has = lpc_runtime_device(device);
    return CUDA_SUCCESS;
  }
  return c->CtxGetDevice(device);
}

CUresult lpc_locate(const struct lpc_library *c, uintptr_t at, unsigned *type, unsigned *managed, int *device,
                    uint64_t *id, uint64_t *end) {
  int attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,    CU_POINTER_ATTRIBUTE_IS_MANAGED,
                      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_BUFFER_ID,
                      CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  uint64_t begin = 0;
  size_t size = 0;
  void *data[] = {type, managed, device, id, &begin, &size};
  CUresult rc = c->PointerGetAttributes(6, attributes, data, at);
  *end = begin + size;
  return rc;
}

/* What lpc_leave undoes on this thread. enter and leave do not nest. */
static __thread struct {
  int entered, pushed, relaxed;
  int mode_before; /* the capture mode, if relaxed */
} inside;

static CUresult make_current(const struct lpc_library *c, CUcontext ctx) {
  CUcontext now = NULL;
  CUresult rc = c->CtxGetCurrent(&now);
  inside.pushed = rc == CUDA_SUCCESS && now != ctx;
  if (inside.pushed) rc = c->CtxPushCurrent(ctx);
  inside.entered = rc == CUDA_SUCCESS;
  return rc;
}

CUresult lpc_enter_context(const struct lpc_library *c, uintptr_t context) {
  CUresult rc = make_current(c, (CUcontext)context);
  if (rc == CUDA_SUCCESS) lpc_know_context(context);
  return rc;
}

CUresult lpc_enter(const struct lpc_library *c, uintptr_t stream, int *device) {
  CUcontext ctx = NULL;
  CUresult rc = c->StreamGetCtx((CUstream)stream, &ctx);
  if (rc == CUDA_SUCCESS) rc = make_current(c, ctx);
  if (rc != CUDA_SUCCESS) return rc;
  rc = c->CtxGetDevice(device);
  if (rc != CUDA_SUCCESS) lpc_leave(c);
  return rc;
}

void lpc_leave(const struct lpc_library *c) {
  CUcontext ctx;
  if (inside.relaxed) (void)c->ThreadExchangeStreamCaptureMode(&inside.mode_before);
  if (inside.pushed) (void)c->CtxPopCurrent(&ctx);
  inside.entered = inside.pushed = inside.relaxed = 0;
  lpc_know_context(0);
}

CUresult lpc_relax(const struct lpc_library *c) {
  CUresult rc;
  if (!inside.entered || inside.relaxed) return CUDA_SUCCESS;
  inside.mode_before = CU_STREAM_CAPTURE_MODE_RELAXED;
  rc = c->ThreadExchangeStreamCaptureMode(&inside.mode_before);
  inside.relaxed = rc == CUDA_SUCCESS;
  return rc;
}

CUresult lpc_stream_id(const struct lpc_library *c, uintptr_t stream, uint64_t *id) {
  unsigned long long n = 0;
  CUresult rc = c->StreamGetId != NULL ? c->StreamGetId((CUstream)stream, &n) : CUDA_SUCCESS;
  *id = n;
  return rc;
}

#define RELAXED(CALL)                                           \
  do {                                                          \
    int mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;                 \
    CUresult rc_ = c->ThreadExchangeStreamCaptureMode(&mode_);  \
    if (rc_ != CUDA_SUCCESS) return rc_;                        \
    rc_ = (CALL);                                               \
    (void)c->ThreadExchangeStreamCaptureMode(&mode_);           \
    return rc_;                                                 \
  } while (0)

CUresult lpc_alloc(const struct lpc_library *c, void **at, size_t size) {
  RELAXED(c->MemHostAlloc(at, size, CU_MEMHOSTALLOC_PORTABLE));
}

CUresult lpc_free(const struct lpc_library *c, void *at) { RELAXED(c->MemFreeHost(at)); }

/* An event of a context, known by its id. Free events are kept for the next user: a driver may destroy one only when
 * the device is idle, and streams of another communicator may wait for this thread. */
struct event {
  CUevent event;
  unsigned long long ctx;
  struct event *next; /* of those that are free */
};

static pthread_mutex_t events_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct event *free_events;

static struct event *take_event(unsigned long long ctx) {
  struct event **at, *e;
  pthread_mutex_lock(&events_mutex);
  for (at = &free_events; *at != NULL && (*at)->ctx != ctx; at = &(*at)->next) {
  }
  e = *at;
  if (e != NULL) *at = e->next;
  pthread_mutex_unlock(&events_mutex);
  return e;
}

static CUevent event_of(uintptr_t event) { return ((struct event *)event)->event; }

CUresult lpc_reached(const struct lpc_library *c, uintptr_t event) { RELAXED(c->EventQuery(event_of(event))); }

CUresult lpc_new_event(const struct lpc_library *c, uintptr_t *event) {
  unsigned long long id = 0;
  CUcontext ctx = NULL;
  struct event *e;
  CUresult rc = c->CtxGetCurrent(&ctx);
  *event = 0;
  if (rc == CUDA_SUCCESS) rc = c->CtxGetId(ctx, &id);
  if (rc != CUDA_SUCCESS) return rc;
  if ((e = take_event(id)) == NULL) {
    if ((e = calloc(1, sizeof *e)) == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    e->ctx = id;
    if ((rc = c->EventCreate(&e->event, CU_EVENT_DISABLE_TIMING)) != CUDA_SUCCESS) {
      free(e);
      return rc;
    }
  }
  *event = (uintptr_t)e;
  return CUDA_SUCCESS;
}

void lpc_free_event(uintptr_t event) {
  struct event *e = (struct event *)event;
  pthread_mutex_lock(&events_mutex);
  e->next = free_events;
  free_events = e;
  pthread_mutex_unlock(&events_mutex);
}

CUresult lpc_record(const struct lpc_library *c, uintptr_t event, uintptr_t stream) {
  return c->EventRecord(event_of(event), (CUstream)stream);
}

CUresult lpc_follow(const struct lpc_library *c, uintptr_t stream, uintptr_t event) {
  return c->StreamWaitEvent((CUstream)stream, event_of(event), 0);
}

CUresult lpc_copy_out(const struct lpc_library *c, void *to, uintptr_t from, size_t size, uintptr_t stream) {
  return c->MemcpyDtoHAsync(to, from, size, (CUstream)stream);
}

CUresult lpc_copy_in(const struct lpc_library *c, uintptr_t to, void *from, size_t size, uintptr_t stream) {
  return c->MemcpyHtoDAsync(to, from, size, (CUstream)stream);
}

CUresult lpc_copy(const struct lpc_library *c, uintptr_t dst, uintptr_t src, size_t size, uintptr_t stream) {
  return c->MemcpyAsync(dst, src, size, (CUstream)stream);
}

CUresult lpc_copy_rows(const struct lpc_library *c, uintptr_t dst, size_t dst_pitch, uintptr_t src, size_t src_pitch,
                       size_t width, size_t rows, uintptr_t stream) {
  const CUmemcpy2D copy = {.src_type = CU_MEMORYTYPE_UNIFIED,
                           .src = src,
                           .src_pitch = src_pitch,
                           .dst_type = CU_MEMORYTYPE_UNIFIED,
                           .dst = dst,
                           .dst_pitch = dst_pitch,
                           .width = width,
                           .height = rows};
  CUresult rc = CUDA_SUCCESS;
  size_t i;
  if (src_pitch <= INT32_MAX && dst_pitch <= INT32_MAX) return c->Memcpy2DAsync(&copy, (CUstream)stream);
  /* above the largest pitch of devices */
  for (i = 0; rc == CUDA_SUCCESS && i < rows; i++)
    rc = c->MemcpyAsync(dst + i * dst_pitch, src + i * src_pitch, width, (CUstream)stream);
  return rc;
}

CUresult lpc_await(const struct lpc_library *c, uintptr_t stream, void *word, uint32_t value, int equal) {
  unsigned flags = equal ? CU_STREAM_WAIT_VALUE_EQ : CU_STREAM_WAIT_VALUE_GEQ;
  return c->StreamWaitValue32((CUstream)stream, (uintptr_t)word, value, flags);
}

CUresult lpc_store(const struct lpc_library *c, uintptr_t stream, void *word, uint32_t value) {
  return c->StreamWriteValue32((CUstream)stream, (uintptr_t)word, value, 0);
}

CUresult lpc_capturing(const struct lpc_library *c, uintptr_t stream, int *status, uint64_t *id, uintptr_t *graph) {
  CUgraph g = NULL;
  CUresult rc = c->StreamGetCaptureInfo((CUstream)stream, status, id, &g, NULL, NULL);
  *graph = (uintptr_t)g;
  return rc;
}

static void ready(void *job) { lpCudaReady((uintptr_t)job); }

CUresult lpc_signal(const struct lpc_library *c, uintptr_t stream, uintptr_t job) {
  return c->LaunchHostFunc((CUstream)stream, ready, (void *)job);
}

CUresult lpc_retain(const struct lpc_library *c, uintptr_t graph, uintptr_t job) {
  CUuserObject object;
  CUresult rc = c->UserObjectCreate(&object, (void *)job, ready, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
  return rc != CUDA_SUCCESS ? rc : c->GraphRetainUserObject((CUgraph)graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE);
}
