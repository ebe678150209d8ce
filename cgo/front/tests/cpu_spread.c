/* CPU spreading: its decisions, the move, and two ranks on one CPU. Some tests pretend CPUs that the machine may
 * not have. Linked with cgo/front/cpu_spread.c. */
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cpu_spread.h"
#include "check.h"

/* ---- The system calls of the library: real, or pretended ---- */

static struct {
  int cpu, cpus; /* the rank's CPU, and the number of CPUs; 0: the real ones */
  long online;
  int asked_cpus, asked_online, moves, sets;
  cpu_set_t set[2];
} pretended;

int sched_getcpu(void) {
  unsigned cpu;
  if (pretended.cpus > 0) return pretended.cpu;
  return syscall(SYS_getcpu, &cpu, NULL, NULL) == 0 ? (int)cpu : -1;
}

int sched_getaffinity(pid_t pid, size_t size, cpu_set_t* set) {
  memset(set, 0, size);
  pretended.asked_cpus++;
  for (int i = 0; i < pretended.cpus; i++) CPU_SET((size_t)i, set);
  return pretended.cpus > 0 || syscall(SYS_sched_getaffinity, pid, size, set) >= 0 ? 0 : -1;
}

int sched_setaffinity(pid_t pid, size_t size, const cpu_set_t* set) {
  if (pretended.cpus == 0) return (int)syscall(SYS_sched_setaffinity, pid, size, set);
  pretended.set[pretended.sets++ % 2] = *set;
  if (CPU_COUNT(set) > 1) return 0;
  for (pretended.cpu = 0; !CPU_ISSET((size_t)pretended.cpu, set);) pretended.cpu++;
  pretended.moves++;
  return 0;
}

long sysconf(int name) {
  long (*real)(int);
  if (pretended.cpus > 0 && name == _SC_NPROCESSORS_ONLN) {
    pretended.asked_online++;
    return pretended.online;
  }
  *(void**)&real = dlsym(RTLD_NEXT, "sysconf");
  return real(name);
}

/* ---- Decisions ---- */

static cpu_set_t set_of(const char* cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (; *cpus; cpus++) CPU_SET((size_t)(*cpus - '0'), &set);
  return set;
}

static void targets(void) {
  static const struct {
    int cpu;
    const char* allowed;
    uint32_t at[3];
    int to;
  } cases[] = {
      {0, "01", {0, 1}, 1},     {1, "01", {2, 0}, 0},       {0, "01", {1, 2, 0}, -1}, /* no CPU without a rank */
      {0, "0", {1, 0}, -1},     {0, "0123", {1, 2, 0}, 2},  {2, "0123", {3, 0, 4}, 0}, /* wraps */
      {1, "13", {2, 0}, 3},     {1, "1357", {2, 4, 0}, 5},  {0, "01", {1, 0, 0}, 1}, /* one is unknown */
      {0, "0", {1, 4000000000u}, -1}, {0, "1", {1, 5000}, 1}, /* not the number of a CPU */
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    cpu_set_t allowed = set_of(cases[i].allowed);
    IS(lp_spread_target(cases[i].cpu, &allowed, cases[i].at, 3), cases[i].to);
  }
}

static void pauses(void) {
  enum { MS = 1000000 };
  struct lp_spread a = {0};
  CHECK(lp_spread_may_move(&a, 5 * MS));
  CHECK(!lp_spread_may_move(&a, 6 * MS - 1));
  CHECK(lp_spread_may_move(&a, 6 * MS)); /* soon after the last move: the pause doubles */
  CHECK(!lp_spread_may_move(&a, 8 * MS - 1));
  CHECK(lp_spread_may_move(&a, 8 * MS));
  CHECK(!lp_spread_may_move(&a, 12 * MS - 1));
  CHECK(lp_spread_may_move(&a, 45 * MS)); /* long after: the pause is short again */
  CHECK(lp_spread_may_move(&a, 46 * MS));
  int64_t now = 46 * MS;
  for (int i = 0; i < 50; i++) {
    now = a.rest_until;
    CHECK(lp_spread_may_move(&a, now));
  }
  CHECK(a.rest_until - now <= 1000 * MS);
}

/* ---- The move ---- */

static cpu_set_t mine(void) {
  cpu_set_t set;
  CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
  return set;
}

static void moves(void) {
  cpu_set_t all = mine(), now, none;
  uint32_t said = 0;
  CPU_ZERO(&none);
  CPU_SET(CPU_SETSIZE - 1, &none);
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)cpu, &one);
    if (!CPU_ISSET((size_t)cpu, &all)) continue;
    CHECK(lp_spread_move(cpu, &one)); /* with no other CPU allowed, it stays there */
    IS(sched_getcpu(), cpu);
    lp_spread_say(&said);
    IS(said, cpu + 1);
    CHECK(lp_spread_move(cpu, &all));
    now = mine();
    CHECK(CPU_EQUAL(&now, &all));
  }
  if (CPU_ISSET(CPU_SETSIZE - 1, &all)) return; /* this machine has that CPU */
  CHECK(!lp_spread_move(CPU_SETSIZE - 1, &all));
  now = mine();
  CHECK(CPU_EQUAL(&now, &all));
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    if (!CPU_ISSET((size_t)cpu, &all)) continue;
    CHECK(lp_spread_move(cpu, &none)); /* the allowed CPUs do not exist: all are allowed */
    now = mine();
    cpu_set_t both;
    CPU_AND(&both, &now, &all);
    CHECK(CPU_EQUAL(&both, &all));
    CHECK(sched_setaffinity(0, sizeof all, &all) == 0);
  }
}

/* ---- Two ranks on one CPU ---- */

static ncclComm_t comm;

/* Combines the ranks' values by one more call. */
static int together(int value, ncclRedOp_t op) {
  int sum;
  OK(ncclAllReduce(&value, &sum, 1, ncclInt, op, comm, NULL));
  return sum;
}

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void turns(int rank, const ncclUniqueId* id) {
  cpu_set_t all = mine(), one, wide = set_of("012"), other = set_of("1");
  int cpu = 0;
  while (!CPU_ISSET((size_t)cpu, &all)) cpu++;
  CPU_ZERO(&one);
  CPU_SET((size_t)cpu, &one);
  CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
  OK(ncclCommInitRank(&comm, 2, *id, rank));

  /* A thread with one CPU, and a machine with no idle CPU: no move. */
  pretended.cpus = 1, pretended.online = 1 << 20, pretended.asked_cpus = 0;
  while (together(pretended.asked_cpus, ncclMax) < 3) continue;
  IS(together(pretended.sets, ncclSum), 0);
  pretended.cpus = 3, pretended.online = 0;
  int64_t began = now_ms();
  while (together(pretended.asked_online, ncclMax) < 30) continue; /* it looks at least every 4 ms */
  CHECK(now_ms() - began < 5000);
  IS(together(pretended.sets, ncclSum), 0);

  /* One rank moves, and its set of allowed CPUs is the same as before. Then both ranks stay on their CPUs. */
  pretended.online = 1 << 20;
  while (together(pretended.moves, ncclSum) == 0) continue;
  int64_t end = now_ms() + 500; /* longer than its pause */
  do IS(together(pretended.moves, ncclSum), 1);
  while (together(now_ms() < end, ncclMax));
  IS(pretended.sets, 2 * pretended.moves);
  if (pretended.moves == 1) CHECK(CPU_EQUAL(&pretended.set[0], &other) && CPU_EQUAL(&pretended.set[1], &wide));

  pretended.cpus = 0;
  OK(ncclCommDestroy(comm));
}

int main(void) {
  pid_t children[2];
  int bad = 0, status;
  targets();
  pauses();
  moves();
  struct {
    ncclUniqueId id;
    int there;
  }* first = mmap(NULL, sizeof *first, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (first == MAP_FAILED) return 2;
  for (int rank = 0; rank < 2; rank++) {
    if ((children[rank] = fork()) != 0) continue;
    if (rank == 0) {
      OK(ncclGetUniqueId(&first->id));
      __atomic_store_n(&first->there, 1, __ATOMIC_RELEASE);
    }
    while (!__atomic_load_n(&first->there, __ATOMIC_ACQUIRE)) usleep(1000);
    turns(rank, &first->id);
    return 0;
  }
  for (int rank = 0; rank < 2; rank++) {
    CHECK(waitpid(children[rank], &status, 0) == children[rank]);
    bad |= status != 0;
  }
  return bad;
}
