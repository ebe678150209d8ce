#define _GNU_SOURCE
#include "rank.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct job job;
static ncclUniqueId unique_id;
static pthread_mutex_t output = PTHREAD_MUTEX_INITIALIZER;

/* Ends the process: a rank that failed cannot go on, and its launcher tells the others. */
static void fail(int rank, const char *what, ncclResult_t result) {
  const char *text = ncclGetLastError(NULL);
  pthread_mutex_lock(&output);
  printf("{\"rank\":%d,\"result\":%d,\"error\":\"%s: ", rank, (int)result, what);
  for (const char *c = text && *text ? text : ncclGetErrorString(result); *c; c++) {
    if (*c == '"' || *c == '\\') putchar('\\');
    putchar((unsigned char)*c < 0x20 ? ' ' : *c);
  }
  printf("\"}\n");
  fflush(stdout);
  _exit(1);
}

#define CHECK(rank, what, call)                           \
  do {                                                    \
    ncclResult_t result_ = (call);                        \
    if (result_ != ncclSuccess) fail(rank, what, result_); \
  } while (0)

struct buffers {
  char *send, *recv;
};

/* Where the call's pointers are when it runs in place (NCCL's rules). */
static struct buffers place(const struct run *r, int rank, struct buffers b) {
  if (!r->inplace) return b;
  size_t block = r->count * type_size(r->type);
  switch (r->coll) {
    case ALLGATHER: return (struct buffers){b.recv + (size_t)rank * block, b.recv};
    case GATHER: return rank == r->root ? (struct buffers){b.recv + (size_t)rank * block, b.recv} : b;
    case REDUCESCATTER: return (struct buffers){b.send, b.send + (size_t)rank * block};
    case SCATTER: return rank == r->root ? (struct buffers){b.send, b.send + (size_t)rank * block} : b;
    default: return (struct buffers){b.recv, b.recv};
  }
}

static ncclResult_t sendrecv(const struct run *r, struct buffers b, int rank, ncclComm_t comm) {
  ncclResult_t result = ncclGroupStart();
  if (result == ncclSuccess) result = ncclSend(b.send, r->count, r->type, (rank + 1) % job.world, comm, NULL);
  if (result == ncclSuccess) result = ncclRecv(b.recv, r->count, r->type, (rank + job.world - 1) % job.world, comm, NULL);
  ncclResult_t end = ncclGroupEnd();
  return result != ncclSuccess ? result : end;
}

static ncclResult_t call(const struct run *r, struct buffers b, int rank, ncclComm_t comm) {
  switch (r->coll) {
    case ALLREDUCE: return ncclAllReduce(b.send, b.recv, r->count, r->type, r->op, comm, NULL);
    case BROADCAST: return ncclBroadcast(b.send, b.recv, r->count, r->type, r->root, comm, NULL);
    case REDUCE: return ncclReduce(b.send, b.recv, r->count, r->type, r->op, r->root, comm, NULL);
    case ALLGATHER: return ncclAllGather(b.send, b.recv, r->count, r->type, comm, NULL);
    case REDUCESCATTER: return ncclReduceScatter(b.send, b.recv, r->count, r->type, r->op, comm, NULL);
    case ALLTOALL: return ncclAlltoAll(b.send, b.recv, r->count, r->type, comm, NULL);
    case GATHER: return ncclGather(b.send, b.recv, r->count, r->type, r->root, comm, NULL);
    case SCATTER: return ncclScatter(b.send, b.recv, r->count, r->type, r->root, comm, NULL);
    default: return sendrecv(r, b, rank, comm);
  }
}

/* Fresh input and a receive buffer that holds nothing right. */
static void prepare(const struct run *r, int rank, struct buffers b, struct buffers at) {
  memset(b.recv, 0xA5, recv_count(r, job.world) * type_size(r->type));
  fill(at.send, r, rank, send_count(r, job.world));
}

struct outcome {
  double us;
  uint64_t wrong;
  int64_t (*iters)[2];
};

static void take_pause(const struct run *r) { nanosleep(&(struct timespec){r->pause / 1000, r->pause % 1000 * 1000000L}, NULL); }

static struct outcome run_sync(const struct run *r, int rank, ncclComm_t comm, struct buffers b, struct barrier *bar) {
  struct buffers at = place(r, rank, b);
  struct outcome out = {.iters = calloc((size_t)r->iters, sizeof *out.iters)};
  for (int i = -r->warmup; i < r->iters; i++) {
    prepare(r, rank, b, at);
    take_pause(r);
    barrier_wait(bar);
    int64_t start = now_ns();
    CHECK(rank, collective_name(r->coll), call(r, at, rank, comm));
    int64_t end = now_ns();
    barrier_wait(bar); /* checking takes the CPU from ranks that are still in the call */
    if (r->check) out.wrong += count_wrong(at.recv, r, rank, job.world);
    if (i < 0) continue;
    out.iters[i][0] = start, out.iters[i][1] = end;
    out.us += (double)(end - start) / 1e3 / r->iters;
  }
  return out;
}

static struct outcome run_loop(const struct run *r, int rank, ncclComm_t comm, struct buffers b, struct barrier *bar) {
  struct buffers at = place(r, rank, b);
  struct outcome out = {0};
  take_pause(r);
  prepare(r, rank, b, at);
  for (int i = 0; i < r->warmup; i++) CHECK(rank, collective_name(r->coll), call(r, at, rank, comm));
  if (bar) barrier_wait(bar);
  int64_t start = now_ns();
  for (int i = 0; i < r->iters; i++) CHECK(rank, collective_name(r->coll), call(r, at, rank, comm));
  out.us = (double)(now_ns() - start) / 1e3 / r->iters;
  if (r->check) {
    prepare(r, rank, b, at);
    CHECK(rank, collective_name(r->coll), call(r, at, rank, comm));
    out.wrong = count_wrong(at.recv, r, rank, job.world);
  }
  return out;
}

static void report(const struct run *r, int rank, const struct outcome *o) {
  pthread_mutex_lock(&output);
  printf("{\"rank\":%d,\"collective\":\"%s\",\"bytes\":%llu,\"count\":%llu,\"inplace\":%d,\"time_us\":%.4f,\"wrong\":%llu", rank,
         collective_name(r->coll), (unsigned long long)r->bytes, (unsigned long long)r->count, r->inplace, o->us,
         (unsigned long long)o->wrong);
  if (o->iters) {
    printf(",\"iters_ns\":[");
    for (int i = 0; i < r->iters; i++) printf("%s[%lld,%lld]", i ? "," : "", (long long)o->iters[i][0], (long long)o->iters[i][1]);
    printf("]");
  }
  printf("}\n");
  fflush(stdout);
  pthread_mutex_unlock(&output);
}

static char *buffer(int rank, size_t bytes) {
  void *p = NULL;
  CHECK(rank, "ncclMemAlloc", ncclMemAlloc(&p, bytes ? bytes : 1));
  memset(p, 0, bytes);
  return p;
}

static void *rank_main(void *arg) {
  int rank = (int)(intptr_t)arg;
  struct barrier *bar = *job.barrier ? barrier_open(job.barrier, job.world) : NULL;
  size_t send = 0, recv = 0;
  for (size_t i = 0; i < job.nruns; i++) {
    const struct run *r = &job.runs[i];
    size_t size = type_size(r->type), s = send_count(r, job.world) * size, v = recv_count(r, job.world) * size;
    send = s > send ? s : send;
    recv = v > recv ? v : recv;
    if (r->sync && !bar) {
      fprintf(stderr, "lightpath-rank: mode=sync needs a barrier\n");
      _exit(1);
    }
  }
  ncclComm_t comm;
  CHECK(rank, "ncclCommInitRank", ncclCommInitRank(&comm, job.world, unique_id, rank));
  struct buffers b = {buffer(rank, send), buffer(rank, recv)};
  for (size_t i = 0; i < job.nruns; i++) {
    const struct run *r = &job.runs[i];
    struct outcome o = r->sync ? run_sync(r, rank, comm, b, bar) : run_loop(r, rank, comm, b, bar);
    report(r, rank, &o);
    free(o.iters);
  }
  CHECK(rank, "ncclCommFinalize", ncclCommFinalize(comm));
  CHECK(rank, "ncclCommDestroy", ncclCommDestroy(comm));
  CHECK(rank, "ncclMemFree", ncclMemFree(b.send));
  CHECK(rank, "ncclMemFree", ncclMemFree(b.recv));
  free(bar);
  return NULL;
}

int main(int argc, char **argv) {
  if (argc != 3 || strcmp(argv[1], "--job") != 0) {
    fprintf(stderr, "usage: lightpath-rank --job FILE (started by lightpath bench and lightpath demo)\n");
    return 2;
  }
  if (job_read(argv[2], &job)) return 2;
  if (job.rank == 0) {
    CHECK(0, "ncclGetUniqueId", ncclGetUniqueId(&unique_id));
    if (job.threads < job.world && rendezvous_put(job.rendezvous, &unique_id)) return 1;
  } else if (rendezvous_get(job.rendezvous, &unique_id)) {
    return 1;
  }
  pthread_t *threads = calloc((size_t)job.threads, sizeof *threads);
  for (int t = 1; t < job.threads; t++)
    if (pthread_create(&threads[t], NULL, rank_main, (void *)(intptr_t)(job.rank + t))) return 1;
  rank_main((void *)(intptr_t)job.rank);
  for (int t = 1; t < job.threads; t++) pthread_join(threads[t], NULL);
  free(threads);
  free(job.runs);
  return 0;
}
