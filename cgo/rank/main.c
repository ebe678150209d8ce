#define _GNU_SOURCE
#include "rank.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The rank over NCCL's interface. */

static struct job job;
static ncclUniqueId unique_id;

static void check(const struct worker *w, const char *what, ncclResult_t result) {
  if (result == ncclSuccess) return;
  const char *text = ncclGetLastError(NULL);
  rank_fail(w, what, (int)result, text && *text ? text : ncclGetErrorString(result));
}

const char *lib_name(void) { return "lightpath"; }

const char *lib_unsupported(const struct run *r) { return nccl_lacks(r); }

void *lib_alloc(const struct worker *w, size_t bytes) {
  void *p = NULL;
  check(w, "ncclMemAlloc", ncclMemAlloc(&p, bytes));
  return p;
}

void lib_free(const struct worker *w, void *mem, size_t bytes) {
  (void)bytes;
  check(w, "ncclMemFree", ncclMemFree(mem));
}

void lib_call(const struct worker *w, const struct run *r, struct buffers at) {
  void *stream = w->device ? device_stream(w->device) : NULL;
  check(w, collective_name(r->coll), nccl_call(r, w->rank, w->world, at, w->comm, stream));
}

/* Registered buffers of a device. A rank has two at a time. */
static __thread struct { char *at; void *handle; } registered[2];

static char *registered_obtain(const struct worker *w, size_t bytes) {
  int i = registered[0].at ? 1 : 0;
  registered[i].at = device_memory.obtain(w, bytes);
  check(w, "ncclCommRegister", ncclCommRegister(w->comm, registered[i].at, bytes, &registered[i].handle));
  return registered[i].at;
}

static void registered_give_back(const struct worker *w, char *mem, size_t bytes) {
  for (int i = 0; mem && i < 2; i++) {
    if (registered[i].at != mem) continue;
    check(w, "ncclCommDeregister", ncclCommDeregister(w->comm, registered[i].handle));
    registered[i].at = NULL;
  }
  device_memory.give_back(w, mem, bytes);
}

/* Whether another library than the requested one is loaded: search paths have many sources. */
static int wrong_library(const char *asked) {
  Dl_info loaded;
  struct stat a, b;
  if (!*asked) return 0;
  if (dladdr((void *)(uintptr_t)ncclGetVersion, &loaded) && !stat(asked, &a) && !stat(loaded.dli_fname, &b) &&
      a.st_ino == b.st_ino && a.st_dev == b.st_dev)
    return 0;
  fprintf(stderr, "lightpath-rank: not %s but %s is loaded\n", asked, loaded.dli_fname);
  return -1;
}

static int rank_run(int rank) {
  struct memory of_device = device_memory;
  of_device.obtain = registered_obtain, of_device.give_back = registered_give_back;
  const struct memory *const memories[] = {
    [LIBRARY] = &library_memory, [PLAIN] = &plain_memory, [DEVICE] = &device_memory, [REGISTERED] = &of_device};
  struct worker w = {.rank = rank, .world = job.world, .memory = memories[job.memory], .out = stdout};
  if (job.memory >= DEVICE) w.device = device_open(&w, job.device);
  if (*job.barrier) w.bar = barrier_open(&w, job.barrier);
  ncclComm_t comm;
  check(&w, "ncclCommInitRank", ncclCommInitRank(&comm, job.world, unique_id, rank));
  w.comm = comm;
  int bad = work(&w, &job);
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
  if (job_read(argv[2], &job) || wrong_library(job.library)) return 2;
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
