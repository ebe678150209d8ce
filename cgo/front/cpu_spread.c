#include "cpu_spread.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
  OFTEN = 4,               /* calls in a row: one meeting is chance */
  LEAST_REST = 1000000,    /* doubled if one move soon follows another: then other programs want the CPUs, too */
  MOST_REST = 1000000000,
  BUSY_REST = 4000000      /* the longest pause if no CPU was idle: to look costs little */
};

void lp_spread_say(uint32_t* where) {
  uint32_t here = (uint32_t)sched_getcpu() + 1;
  /* Peers read this line, so it is written only for a change. */
  if (__atomic_load_n(where, __ATOMIC_RELAXED) != here) __atomic_store_n(where, here, __ATOMIC_RELAXED);
}

int lp_spread_target(int cpu, const cpu_set_t* allowed, const uint32_t* at, uint32_t ranks) {
  cpu_set_t free = *allowed;
  for (uint32_t p = 0; p < ranks; p++)
    if (at[p] != 0) CPU_CLR(at[p] - 1, &free);
  for (int i = 1; i < CPU_SETSIZE; i++) { /* the next numbers are the likeliest to be near */
    int next = (cpu + i) % CPU_SETSIZE;
    if (CPU_ISSET((size_t)next, &free)) return next;
  }
  return -1;
}

bool lp_spread_may_move(struct lp_spread* s, int64_t now) {
  if (now < s->rest_until) return false;
  if (s->rest == 0 || now - s->rest_until > 8 * s->rest)
    s->rest = LEAST_REST;
  else
    s->rest = s->rest < MOST_REST / 2 ? 2 * s->rest : MOST_REST;
  s->rest_until = now + s->rest;
  return true;
}

/* Whether some CPU is idle: there are no more runnable threads than CPUs. A rank yields to its peers, but threads
 * of other programs do not yield to it, so it must not move beside one. */
static bool some_idle(void) {
  char text[128];
  int running;
  int fd = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  text[n > 0 ? n : 0] = 0;
  return sscanf(text, "%*s %*s %*s %d/", &running) == 1 && running <= sysconf(_SC_NPROCESSORS_ONLN);
}

bool lp_spread_move(int cpu, const cpu_set_t* allowed) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET((size_t)cpu, &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) return false;
  if (sched_setaffinity(0, sizeof *allowed, allowed) != 0) {
    memset(&set, 0xff, sizeof set); /* the allowed CPUs have been taken away meanwhile: allow any */
    sched_setaffinity(0, sizeof set, &set);
  }
  return true;
}

bool lp_spread(struct lp_spread* s, const uint32_t* at, uint32_t ranks) {
  uint32_t p = 0;
  int cpu = sched_getcpu();
  while (p < ranks && at[p] != (uint32_t)cpu + 1) p++;
  if (cpu < 0 || p == ranks) {
    s->met = 0;
    return false;
  }
  if (++s->met < OFTEN) return false;
  s->met = 0;
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  int64_t now = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
  if (!lp_spread_may_move(s, now)) return false;
  int saved = errno;
  cpu_set_t allowed;
  int to = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? lp_spread_target(cpu, &allowed, at, ranks) : -1;
  bool idle = to >= 0 && some_idle(), moved = idle && lp_spread_move(to, &allowed);
  if (to >= 0 && !idle && s->rest > BUSY_REST) s->rest = BUSY_REST, s->rest_until = now + BUSY_REST;
  errno = saved;
  return moved;
}
