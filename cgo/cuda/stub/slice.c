/* Turns of processes on a device. The lock of a file in STUB_CUDA_SHARE says which process has the turn. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "stub.h"

enum { TURN_NS = 2000000 };

struct turn {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  int fd;          /* 0: not open */
  unsigned users;  /* threads that run in the turn */
  bool over;       /* users leave, so that another process can have it */
  uint64_t began;
  uint64_t start, end; /* of the turn, on the virtual clock */
};

static struct turn turns[MAX_DEVICES] = {
    [0 ... MAX_DEVICES - 1] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, false, 0, 0, 0}};
static long cost; /* us; -1 without turns */
static const char *folder;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static __thread struct turn *mine; /* the turn that this thread runs in */

static void configure(void) {
  const char *us = getenv("STUB_CUDA_SLICE");
  folder = getenv("STUB_CUDA_SHARE");
  cost = us != NULL && *us != '\0' && folder != NULL ? strtol(us, NULL, 10) : -1;
}

static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static int open_device(CUdevice device) {
  char path[4096];
  int fd;
  snprintf(path, sizeof path, "%s/device-%d", folder, device);
  fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) {
    perror(path);
    abort();
  }
  return fd;
}

/* Waits for the turn. The file holds the process that had it last. */
static void take(struct turn *t, CUdevice device) {
  const struct timespec change = {cost / 1000000, cost % 1000000 * 1000};
  pid_t last = 0, self = getpid();
  if (t->fd == 0) t->fd = open_device(device);
  while (flock(t->fd, LOCK_EX) != 0 && errno == EINTR) {
  }
  if (pread(t->fd, &last, sizeof last, 0) == sizeof last && last != self) nanosleep(&change, NULL);
  if (stub_clock())
    t->start = t->end = *stub_turn_end(device) + (last != 0 && last != self ? (uint64_t)cost * 1000 : 0);
  if (last != self && pwrite(t->fd, &self, sizeof self, 0) != sizeof self) abort();
  t->began = now();
}

void stub_take_turn(CUdevice device) {
  struct turn *t = &turns[device];
  pthread_once(&once, configure);
  if (cost < 0) return;
  if (mine != NULL && !__atomic_load_n(&t->over, __ATOMIC_RELAXED) && now() - t->began < TURN_NS) return;
  if (mine != NULL) {
    pthread_mutex_lock(&t->mutex);
    __atomic_store_n(&t->over, true, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&t->mutex);
    stub_end_turn();
  }
  pthread_mutex_lock(&t->mutex);
  while (t->over) pthread_cond_wait(&t->changed, &t->mutex);
  if (t->users++ == 0) take(t, device);
  mine = t;
  pthread_mutex_unlock(&t->mutex);
}

void stub_end_turn(void) {
  struct turn *t = mine;
  if (t == NULL) return;
  mine = NULL;
  pthread_mutex_lock(&t->mutex);
  if (--t->users == 0) {
    if (stub_clock()) *stub_turn_end((CUdevice)(t - turns)) = t->end;
    flock(t->fd, LOCK_UN);
    __atomic_store_n(&t->over, false, __ATOMIC_RELAXED);
    pthread_cond_broadcast(&t->changed);
  }
  pthread_mutex_unlock(&t->mutex);
}

void stub_in_turn(CUdevice device, uint64_t end) {
  struct turn *t = &turns[device];
  if (mine == NULL) return;
  pthread_mutex_lock(&t->mutex);
  if (t->end < end) t->end = end;
  pthread_mutex_unlock(&t->mutex);
}

uint64_t stub_turn_began(CUdevice device) { return mine != NULL ? turns[device].start : 0; }
