/* Graphs. A node depends on the nodes that were in its stream when it was captured, and on the nodes before events that
 * the stream had waited for. Nothing else orders a replay. */
#include "stub.h"

#include <stdlib.h>

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

void stub_capture(CUstream s, struct op op) {
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

void stub_release_graph(CUgraph g) {
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

void stub_release_exec(CUgraphExec exec) {
  if (__atomic_sub_fetch(&exec->references, 1, __ATOMIC_ACQ_REL) > 0) return;
  stub_release_graph(exec->graph);
  free(exec);
}
