#define _GNU_SOURCE
#include "rank.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* The rank over NCCL's interface. */

static struct job job;
static ncclUniqueId unique_id;

static void check(const struct worker *w, const char *what, ncclResult_t result) {
  if (result == ncclSuccess) return;
  const char *text = ncclGetLastError(NULL);
  rank_fail(w, what, (int)result, text && *text ? text : ncclGetErrorString(result));
}

const char *lib_name(void) { return "lightpath"; }

const char *lib_unsupported(const struct run *r) {
  (void)r;
  return NULL;
}

void *lib_alloc(const struct worker *w, size_t bytes) {
  void *p = NULL;
  check(w, "ncclMemAlloc", ncclMemAlloc(&p, bytes));
  return p;
}

void lib_free(const struct worker *w, void *mem, size_t bytes) {
  (void)bytes;
  check(w, "ncclMemFree", ncclMemFree(mem));
}

static ncclResult_t sendrecv(const struct worker *w, const struct run *r, struct buffers b) {
  ncclComm_t comm = w->comm;
  ncclResult_t result = ncclGroupStart();
  if (result == ncclSuccess) result = ncclSend(b.send, r->count, r->type, (w->rank + 1) % w->world, comm, NULL);
  if (result == ncclSuccess) result = ncclRecv(b.recv, r->count, r->type, (w->rank + w->world - 1) % w->world, comm, NULL);
  ncclResult_t end = ncclGroupEnd();
  return result != ncclSuccess ? result : end;
}

/* As frameworks do it: a group with a send and a receive for each peer, none where nothing goes. */
static ncclResult_t alltoallv(const struct worker *w, const struct run *r, struct buffers b) {
  ncclComm_t comm = w->comm;
  size_t size = type_size(r->type), n = (size_t)w->world, me = (size_t)w->rank;
  uint64_t from = 0, to = 0;
  ncclResult_t result = ncclGroupStart();
  for (size_t p = 0; p < n && result == ncclSuccess; p++) {
    uint64_t out = r->matrix[me * n + p], in = r->matrix[p * n + me];
    if (out > 0) result = ncclSend(b.send + to * size, out, r->type, (int)p, comm, NULL);
    if (in > 0 && result == ncclSuccess) result = ncclRecv(b.recv + from * size, in, r->type, (int)p, comm, NULL);
    to += out, from += in;
  }
  ncclResult_t end = ncclGroupEnd();
  return result != ncclSuccess ? result : end;
}

static ncclResult_t call(const struct worker *w, const struct run *r, struct buffers b) {
  ncclComm_t comm = w->comm;
  switch (r->coll) {
    case ALLREDUCE: return ncclAllReduce(b.send, b.recv, r->count, r->type, r->op, comm, NULL);
    case BROADCAST: return ncclBroadcast(b.send, b.recv, r->count, r->type, r->root, comm, NULL);
    case REDUCE: return ncclReduce(b.send, b.recv, r->count, r->type, r->op, r->root, comm, NULL);
    case ALLGATHER: return ncclAllGather(b.send, b.recv, r->count, r->type, comm, NULL);
    case REDUCESCATTER: return ncclReduceScatter(b.send, b.recv, r->count, r->type, r->op, comm, NULL);
    case ALLTOALL: return ncclAlltoAll(b.send, b.recv, r->count, r->type, comm, NULL);
    case GATHER: return ncclGather(b.send, b.recv, r->count, r->type, r->root, comm, NULL);
    case SCATTER: return ncclScatter(b.send, b.recv, r->count, r->type, r->root, comm, NULL);
    case ALLTOALLV: return alltoallv(w, r, b);
    default: return sendrecv(w, r, b);
  }
}

void lib_call(const struct worker *w, const struct run *r, struct buffers at) { check(w, collective_name(r->coll), call(w, r, at)); }

static int rank_run(int rank) {
  struct worker w = {.rank = rank, .world = job.world, .plain = job.plain, .out = stdout};
  w.bar = *job.barrier ? barrier_open(job.barrier, job.world) : NULL;
  ncclComm_t comm;
  check(&w, "ncclCommInitRank", ncclCommInitRank(&comm, job.world, unique_id, rank));
  w.comm = comm;
  int bad = 0;
  if (*job.commands) {
    bad = work_session(&w, job.commands);
  } else {
    work_through(&w, &job);
  }
  check(&w, "ncclCommFinalize", ncclCommFinalize(comm));
  check(&w, "ncclCommDestroy", ncclCommDestroy(comm));
  free(w.bar);
  return bad;
}

static void *rank_main(void *arg) {
  rank_run((int)(intptr_t)arg);
  return NULL;
}

int main(int argc, char **argv) {
  if (argc != 3 || strcmp(argv[1], "--job") != 0) {
    fprintf(stderr, "usage: lightpath-rank --job FILE (started by lightpath bench and lightpath demo)\n");
    return 2;
  }
  if (job_read(argv[2], &job)) return 2;
  if (*job.commands && job.threads > 1) {
    fprintf(stderr, "lightpath-rank: a rank with commands needs a process of its own\n");
    return 2;
  }
  if (job.rank == 0) {
    check(&(struct worker){.out = stdout}, "ncclGetUniqueId", ncclGetUniqueId(&unique_id));
    if (job.threads < job.world && rendezvous_put(job.rendezvous, &unique_id)) return 1;
  } else if (rendezvous_get(job.rendezvous, &unique_id)) {
    return 1;
  }
  pthread_t *threads = calloc((size_t)job.threads, sizeof *threads);
  for (int t = 1; t < job.threads; t++)
    if (pthread_create(&threads[t], NULL, rank_main, (void *)(intptr_t)(job.rank + t))) return 1;
  int bad = rank_run(job.rank);
  for (int t = 1; t < job.threads; t++) pthread_join(threads[t], NULL);
  free(threads);
  for (size_t i = 0; i < job.nruns; i++) free(job.runs[i].matrix);
  free(job.runs);
  return bad ? 1 : 0;
}
