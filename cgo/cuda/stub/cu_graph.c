/* Graphs, and objects that they own. */
#include "stub.h"

#include <stdlib.h>

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
  (*exec)->in_order = stub_one_queue();
  pthread_mutex_init(&(*exec)->running, NULL);
  pthread_mutex_lock(&graph->mutex);
  graph->references++;
  pthread_mutex_unlock(&graph->mutex);
  return CUDA_SUCCESS;
}

STUB_API CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  CUresult rc;
  BEGIN();
  __atomic_add_fetch(&exec->references, 1, __ATOMIC_ACQ_REL);
  rc = stub_submit(stream, (struct op){.kind = GRAPH, .graph = exec});
  if (rc != CUDA_SUCCESS) stub_release_exec(exec);
  return rc;
}

/* Launches in progress hold a reference. */
STUB_API CUresult cuGraphExecDestroy(CUgraphExec exec) {
  BEGIN();
  stub_release_exec(exec);
  return CUDA_SUCCESS;
}

STUB_API CUresult cuGraphDestroy(CUgraph graph) {
  BEGIN();
  stub_release_graph(graph);
  return CUDA_SUCCESS;
}
