/* Capture and graphs. A graph is what was captured, in the order in which it was: that is one of the orders
 * that its edges allow, and the one in which it is replayed. */
#include "stub.h"

#include <stdlib.h>
#include <string.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static uint64_t ids;
static CUgraph strict[64]; /* captures that forbid calls: to the thread, of mode global to others, too */
static __thread CUgraph own_strict;
static __thread int thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

struct CUgraphExec_st {
  CUgraph graph;
};

bool stub_capture_forbids(void) {
  bool forbids = false;
  size_t i;
  if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
  pthread_mutex_lock(&mutex);
  for (i = 0; i < sizeof strict / sizeof *strict; i++) {
    if (strict[i] == NULL) continue;
    if (strict[i] == own_strict || (thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL && strict[i]->mode == CU_STREAM_CAPTURE_MODE_GLOBAL)) {
      strict[i]->invalid = true;
      forbids = true;
    }
  }
  pthread_mutex_unlock(&mutex);
  return forbids;
}

STUB_API CUresult cuThreadExchangeStreamCaptureMode(int *mode) {
  int was = thread_mode;
  BEGIN();
  thread_mode = *mode;
  *mode = was;
  return CUDA_SUCCESS;
}

void stub_graph_append(CUgraph graph, struct op op) {
  struct op *own = malloc(sizeof *own);
  *own = op;
  own->next = NULL;
  pthread_mutex_lock(&graph->mutex);
  *graph->last = own;
  graph->last = &own->next;
  pthread_mutex_unlock(&graph->mutex);
}

static void release(CUgraph g) {
  int left;
  pthread_mutex_lock(&g->mutex);
  left = --g->references;
  pthread_mutex_unlock(&g->mutex);
  if (left > 0) return;
  while (g->objects != NULL) {
    struct object *o = g->objects;
    g->objects = o->next;
    o->destroy(o->data);
    free(o);
  }
  while (g->first != NULL) {
    struct op *op = g->first;
    g->first = op->next;
    free(op);
  }
  free(g);
}

static void retain(CUgraph g) {
  pthread_mutex_lock(&g->mutex);
  g->references++;
  pthread_mutex_unlock(&g->mutex);
}

STUB_API CUresult cuStreamBeginCapture_v2(CUstream stream, int mode) {
  CUgraph g;
  size_t i;
  BEGIN();
  if (stream == NULL) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  g = calloc(1, sizeof *g);
  pthread_mutex_init(&g->mutex, NULL);
  g->references = 1;
  g->origin = stream;
  g->mode = mode;
  g->last = &g->first;
  pthread_mutex_lock(&mutex);
  g->id = ++ids;
  for (i = 0; mode != CU_STREAM_CAPTURE_MODE_RELAXED && i < sizeof strict / sizeof *strict; i++) {
    if (strict[i] == NULL) {
      strict[i] = own_strict = g;
      break;
    }
  }
  pthread_mutex_unlock(&mutex);
  stream->capture = g;
  return CUDA_SUCCESS;
}

STUB_API CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
  CUgraph g = stream->capture;
  size_t i;
  BEGIN();
  *graph = NULL;
  if (g == NULL || g->origin != stream) return CUDA_ERROR_INVALID_VALUE;
  stub_leave_capture(g);
  own_strict = NULL;
  pthread_mutex_lock(&mutex);
  for (i = 0; i < sizeof strict / sizeof *strict; i++)
    if (strict[i] == g) strict[i] = NULL;
  pthread_mutex_unlock(&mutex);
  if (g->invalid) {
    release(g);
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  *graph = g;
  return CUDA_SUCCESS;
}

STUB_API CUresult cuStreamGetCaptureInfo_v2(CUstream stream, int *status, cuuint64_t *id, CUgraph *graph,
                                            const CUgraphNode **deps, size_t *n) {
  CUstream s = stub_stream(stream);
  BEGIN();
  if (s == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  *status = s->capture == NULL ? CU_STREAM_CAPTURE_STATUS_NONE
            : s->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                  : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  if (s->capture != NULL && id != NULL) *id = s->capture->id;
  if (s->capture != NULL && graph != NULL) *graph = s->capture;
  if (deps != NULL) *deps = NULL;
  if (n != NULL) *n = 0;
  return CUDA_SUCCESS;
}

STUB_API CUresult cuUserObjectCreate(CUuserObject *object, void *data, CUhostFn destroy, unsigned references, unsigned flags) {
  struct object *o;
  BEGIN();
  if (references != 1 || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) return CUDA_ERROR_INVALID_VALUE;
  o = calloc(1, sizeof *o);
  o->destroy = destroy;
  o->data = data;
  *object = (CUuserObject)o;
  return CUDA_SUCCESS;
}

STUB_API CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned n, unsigned flags) {
  struct object *o = (struct object *)object;
  BEGIN();
  if (n != 1 || flags != CU_GRAPH_USER_OBJECT_MOVE) return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&graph->mutex);
  o->next = graph->objects;
  graph->objects = o;
  pthread_mutex_unlock(&graph->mutex);
  return CUDA_SUCCESS;
}

STUB_API CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
  (void)flags;
  BEGIN();
  *exec = calloc(1, sizeof **exec);
  (*exec)->graph = graph;
  retain(graph);
  return CUDA_SUCCESS;
}

STUB_API CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  struct op *op;
  CUresult rc = CUDA_SUCCESS;
  BEGIN();
  for (op = exec->graph->first; rc == CUDA_SUCCESS && op != NULL; op = op->next) rc = stub_submit(stream, *op);
  return rc;
}

/* Work that was launched must have ended. */
STUB_API CUresult cuGraphExecDestroy(CUgraphExec exec) {
  BEGIN();
  release(exec->graph);
  free(exec);
  return CUDA_SUCCESS;
}

STUB_API CUresult cuGraphDestroy(CUgraph graph) {
  BEGIN();
  release(graph);
  return CUDA_SUCCESS;
}
