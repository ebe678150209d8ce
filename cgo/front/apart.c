#include "apart.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
  OFTEN = 4,            /* calls in a row: what comes once is chance */
  LEAST_REST = 1000000, /* doubled with each try that soon follows another: somebody else wants the CPUs, too */
  MOST_REST = 1000000000,
  BUSY_REST = 4000000 /* at most, where it was not even tried: to look costs little */
};

void lp_apart_say(uint32_t* where) {
  uint32_t here = (uint32_t)sched_getcpu() + 1;
  /* Others read the line: it is written only where that has changed. */
  if (__atomic_load_n(where, __ATOMIC_RELAXED) != here) __atomic_store_n(where, here, __ATOMIC_RELAXED);
}

int lp_apart_where(int cpu, const cpu_set_t* allowed, const uint32_t* at, uint32_t ranks) {
  cpu_set_t free = *allowed;
  for (uint32_t p = 0; p < ranks; p++)
    if (at[p] != 0) CPU_CLR(at[p] - 1, &free);
  for (int i = 1; i < CPU_SETSIZE; i++) { /* those behind it are the likeliest to be near */
    int next = (cpu + i) % CPU_SETSIZE;
    if (CPU_ISSET((size_t)next, &free)) return next;
  }
  return -1;
}

bool lp_apart_rested(struct lp_apart* a, int64_t now) {
  if (now < a->until) return false;
  if (a->rest == 0 || now - a->until > 8 * a->rest)
    a->rest = LEAST_REST;
  else
    a->rest = a->rest < MOST_REST / 2 ? 2 * a->rest : MOST_REST;
  a->until = now + a->rest;
  return true;
}

/* Whether some CPU has nothing to do: of threads that could run there are no more than CPUs. Beside somebody else's
 * thread, which does not yield, a rank would be worse off than here. */
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

bool lp_apart_go(int cpu, const cpu_set_t* allowed) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET((size_t)cpu, &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) return false;
  if (sched_setaffinity(0, sizeof *allowed, allowed) != 0) {
    memset(&set, 0xff, sizeof set); /* all of those have been taken from it meanwhile: whatever there is */
    sched_setaffinity(0, sizeof set, &set);
  }
  return true;
}

bool lp_apart(struct lp_apart* a, const uint32_t* at, uint32_t ranks) {
  uint32_t p = 0;
  int cpu = sched_getcpu();
  while (p < ranks && at[p] != (uint32_t)cpu + 1) p++;
  if (cpu < 0 || p == ranks) {
    a->met = 0;
    return false;
  }
  if (++a->met < OFTEN) return false;
  a->met = 0;
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  int64_t now = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
  if (!lp_apart_rested(a, now)) return false;
  int kept = errno;
  cpu_set_t allowed;
  int to = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? lp_apart_where(cpu, &allowed, at, ranks) : -1;
  bool idle = to >= 0 && some_idle(), gone = idle && lp_apart_go(to, &allowed);
  if (to >= 0 && !idle && a->rest > BUSY_REST) a->rest = BUSY_REST, a->until = now + BUSY_REST;
  errno = kept;
  return gone;
}
