/* One-sided calls between processes and threads: ping-pong, a barrier of signals, an all-to-all. */
#include "check.h"

#include <pthread.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 4, BLOCK = 100000, ROUNDS = 5 };

struct rank {
  ncclUniqueId id;
  int rank;
  bool plain; /* windows are in memory that other ranks cannot map */
};

static void signals(ncclComm_t comm) {
  ncclWaitSignalDesc_t all[RANKS];
  int r;
  OK(ncclGroupStart());
  for (r = 0; r < RANKS; r++) {
    OK(ncclSignal(r, 0, 0, 0, comm, NULL));
    all[r] = (ncclWaitSignalDesc_t){.opCnt = 1, .peer = r};
  }
  OK(ncclGroupEnd());
  OK(ncclWaitSignal(RANKS, all, comm, NULL));
}

static void pingpong(ncclComm_t comm, int rank, int* mine, ncclWindow_t win) {
  ncclWaitSignalDesc_t one = {.opCnt = 1, .peer = rank ^ 1};
  int i;
  for (i = 0; i < 100; i++) {
    if (rank % 2 == i % 2) {
      OK(ncclPutSignal(&i, 1, ncclInt, rank ^ 1, win, 4 * (size_t)i, 0, 0, 0, comm, NULL));
    } else {
      OK(ncclWaitSignal(1, &one, comm, NULL));
      CHECK(mine[i] == i);
    }
  }
  signals(comm);
}

static void alltoall(ncclComm_t comm, int rank, int* mine, ncclWindow_t win) {
  static const size_t block = BLOCK * sizeof(int);
  int* out = malloc(RANKS * block);
  ncclWaitSignalDesc_t all[RANKS];
  int r, i, round;
  CHECK(out != NULL);
  for (round = 0; round < ROUNDS; round++) {
    for (r = 0; r < RANKS; r++)
      for (i = 0; i < BLOCK; i++) out[r * BLOCK + i] = round * 1000 + rank * 10 + r;
    OK(ncclGroupStart());
    for (r = 0; r < RANKS; r++) {
      OK(ncclPutSignal(out + r * BLOCK, BLOCK, ncclInt, r, win, (size_t)rank * block, 0, 0, 0, comm, NULL));
      all[r] = (ncclWaitSignalDesc_t){.opCnt = 1, .peer = r};
    }
    OK(ncclWaitSignal(RANKS, all, comm, NULL));
    memset(all, 0, sizeof all); /* the call copies the list */
    OK(ncclGroupEnd());
    for (r = 0; r < RANKS; r++)
      for (i = 0; i < BLOCK; i++) CHECK(mine[r * BLOCK + i] == round * 1000 + r * 10 + rank);
    signals(comm);
  }
  free(out);
}

static void refused(ncclComm_t comm, ncclWindow_t win) {
  static pthread_mutex_t one_by_one = PTHREAD_MUTEX_INITIALIZER; /* the last error belongs to the process */
  ncclWaitSignalDesc_t two[2] = {{.opCnt = 1, .peer = 0}, {.opCnt = 0, .peer = 1}};
  int x = 1;
  pthread_mutex_lock(&one_by_one);
  FAILS(ncclPutSignal(&x, 1, ncclInt, 0, NULL, 0, 0, 0, 0, comm, NULL), ncclInvalidArgument, "peerWin is NULL");
  FAILS(ncclPutSignal(&x, 1, ncclInt, 0, win, (size_t)RANKS * BLOCK * 4, 0, 0, 0, comm, NULL), ncclInvalidArgument,
        "beyond the window");
  FAILS(ncclPutSignal(&x, 1, ncclInt, 0, win, 0, 1, 0, 0, comm, NULL), ncclInvalidArgument, "sigIdx is 1");
  FAILS(ncclPutSignal(NULL, 1, ncclInt, 0, win, 0, 0, 0, 0, comm, NULL), ncclInvalidArgument, "localbuff is NULL");
  FAILS(ncclPutSignal(&x, 1, ncclInt, 0, win, 0, 0, 0, 0, comm, (cudaStream_t)(void*)&x), ncclInvalidArgument,
        "stream");
  FAILS(ncclSignal(0, 0, 1, 0, comm, NULL), ncclInvalidArgument, "ctx 1");
  FAILS(ncclSignal(RANKS, 0, 0, 0, comm, NULL), ncclInvalidArgument, "peer 4");
  FAILS(ncclSignal(0, 0, 0, 0, NULL, NULL), ncclInvalidArgument, "comm is NULL");
  FAILS(ncclWaitSignal(0, two, comm, NULL), ncclInvalidArgument, "nDesc is 0");
  FAILS(ncclWaitSignal(2, two, comm, NULL), ncclInvalidArgument, "opCnt 0");
  pthread_mutex_unlock(&one_by_one);
}

static void* run(void* arg) {
  const struct rank* me = arg;
  const size_t bytes = (size_t)RANKS * BLOCK * sizeof(int);
  ncclComm_t comm;
  ncclWindow_t win;
  void* mem;
  OK(ncclCommInitRank(&comm, RANKS, me->id, me->rank));
  if (me->plain)
    CHECK(posix_memalign(&mem, NCCL_WIN_REQUIRED_ALIGNMENT, bytes) == 0);
  else
    OK(ncclMemAlloc(&mem, bytes));
  OK(ncclCommWindowRegister(comm, mem, bytes, &win, NCCL_WIN_COLL_SYMMETRIC));
  refused(comm, win);
  pingpong(comm, me->rank, mem, win);
  alltoall(comm, me->rank, mem, win);
  OK(ncclCommWindowDeregister(comm, win));
  OK(ncclCommDestroy(comm));
  if (me->plain)
    free(mem);
  else
    OK(ncclMemFree(mem));
  return NULL;
}

static void threads(bool plain) {
  struct rank ranks[RANKS];
  pthread_t t[RANKS];
  int r;
  OK(ncclGetUniqueId(&ranks[0].id));
  for (r = 0; r < RANKS; r++) {
    ranks[r] = (struct rank){ranks[0].id, r, plain};
    CHECK(pthread_create(&t[r], NULL, run, &ranks[r]) == 0);
  }
  for (r = 0; r < RANKS; r++) CHECK(pthread_join(t[r], NULL) == 0);
}

/* Each child gets the id through its pipe. Children are forked before the core is loaded. */
static void processes(void) {
  int pipes[RANKS][2], r, status;
  struct rank me = {.plain = false};
  for (r = 0; r < RANKS; r++) {
    CHECK(pipe(pipes[r]) == 0);
    if (fork() == 0) {
      me.rank = r;
      CHECK(read(pipes[r][0], &me.id, sizeof me.id) == sizeof me.id);
      run(&me);
      exit(0);
    }
  }
  OK(ncclGetUniqueId(&me.id));
  for (r = 0; r < RANKS; r++) CHECK(write(pipes[r][1], &me.id, sizeof me.id) == sizeof me.id);
  for (r = 0; r < RANKS; r++) {
    CHECK(wait(&status) > 0);
    CHECK(status == 0);
  }
}

int main(void) {
  processes();
  threads(false);
  threads(true);
  return 0;
}
