#include "library.h"

#include <pthread.h>
#include <stdlib.h>

extern void lpCudaReady(uintptr_t job);

CUresult lpc_error(CUresult rc, const char **name, const char **text) {
  CUresult found = lpc.GetErrorName(rc, name);
  return found != CUDA_SUCCESS ? found : lpc.GetErrorString(rc, text);
}

CUresult lpc_current(int *device, int *has) {
  CUcontext ctx = NULL;
  CUresult rc = lpc.CtxGetCurrent(&ctx);
  *has = ctx != NULL;
  if (rc != CUDA_SUCCESS) return rc;
  if (ctx == NULL) {
    *has = lpc_runtime_device(device);
    return CUDA_SUCCESS;
  }
  return lpc.CtxGetDevice(device);
}

CUresult lpc_locate(uintptr_t at, unsigned *type, unsigned *managed, int *device, uint64_t *id, uint64_t *end) {
  int attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,    CU_POINTER_ATTRIBUTE_IS_MANAGED,
                      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_BUFFER_ID,
                      CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  uint64_t begin = 0;
  size_t size = 0;
  void *data[] = {type, managed, device, id, &begin, &size};
  CUresult rc = lpc.PointerGetAttributes(6, attributes, data, at);
  *end = begin + size;
  return rc;
}

/* What lpc_leave undoes on this thread. enter and leave do not nest. */
static __thread struct {
  int entered, pushed, relaxed;
  int mode_before; /* the capture mode, if relaxed */
} inside;

static CUresult make_current(CUcontext ctx) {
  CUcontext now = NULL;
  CUresult rc = lpc.CtxGetCurrent(&now);
  inside.pushed = rc == CUDA_SUCCESS && now != ctx;
  if (inside.pushed) rc = lpc.CtxPushCurrent(ctx);
  inside.entered = rc == CUDA_SUCCESS;
  return rc;
}

CUresult lpc_enter_context(uintptr_t context) {
  CUresult rc = make_current((CUcontext)context);
  if (rc == CUDA_SUCCESS) lpc_know_context(context);
  return rc;
}

CUresult lpc_enter(uintptr_t stream, int *device) {
  CUcontext ctx = NULL;
  CUresult rc = lpc.StreamGetCtx((CUstream)stream, &ctx);
  if (rc == CUDA_SUCCESS) rc = make_current(ctx);
  if (rc != CUDA_SUCCESS) return rc;
  rc = lpc.CtxGetDevice(device);
  if (rc != CUDA_SUCCESS) lpc_leave();
  return rc;
}

void lpc_leave(void) {
  CUcontext ctx;
  if (inside.relaxed) (void)lpc.ThreadExchangeStreamCaptureMode(&inside.mode_before);
  if (inside.pushed) (void)lpc.CtxPopCurrent(&ctx);
  inside.entered = inside.pushed = inside.relaxed = 0;
  lpc_know_context(0);
}

CUresult lpc_relax(void) {
  CUresult rc;
  if (!inside.entered || inside.relaxed) return CUDA_SUCCESS;
  inside.mode_before = CU_STREAM_CAPTURE_MODE_RELAXED;
  rc = lpc.ThreadExchangeStreamCaptureMode(&inside.mode_before);
  inside.relaxed = rc == CUDA_SUCCESS;
  return rc;
}

CUresult lpc_stream_id(uintptr_t stream, uint64_t *id) {
  unsigned long long n = 0;
  CUresult rc = lpc.StreamGetId != NULL ? lpc.StreamGetId((CUstream)stream, &n) : CUDA_SUCCESS;
  *id = n;
  return rc;
}

#define RELAXED(CALL)                                           \
  do {                                                          \
    int mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;                 \
    CUresult rc_ = lpc.ThreadExchangeStreamCaptureMode(&mode_); \
    if (rc_ != CUDA_SUCCESS) return rc_;                        \
    rc_ = (CALL);                                               \
    (void)lpc.ThreadExchangeStreamCaptureMode(&mode_);          \
    return rc_;                                                 \
  } while (0)

CUresult lpc_alloc(void **at, size_t size) { RELAXED(lpc.MemHostAlloc(at, size, CU_MEMHOSTALLOC_PORTABLE)); }

CUresult lpc_free(void *at) { RELAXED(lpc.MemFreeHost(at)); }

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

CUresult lpc_reached(uintptr_t event) { RELAXED(lpc.EventQuery(event_of(event))); }

CUresult lpc_new_event(uintptr_t *event) {
  unsigned long long id = 0;
  CUcontext ctx = NULL;
  struct event *e;
  CUresult rc = lpc.CtxGetCurrent(&ctx);
  *event = 0;
  if (rc == CUDA_SUCCESS) rc = lpc.CtxGetId(ctx, &id);
  if (rc != CUDA_SUCCESS) return rc;
  if ((e = take_event(id)) == NULL) {
    if ((e = calloc(1, sizeof *e)) == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    e->ctx = id;
    if ((rc = lpc.EventCreate(&e->event, CU_EVENT_DISABLE_TIMING)) != CUDA_SUCCESS) {
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

CUresult lpc_record(uintptr_t event, uintptr_t stream) { return lpc.EventRecord(event_of(event), (CUstream)stream); }

CUresult lpc_follow(uintptr_t stream, uintptr_t event) {
  return lpc.StreamWaitEvent((CUstream)stream, event_of(event), 0);
}

CUresult lpc_copy_out(void *to, uintptr_t from, size_t size, uintptr_t stream) {
  return lpc.MemcpyDtoHAsync(to, from, size, (CUstream)stream);
}

CUresult lpc_copy_in(uintptr_t to, void *from, size_t size, uintptr_t stream) {
  return lpc.MemcpyHtoDAsync(to, from, size, (CUstream)stream);
}

CUresult lpc_copy(uintptr_t dst, uintptr_t src, size_t size, uintptr_t stream) {
  return lpc.MemcpyAsync(dst, src, size, (CUstream)stream);
}

CUresult lpc_copy_rows(uintptr_t dst, size_t dst_pitch, uintptr_t src, size_t src_pitch,
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
  if (src_pitch <= INT32_MAX && dst_pitch <= INT32_MAX) return lpc.Memcpy2DAsync(&copy, (CUstream)stream);
  /* above the largest pitch of devices */
  for (i = 0; rc == CUDA_SUCCESS && i < rows; i++)
    rc = lpc.MemcpyAsync(dst + i * dst_pitch, src + i * src_pitch, width, (CUstream)stream);
  return rc;
}

CUresult lpc_await(uintptr_t stream, void *word, uint32_t value, bool equal) {
  unsigned flags = equal ? CU_STREAM_WAIT_VALUE_EQ : CU_STREAM_WAIT_VALUE_GEQ;
  return lpc.StreamWaitValue32((CUstream)stream, (uintptr_t)word, value, flags);
}

CUresult lpc_store(uintptr_t stream, void *word, uint32_t value) {
  return lpc.StreamWriteValue32((CUstream)stream, (uintptr_t)word, value, 0);
}

CUresult lpc_capturing(uintptr_t stream, int *status, uint64_t *id, uintptr_t *graph) {
  CUgraph g = NULL;
  CUresult rc = lpc.StreamGetCaptureInfo((CUstream)stream, status, id, &g, NULL, NULL);
  *graph = (uintptr_t)g;
  return rc;
}

static void ready(void *job) { lpCudaReady((uintptr_t)job); }

CUresult lpc_signal(uintptr_t stream, uintptr_t job) {
  return lpc.LaunchHostFunc((CUstream)stream, ready, (void *)job);
}

CUresult lpc_retain(uintptr_t graph, uintptr_t job) {
  CUuserObject object;
  CUresult rc = lpc.UserObjectCreate(&object, (void *)job, ready, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
  return rc != CUDA_SUCCESS ? rc : lpc.GraphRetainUserObject((CUgraph)graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE);
}
