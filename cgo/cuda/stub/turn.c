/* Turns of processes on a device. A process has the turn while it locks the device's file in STUB_CUDA_SHARE. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "stub.h"

enum { TURN_NS = 2000000 };

/* The contents of a device's file: of the last turn. */
struct last {
  uint64_t end; /* on the virtual clock */
  pid_t process;
};

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

/* Waits for the turn. A change of process has a cost. */
static void take(struct turn *t, CUdevice device) {
  const struct timespec change = {cost / 1000000, cost % 1000000 * 1000};
  struct last last = {0};
  if (t->fd == 0) t->fd = open_device(device);
  while (flock(t->fd, LOCK_EX) != 0 && errno == EINTR) {
  }
  t->start = 0;
  if (pread(t->fd, &last, sizeof last, 0) == sizeof last) {
    bool changes = last.process != getpid();
    if (changes) nanosleep(&change, NULL);
    t->start = last.end + (changes ? (uint64_t)cost * 1000 : 0);
  }
  t->end = t->start;
  t->began = now();
}

static void give(struct turn *t) {
  struct last last = {.end = t->end, .process = getpid()};
  if (pwrite(t->fd, &last, sizeof last, 0) != sizeof last) abort();
  flock(t->fd, LOCK_UN);
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
    give(t);
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
