/* 200 communicators of one rank and 200 of two ranks are made, used and destroyed in one process. Then 350 of one
 * rank and 350 of two exist at once, which is more ranks than there are gates. The test checks that handles differ,
 * and that descriptors, threads, mappings and memory do not grow. An argument replaces the number 200. */
#include "check.h"

#include <time.h>
#include <unistd.h>

enum { TIMES = 200, AT_ONCE = 700 };

static void single(int i) {
  ncclUniqueId id;
  ncclComm_t comm;
  int in = i, out = -1;
  OK(ncclGetUniqueId(&id));
  OK(ncclCommInitRank(&comm, 1, id, 0));
  OK(ncclAllReduce(&in, &out, 1, ncclInt, ncclSum, comm, NULL));
  CHECK(out == i);
  OK(ncclCommDestroy(comm));
  FAILS(ncclCommDestroy(comm), ncclInvalidArgument, "destroyed");
}

static void pair(int i) {
  ncclComm_t comms[2];
  int in[2] = {i, 1}, out[2] = {-1, -1}, r;
  OK(ncclCommInitAll(comms, 2, NULL));
  CHECK(comms[0] != comms[1]);
  OK(ncclGroupStart());
  for (r = 0; r < 2; r++) OK(ncclAllReduce(&in[r], &out[r], 1, ncclInt, ncclSum, comms[r], NULL));
  OK(ncclGroupEnd());
  CHECK(out[0] == i + 1 && out[1] == i + 1);
  if (i % 2 == 0)
    for (r = 0; r < 2; r++) OK(ncclCommFinalize(comms[r]));
  for (r = 0; r < 2; r++) OK(ncclCommDestroy(comms[r]));
}

/* All exist at the same time. Every second one has two ranks. */
static void at_once(void) {
  static ncclComm_t comms[AT_ONCE][2];
  int i, r;
  for (i = 0; i < AT_ONCE; i++) {
    if (i % 2 == 0) {
      OK(ncclCommInitAll(comms[i], 1, NULL));
    } else {
      OK(ncclCommInitAll(comms[i], 2, NULL));
    }
  }
  for (i = 0; i < AT_ONCE; i++) {
    int in[2] = {i, 1}, out[2] = {-1, -1};
    OK(ncclGroupStart());
    for (r = 0; r <= i % 2; r++) OK(ncclAllReduce(&in[r], &out[r], 1, ncclInt, ncclSum, comms[i][r], NULL));
    OK(ncclGroupEnd());
    for (r = 0; r <= i % 2; r++) CHECK(out[r] == i + i % 2);
  }
  for (i = 0; i < AT_ONCE; i++)
    for (r = 0; r <= i % 2; r++) OK(ncclCommDestroy(comms[i][r]));
}

/* The process's memory in use, in KiB. */
static int resident(const char* path) {
  long pages = 0;
  FILE* f = fopen(path, "re");
  CHECK(f != NULL && fscanf(f, "%*d %ld", &pages) == 1);
  fclose(f);
  return (int)(pages * (sysconf(_SC_PAGESIZE) / 1024));
}

static int lines(const char* path) {
  int n = 0, c;
  FILE* f = fopen(path, "re");
  while (f != NULL && (c = getc(f)) != EOF) n += c == '\n';
  if (f != NULL) fclose(f);
  return n;
}

/* How many more threads the Go runtime may keep than after the first communicators. Each has a stack, a guard page
 * and a heap of two mappings. */
enum { ROOM = 16, ROOM_FOR_MAPPINGS = 5 * ROOM };

/* How many rounds may grow before that counts as a leak. */
enum { ROUNDS = 5 };

/* Destroyed communicators release their resources in the background. Waits until there are no more than after the
 * first communicators, plus room. */
static void settles(const char* what, int before, int room, int (*now)(const char*), const char* path) {
  struct timespec moment = {0, 50 * 1000 * 1000};
  int i;
  for (i = 0; i < 1200 && now(path) > before + room; i++) nanosleep(&moment, NULL);
  if (now(path) > before + room) fprintf(stderr, "%s: %d, were %d\n", what, now(path), before);
  CHECK(now(path) <= before + room);
}

int main(int argc, char** argv) {
  const int times = argc > 1 ? atoi(argv[1]) : TIMES;
  int i, fds, threads, maps;
  for (i = 0; i < 20; i++) single(i), pair(i);
  fds = count_entries("/proc/self/fd");
  threads = count_entries("/proc/self/task");
  maps = lines("/proc/self/maps");
  for (i = 0; i < TIMES; i++) single(i), pair(i); /* until the heap stops growing */
  /* A leak grows in every round. The heap of the Go runtime grows in some: the more, the later its collector runs. */
  for (i = 0; i < ROUNDS; i++) {
    const int before = resident("/proc/self/statm");
    int j, after;
    for (j = 0; j < times; j++) single(j);
    for (j = 0; j < times; j++) pair(j);
    after = resident("/proc/self/statm");
    fprintf(stderr, "%d communicators: from %d to %d KiB\n", 2 * times, before, after);
    if (after <= before + 16 * 2 * times) break; /* 16 KiB for each communicator */
  }
  CHECK(i < ROUNDS);
  at_once();
  settles("descriptors", fds, ROOM, count_entries, "/proc/self/fd");
  settles("threads", threads, ROOM, count_entries, "/proc/self/task");
  settles("mappings", maps, ROOM_FOR_MAPPINGS, lines, "/proc/self/maps");
  return 0;
}
