/* Captures of streams into graphs, and the calls that they forbid. */
#include "stub.h"

#include <stdlib.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static uint64_t ids;
enum { MOST = 64 };
static int under_way; /* atomic: captures */
/* Captures in progress. Except in relaxed mode they forbid calls of their thread, in global mode also of others. */
static CUgraph captures[MOST];
static __thread int thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

bool stub_capture_forbids(void) {
  bool forbids = false;
  size_t i;
  if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED || __atomic_load_n(&under_way, __ATOMIC_ACQUIRE) == 0) return false;
  pthread_mutex_lock(&mutex);
  for (i = 0; i < MOST; i++) {
    CUgraph g = captures[i];
    if (g == NULL || g->mode == CU_STREAM_CAPTURE_MODE_RELAXED) continue;
    if (pthread_equal(g->thread, pthread_self()) ||
        (thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL && g->mode == CU_STREAM_CAPTURE_MODE_GLOBAL)) {
      g->invalid = true;
      forbids = true;
    }
  }
  pthread_mutex_unlock(&mutex);
  return forbids;
}

CUgraph stub_capturing(uint64_t id) {
  CUgraph found = NULL;
  size_t i;
  pthread_mutex_lock(&mutex);
  for (i = 0; i < MOST; i++)
    if (captures[i] != NULL && captures[i]->id == id) found = captures[i];
  pthread_mutex_unlock(&mutex);
  return found;
}

STUB_API CUresult cuThreadExchangeStreamCaptureMode(int *mode) {
  int was = thread_mode;
  BEGIN();
  if (*mode < CU_STREAM_CAPTURE_MODE_GLOBAL || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  thread_mode = *mode;
  *mode = was;
  return CUDA_SUCCESS;
}

/* Whether the next operation of the stream that began the capture would depend on all nodes. */
static bool joined(CUgraph g) {
  bool *before = calloc(g->nodes.n + 1, sizeof *before), all = true;
  size_t i, k;
  for (i = 0; i < g->origin->at.n; i++) before[g->origin->at.all[i]->index] = true;
  for (i = g->nodes.n; i-- > 0;) {
    const struct node *n = g->nodes.all[i];
    all = all && before[i];
    for (k = 0; before[i] && k < n->after.n; k++) before[n->after.all[k]->index] = true;
  }
  free(before);
  return all;
}

STUB_API CUresult cuStreamBeginCapture_v2(CUstream stream, int mode) {
  CUstream s = stub_stream(stream);
  CUgraph g;
  size_t i;
  BEGIN();
  if (s == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  if (s == s->ctx->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (s->capture != NULL) return CUDA_ERROR_INVALID_VALUE;
  g = calloc(1, sizeof *g);
  pthread_mutex_init(&g->mutex, NULL);
  g->references = 1;
  g->origin = s;
  g->mode = mode;
  g->thread = pthread_self();
  pthread_mutex_lock(&mutex);
  g->id = ++ids;
  for (i = 0; i < MOST - 1 && captures[i] != NULL; i++) {
  }
  captures[i] = g;
  __atomic_fetch_add(&under_way, 1, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&mutex);
  s->capture = g;
  return CUDA_SUCCESS;
}

STUB_API CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
  CUstream s = stub_stream(stream);
  CUgraph g = s != NULL ? s->capture : NULL;
  CUresult rc = CUDA_SUCCESS;
  size_t i;
  BEGIN();
  *graph = NULL;
  if (g == NULL || g->origin != s) return CUDA_ERROR_INVALID_VALUE;
  if (g->mode != CU_STREAM_CAPTURE_MODE_RELAXED && !pthread_equal(g->thread, pthread_self()))
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  if (!joined(g)) rc = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  if (g->invalid) rc = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  stub_leave_capture(g);
  pthread_mutex_lock(&mutex);
  for (i = 0; i < MOST; i++)
    if (captures[i] == g) captures[i] = NULL;
  __atomic_fetch_sub(&under_way, 1, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&mutex);
  if (rc != CUDA_SUCCESS)
    stub_release_graph(g);
  else
    *graph = g;
  return rc;
}

STUB_API CUresult cuStreamGetCaptureInfo_v2(CUstream stream, int *status, cuuint64_t *id, CUgraph *graph,
                                            const CUgraphNode **deps, size_t *n) {
  CUstream s = stub_stream(stream);
  BEGIN();
  if (stub_usable(stream) != CUDA_SUCCESS) return stub_usable(stream);
  *status = s->capture == NULL ? CU_STREAM_CAPTURE_STATUS_NONE
            : s->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                  : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  if (s->capture != NULL && id != NULL) *id = s->capture->id;
  if (s->capture != NULL && graph != NULL) *graph = s->capture;
  if (deps != NULL) *deps = NULL;
  if (n != NULL) *n = 0;
  return CUDA_SUCCESS;
}
