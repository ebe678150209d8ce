/* Capture and graphs. A node depends on the nodes that were in its stream when it was captured, and on the nodes before
 * events that the stream had waited for. Nothing else orders a replay. */
#include "stub.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static uint64_t ids;
enum { MOST = 64 };
static int under_way; /* atomic: captures */
/* Captures in progress. Except in relaxed mode they forbid calls of their thread, in global mode also of others. */
static CUgraph captures[MOST];
static __thread int thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

/* A graph that can be launched. It runs once at a time. */
struct CUgraphExec_st {
  CUgraph graph;
  int references;
  pthread_mutex_t running;
};

bool stub_any_capture(void) { return __atomic_load_n(&under_way, __ATOMIC_ACQUIRE) > 0; }

bool stub_capture_forbids(void) {
  bool forbids = false;
  size_t i;
  if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED || !stub_any_capture()) return false;
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

/* ---- Nodes ---- */

static void add_node(struct nodes *to, struct node *n) {
  to->all = realloc(to->all, (to->n + 1) * sizeof *to->all);
  if (to->all == NULL) abort();
  to->all[to->n++] = n;
}

void stub_add_nodes(struct nodes *to, const struct nodes *some) {
  size_t i, k;
  for (i = 0; i < some->n; i++) {
    for (k = 0; k < to->n && to->all[k] != some->all[i]; k++) {
    }
    if (k == to->n) add_node(to, some->all[i]);
  }
}

void stub_clear_nodes(struct nodes *n) {
  free(n->all);
  *n = (struct nodes){0};
}

void stub_graph_append(CUstream s, struct op op) {
  CUgraph graph = s->capture;
  struct node *own = calloc(1, sizeof *own);
  own->op = op;
  own->op.in_graph = true;
  own->after = s->at;
  s->at = (struct nodes){0};
  add_node(&s->at, own);
  pthread_mutex_lock(&graph->mutex);
  own->index = graph->nodes.n;
  add_node(&graph->nodes, own);
  pthread_mutex_unlock(&graph->mutex);
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

static bool can_run(const struct node *n, const bool *done) {
  size_t i;
  for (i = 0; i < n->after.n; i++)
    if (!done[n->after.all[i]->index]) return false;
  return !done[n->index];
}

static unsigned random_number(void) {
  static unsigned state = 1;
  unsigned v = __atomic_add_fetch(&state, 0x9e3779b9, __ATOMIC_RELAXED);
  v = (v ^ v >> 16) * 0x85ebca6b;
  v = (v ^ v >> 13) * 0xc2b2ae35;
  return v ^ v >> 16;
}

/* Runs all nodes in the order of their capture. */
static uint64_t run_in_order(CUgraph g, CUcontext ctx, uint64_t now) {
  size_t i;
  for (i = 0; i < g->nodes.n; i++) {
    struct op *op = &g->nodes.all[i]->op;
    op->begun = now;
    (void)stub_run(op, ctx, true);
    now = op->end;
  }
  return now;
}

/* When a node can begin, on the virtual clock. */
static uint64_t ready_at(const struct node *n, uint64_t now) {
  size_t i;
  for (i = 0; i < n->after.n; i++)
    if (n->after.all[i]->op.end > now) now = n->after.all[i]->op.end;
  return now;
}

/* Runs all nodes, each time in another order. A node that waits delays only the nodes that depend on it. */
static uint64_t run_nodes(CUgraph g, CUcontext ctx, uint64_t now) {
  uint64_t end = now;
  const struct timespec pause = {0, 20000};
  size_t left = g->nodes.n, i;
  bool *done = calloc(left + 1, sizeof *done);
  while (left > 0) {
    size_t first = random_number() % g->nodes.n;
    bool ran = false;
    for (i = 0; i < g->nodes.n && !ran; i++) {
      struct node *n = g->nodes.all[(first + i) % g->nodes.n];
      if (!can_run(n, done)) continue;
      n->op.begun = ready_at(n, now);
      ran = stub_run(&n->op, ctx, false);
      if (ran) done[n->index] = true;
      if (ran && n->op.end > end) end = n->op.end;
    }
    if (ran) {
      left--;
    } else {
      stub_end_turn();
      nanosleep(&pause, NULL);
    }
  }
  free(done);
  return end;
}

/* ---- Graphs ---- */

static void release(CUgraph g) {
  int left;
  size_t i;
  pthread_mutex_lock(&g->mutex);
  left = --g->references;
  pthread_mutex_unlock(&g->mutex);
  if (left > 0) return;
  while (g->objects != NULL) {
    struct object *o = g->objects;
    g->objects = o->next;
    stub_call_back(o->destroy, o->data);
    free(o);
  }
  for (i = 0; i < g->nodes.n; i++) {
    stub_clear_nodes(&g->nodes.all[i]->after);
    free(g->nodes.all[i]);
  }
  stub_clear_nodes(&g->nodes);
  free(g);
}

static void retain(CUgraph g) {
  pthread_mutex_lock(&g->mutex);
  g->references++;
  pthread_mutex_unlock(&g->mutex);
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
    release(g);
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

STUB_API CUresult cuUserObjectCreate(CUuserObject *object, void *data, CUhostFn destroy, unsigned references,
                                     unsigned flags) {
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
  (*exec)->references = 1;
  pthread_mutex_init(&(*exec)->running, NULL);
  retain(graph);
  return CUDA_SUCCESS;
}

static void release_exec(CUgraphExec exec) {
  if (__atomic_sub_fetch(&exec->references, 1, __ATOMIC_ACQ_REL) > 0) return;
  release(exec->graph);
  free(exec);
}

uint64_t stub_graph_run(CUgraphExec exec, CUcontext ctx, uint64_t now) {
  pthread_mutex_lock(&exec->running);
  now = stub_one_queue() ? run_in_order(exec->graph, ctx, now) : run_nodes(exec->graph, ctx, now);
  pthread_mutex_unlock(&exec->running);
  release_exec(exec);
  return now;
}

STUB_API CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  CUresult rc;
  BEGIN();
  __atomic_add_fetch(&exec->references, 1, __ATOMIC_ACQ_REL);
  rc = stub_submit(stream, (struct op){.kind = GRAPH, .graph = exec});
  if (rc != CUDA_SUCCESS) release_exec(exec);
  return rc;
}

/* Launches in progress hold a reference. */
STUB_API CUresult cuGraphExecDestroy(CUgraphExec exec) {
  BEGIN();
  release_exec(exec);
  return CUDA_SUCCESS;
}

STUB_API CUresult cuGraphDestroy(CUgraph graph) {
  BEGIN();
  release(graph);
  return CUDA_SUCCESS;
}
