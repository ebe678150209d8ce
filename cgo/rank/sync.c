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
  struct page *page; /* NULL: the launcher counts arrivals */
  unsigned world;
};

/* Reads a line from the launcher. Exits at the end of the input: then the launcher has ended. */
static void launcher_line(char *text, size_t size) {
  if (fgets(text, (int)size, stdin)) return;
  fprintf(stderr, "lightpath-rank: the launcher has closed the rank's input\n");
  exit(1);
}

/* The others would wait forever for a rank without a barrier, so it fails. */
struct barrier *barrier_open(const struct worker *w, const char *path) {
  struct barrier *b = calloc(1, sizeof *b);
  if (b && strcmp(path, LAUNCHER) == 0) return b;
  int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  /* Not ftruncate, which takes no space: on a full disk the first arrival would end the rank by SIGBUS. */
  int err = fd < 0 ? errno : posix_fallocate(fd, 0, sizeof(struct page));
  void *mem = err ? MAP_FAILED : mmap(NULL, sizeof(struct page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (!b || mem == MAP_FAILED) rank_fail(w, "barrier", err, strerror(err ? err : errno));
  close(fd);
  *b = (struct barrier){mem, (unsigned)w->world};
  return b;
}

void barrier_wait(struct barrier *b) {
  if (!b->page) {
    char line[8];
    puts("{\"barrier\":true}");
    fflush(stdout);
    launcher_line(line, sizeof line);
    return;
  }
  unsigned round = atomic_load(&b->page->round);
  if (atomic_fetch_add(&b->page->arrived, 1) + 1 == b->world) {
    atomic_store(&b->page->arrived, 0);
    atomic_fetch_add(&b->page->round, 1);
    syscall(SYS_futex, &b->page->round, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    return;
  }
  while (atomic_load(&b->page->round) == round) syscall(SYS_futex, &b->page->round, FUTEX_WAIT, round, NULL, NULL, 0);
}

static int64_t clock_ns(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

int64_t cpu_ns(void) { return clock_ns(CLOCK_PROCESS_CPUTIME_ID); }

static void write_id(FILE *f, const ncclUniqueId *id) {
  for (int i = 0; i < NCCL_UNIQUE_ID_BYTES; i++) fprintf(f, "%02x", (unsigned char)id->internal[i]);
}

int rendezvous_put(const char *path, const ncclUniqueId *id) {
  if (strcmp(path, LAUNCHER) == 0) {
    printf("{\"unique_id\":\"");
    write_id(stdout, id);
    puts("\"}");
    return fflush(stdout);
  }
  char tmp[4200];
  snprintf(tmp, sizeof tmp, "%s.%d", path, (int)getpid());
  int fd = open(tmp, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
  FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
  if (!f) {
    fprintf(stderr, "lightpath-rank: rendezvous %s: %s\n", tmp, strerror(errno));
    return -1;
  }
  write_id(f, id);
  if (fclose(f) || rename(tmp, path)) {
    fprintf(stderr, "lightpath-rank: rendezvous %s: %s\n", path, strerror(errno));
    return -1;
  }
  return 0;
}

enum { RENDEZVOUS_SECONDS = 60 };

static int read_id(FILE *f, ncclUniqueId *id) {
  unsigned byte;
  int n = 0;
  while (n < NCCL_UNIQUE_ID_BYTES && fscanf(f, "%2x", &byte) == 1) id->internal[n++] = (char)byte;
  return n == NCCL_UNIQUE_ID_BYTES ? 0 : -1;
}

int rendezvous_get(const char *path, ncclUniqueId *id) {
  if (strcmp(path, LAUNCHER) == 0) {
    char rest[8];
    int err = read_id(stdin, id);
    launcher_line(rest, sizeof rest); /* the end of the line */
    return err;
  }
  for (int64_t end = now_ns() + RENDEZVOUS_SECONDS * (int64_t)1000000000; now_ns() < end;) {
    FILE *f = fopen(path, "re");
    if (f) {
      int err = read_id(f, id);
      fclose(f);
      if (!err) return 0;
    }
    nanosleep(&(struct timespec){0, 2000000}, NULL);
  }
  fprintf(stderr, "lightpath-rank: rank 0 left no unique id in %s within %d s\n", path, RENDEZVOUS_SECONDS);
  return -1;
}
