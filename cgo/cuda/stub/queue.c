/* Queues: threads that run operations in order. A stream has one of its own, or shares those of its context. */
#include <stdlib.h>

#include "stub.h"

struct queue {
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  struct op *first, **last;
  unsigned held; /* operations */
  bool ended;
  uint64_t now; /* when its last operation ended, on the virtual clock */
};

/* The most operations of a queue; further callers wait. */
enum { ROOM = 1024 };

static unsigned queues; /* of a context; 0: one for each stream */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static unsigned in_range(long n) { return n < 1 ? 1 : n > MAX_QUEUES ? MAX_QUEUES : (unsigned)n; }

static void configure(void) {
  const char *n = getenv("STUB_CUDA_QUEUES"), *connections = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  if (n == NULL || *n == '\0') return;
  if (*n != 'd')
    queues = in_range(strtol(n, NULL, 10));
  else
    queues = connections == NULL ? 8 : in_range(strtol(connections, NULL, 10));
}

static unsigned of_context(void) {
  pthread_once(&once, configure);
  return queues;
}

bool stub_one_queue(void) { return of_context() == 1; }

static void *serve(void *arg) {
  static pthread_mutex_t calling = PTHREAD_MUTEX_INITIALIZER; /* host functions of shared queues take turns */
  struct queue *q = arg;
  struct op *op;
  pthread_mutex_lock(&q->mutex);
  for (;;) {
    bool alone;
    if (q->first == NULL) stub_end_turn();
    while (q->first == NULL && !q->ended) pthread_cond_wait(&q->changed, &q->mutex);
    if (q->first == NULL) break;
    op = q->first;
    pthread_mutex_unlock(&q->mutex);
    alone = op->kind == CALL && of_context() > 0;
    if (alone) pthread_mutex_lock(&calling);
    op->begun = op->end = q->now > op->issued ? q->now : op->issued;
    (void)stub_run(op, op->stream->ctx, true);
    if (alone) pthread_mutex_unlock(&calling);
    pthread_mutex_lock(&q->mutex);
    q->first = op->next;
    if (q->first == NULL) q->last = &q->first;
    q->held--;
    q->now = op->stream->now = op->end;
    op->stream->done++;
    pthread_cond_broadcast(&q->changed);
    free(op);
  }
  pthread_mutex_unlock(&q->mutex);
  return NULL;
}

static struct queue *new_queue(void) {
  struct queue *q = calloc(1, sizeof *q);
  q->last = &q->first;
  pthread_mutex_init(&q->mutex, NULL);
  pthread_cond_init(&q->changed, NULL);
  pthread_create(&q->thread, NULL, serve, q);
  return q;
}

void stub_join_queue(CUstream s) {
  static pthread_mutex_t giving = PTHREAD_MUTEX_INITIALIZER;
  struct queue **q;
  if (of_context() == 0) {
    s->queue = new_queue();
    return;
  }
  pthread_mutex_lock(&giving);
  q = &s->ctx->queues[s->ctx->streams++ % of_context()];
  if (*q == NULL) *q = new_queue();
  s->queue = *q;
  pthread_mutex_unlock(&giving);
}

void stub_leave_queue(CUstream s) {
  struct queue *q = s->queue;
  if (of_context() > 0) {
    stub_drain(s);
    return;
  }
  pthread_mutex_lock(&q->mutex);
  q->ended = true;
  pthread_cond_broadcast(&q->changed);
  pthread_mutex_unlock(&q->mutex);
  pthread_join(q->thread, NULL);
}

void stub_append(CUstream s, struct op op, bool full) {
  struct queue *q = s->queue;
  struct op *own = malloc(sizeof *own);
  *own = op;
  own->next = NULL;
  own->stream = s;
  pthread_mutex_lock(&q->mutex);
  if (!full && q->held >= ROOM) {
    while (q->held >= ROOM) pthread_cond_wait(&q->changed, &q->mutex);
    stub_host_reached(q->now);
  }
  own->issued = stub_host_now();
  *q->last = own;
  q->last = &own->next;
  q->held++;
  s->queued++;
  pthread_cond_broadcast(&q->changed);
  pthread_mutex_unlock(&q->mutex);
}

void stub_drain(CUstream s) {
  struct queue *q = s->queue;
  uint64_t upto;
  pthread_mutex_lock(&q->mutex);
  for (upto = s->queued; s->done < upto;) pthread_cond_wait(&q->changed, &q->mutex);
  stub_host_reached(s->now);
  pthread_mutex_unlock(&q->mutex);
}

bool stub_busy(CUstream s) {
  bool is;
  pthread_mutex_lock(&s->queue->mutex);
  is = s->queued > s->done;
  if (!is) stub_host_reached(s->now);
  pthread_mutex_unlock(&s->queue->mutex);
  return is;
}
