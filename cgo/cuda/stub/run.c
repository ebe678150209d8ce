/* Runs operations: those of streams, and the nodes of graphs. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../kernels/reduce.h"
#include "ptx.h"

static void reach(CUevent e, struct recording *r, uint64_t now) {
  pthread_mutex_lock(&e->mutex);
  r->reached = true;
  r->now = now;
  clock_gettime(CLOCK_MONOTONIC, &r->at);
  pthread_cond_broadcast(&e->changed);
  stub_drop(r);
  pthread_mutex_unlock(&e->mutex);
}

/* Returns when it was reached, of the virtual clock. */
static uint64_t await(CUevent e, struct recording *r) {
  uint64_t now;
  pthread_mutex_lock(&e->mutex);
  if (!r->reached) stub_end_turn();
  while (!r->reached) pthread_cond_wait(&e->changed, &e->mutex);
  now = r->now;
  stub_drop(r);
  pthread_mutex_unlock(&e->mutex);
  return now;
}

static bool satisfied(const struct op *op) {
  uint32_t now = __atomic_load_n((uint32_t *)op->dst, __ATOMIC_ACQUIRE);
  return op->flags == CU_STREAM_WAIT_VALUE_EQ ? now == op->value : (int32_t)(now - op->value) >= 0;
}

/* How often a wait looks at its word before it sleeps between looks: STUB_CUDA_LOOKS. A device never sleeps. */
static unsigned long looks;
static pthread_once_t once = PTHREAD_ONCE_INIT; /* a program may be setting variables while waits begin */

static void configure(void) {
  const char *n = getenv("STUB_CUDA_LOOKS");
  if (n != NULL) looks = strtoul(n, NULL, 10);
}

static void await_word(const struct op *op) {
  const struct timespec pause = {0, 20000};
  unsigned long left;
  pthread_once(&once, configure);
  left = looks;
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

/* A kernel that uses an invalid address fails its context. One that moves nothing still writes its words. */
static void run_kernel(const struct op *op) {
  struct lp_reduction r;
  unsigned blocks = op->blocks;
  char why[256];
  memcpy(&r, op->params, sizeof r);
  if (stub_skips(stub_kernel_bytes(op))) {
    memset(r.first, 0, sizeof r.first);
    blocks = 1;
  }
  if (ptx_run(op->function, op->function->ctx, &r, blocks, op->threads, why, sizeof why)) return;
  fprintf(stderr, "stub libcuda: %s\n", why);
  __atomic_store_n(&op->function->ctx->error, CUDA_ERROR_ILLEGAL_ADDRESS, __ATOMIC_RELEASE);
}

/* ---- Graphs ---- */

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

/* Runs once, from a time of the virtual clock on, and releases the reference. Returns when it has ended. */
static uint64_t run_graph(CUgraphExec exec, CUcontext ctx, uint64_t now) {
  pthread_mutex_lock(&exec->running);
  now = exec->in_order ? run_in_order(exec->graph, ctx, now) : run_nodes(exec->graph, ctx, now);
  pthread_mutex_unlock(&exec->running);
  stub_release_exec(exec);
  return now;
}

/* ---- Operations ---- */

bool stub_run(struct op *op, CUcontext ctx, bool block) {
  uint64_t reached;
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
      run_kernel(op);
      break;
    case GRAPH: op->end = run_graph(op->graph, ctx, op->end); break;
    case RECORD: reach(op->event, op->record, op->end); break;
    case WAIT_EVENT:
      reached = await(op->event, op->record);
      if (op->begun < reached) op->begun = reached;
      stub_time(op, ctx);
      break;
  }
  return true;
}
