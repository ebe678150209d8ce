#define _GNU_SOURCE
#include "rank.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The shared page: arrivals of this round, and the number of rounds completed. */
struct page {
  atomic_uint arrived, round;
};

struct barrier {
  struct page *page;
  unsigned world;
};

struct barrier *barrier_open(const char *path, int world) {
  int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, 4096)) {
    fprintf(stderr, "lightpath-rank: barrier %s: %s\n", path, strerror(errno));
    if (fd >= 0) close(fd);
    return NULL;
  }
  void *mem = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  struct barrier *b = mem == MAP_FAILED ? NULL : malloc(sizeof *b);
  if (b) *b = (struct barrier){mem, (unsigned)world};
  return b;
}

void barrier_wait(struct barrier *b) {
  unsigned round = atomic_load(&b->page->round);
  if (atomic_fetch_add(&b->page->arrived, 1) + 1 == b->world) {
    atomic_store(&b->page->arrived, 0);
    atomic_fetch_add(&b->page->round, 1);
    syscall(SYS_futex, &b->page->round, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    return;
  }
  while (atomic_load(&b->page->round) == round) syscall(SYS_futex, &b->page->round, FUTEX_WAIT, round, NULL, NULL, 0);
}

int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int rendezvous_put(const char *path, const ncclUniqueId *id) {
  char tmp[4200];
  snprintf(tmp, sizeof tmp, "%s.%d", path, (int)getpid());
  int fd = open(tmp, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
  FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
  if (!f) {
    fprintf(stderr, "lightpath-rank: rendezvous %s: %s\n", tmp, strerror(errno));
    return -1;
  }
  for (int i = 0; i < NCCL_UNIQUE_ID_BYTES; i++) fprintf(f, "%02x", (unsigned char)id->internal[i]);
  if (fclose(f) || rename(tmp, path)) {
    fprintf(stderr, "lightpath-rank: rendezvous %s: %s\n", path, strerror(errno));
    return -1;
  }
  return 0;
}

enum { RENDEZVOUS_SECONDS = 60 };

int rendezvous_get(const char *path, ncclUniqueId *id) {
  for (int64_t end = now_ns() + RENDEZVOUS_SECONDS * (int64_t)1000000000; now_ns() < end;) {
    FILE *f = fopen(path, "re");
    if (f) {
      unsigned byte;
      int n = 0;
      while (n < NCCL_UNIQUE_ID_BYTES && fscanf(f, "%2x", &byte) == 1) id->internal[n++] = (char)byte;
      fclose(f);
      if (n == NCCL_UNIQUE_ID_BYTES) return 0;
    }
    nanosleep(&(struct timespec){0, 2000000}, NULL);
  }
  fprintf(stderr, "lightpath-rank: rank 0 left no unique id in %s within %d s\n", path, RENDEZVOUS_SECONDS);
  return -1;
}
