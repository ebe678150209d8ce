/* Ranks as processes, some of which are killed during AllReduce, with or without rank 0. The survivors get an
 * error, shrink the communicator and use the new one; then a new process joins by ncclCommGrow. Processes are
 * forked before NCCL is used. */
#include "check.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 4, SPARE = RANKS, ALL = RANKS + 1, COUNT = 10000 };

/* Memory by which the processes talk outside NCCL. */
static struct shared {
  ncclUniqueId id, grow_id;
  int going[RANKS], have_id, have_grow_id;
} * shared;

static void wait_for(int* flag) {
  const struct timespec moment = {0, 1000 * 1000};
  while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) == 0) nanosleep(&moment, NULL);
}

static void raise_flag(int* flag) { __atomic_store_n(flag, 1, __ATOMIC_RELEASE); }

static void sum(ncclComm_t comm) {
  static float buf[COUNT];
  int i, rank, ranks;
  OK(ncclCommUserRank(comm, &rank));
  OK(ncclCommCount(comm, &ranks));
  for (i = 0; i < COUNT; i++) buf[i] = (float)(rank + i % 7);
  OK(ncclAllReduce(buf, buf, COUNT, ncclFloat, ncclSum, comm, NULL));
  for (i = 0; i < COUNT; i++) CHECK(buf[i] == (float)(ranks * (ranks - 1) / 2 + ranks * (i % 7)));
}

static void grown(ncclComm_t small, int ranks, int rank) {
  ncclComm_t big;
  const int joins = small == NULL;
  OK(ncclCommGrow(small, ranks, joins || rank == 0 ? &shared->grow_id : NULL, joins ? ranks - 1 : -1, &big, NULL));
  sum(big);
  OK(ncclCommDestroy(big));
}

static void survivor(int rank, int* dead, int deaths) {
  static float buf[COUNT];
  ncclComm_t comm, small;
  int i, n, lowest = 0;
  OK(ncclCommInitRank(&comm, RANKS, shared->id, rank));
  for (i = 0;; i++) {
    ncclResult_t rc = ncclAllReduce(buf, buf, COUNT, ncclFloat, ncclSum, comm, NULL);
    if (i == 3) raise_flag(&shared->going[rank]);
    if (rc == ncclSuccess) continue;
    CHECK(rc == ncclRemoteError);
    break;
  }
  CHECK(ncclCommShrink(comm, dead, deaths, &small, NULL, NCCL_SHRINK_DEFAULT) == ncclRemoteError);
  OK(ncclCommShrink(comm, dead, deaths, &small, NULL, NCCL_SHRINK_ABORT));
  OK(ncclCommAbort(comm)); /* the new communicator does not depend on it */
  OK(ncclCommCount(small, &n));
  CHECK(n == RANKS - deaths);
  sum(small);
  while (lowest == dead[0] || (deaths > 1 && lowest == dead[1])) lowest++;
  if (rank == lowest) {
    OK(ncclCommGetUniqueId(small, &shared->grow_id));
    raise_flag(&shared->have_grow_id);
  }
  OK(ncclCommUserRank(small, &rank));
  grown(small, n + 1, rank);
  OK(ncclCommDestroy(small));
}

static void victim(int rank) {
  static float buf[COUNT];
  ncclComm_t comm;
  int i;
  OK(ncclCommInitRank(&comm, RANKS, shared->id, rank));
  for (i = 0;; i++) {
    (void)ncclAllReduce(buf, buf, COUNT, ncclFloat, ncclSum, comm, NULL);
    if (i == 3) raise_flag(&shared->going[rank]);
  }
}

static void rank_process(int rank, int* dead, int deaths) {
  int i;
  alarm(100);
  if (rank == dead[0]) {
    OK(ncclGetUniqueId(&shared->id));
    raise_flag(&shared->have_id);
  }
  wait_for(&shared->have_id);
  if (rank == SPARE) {
    wait_for(&shared->have_grow_id);
    grown(NULL, RANKS - deaths + 1, -1);
    exit(0);
  }
  for (i = 0; i < deaths; i++)
    if (rank == dead[i]) victim(rank);
  survivor(rank, dead, deaths);
  exit(0);
}

static void job(int* dead, int deaths) {
  pid_t pids[ALL];
  int r, i, status;
  memset(shared, 0, sizeof *shared);
  for (r = 0; r < ALL; r++) {
    pids[r] = fork();
    CHECK(pids[r] >= 0);
    if (pids[r] == 0) rank_process(r, dead, deaths);
  }
  for (r = 0; r < RANKS; r++) wait_for(&shared->going[r]);
  for (i = 0; i < deaths; i++) CHECK(kill(pids[dead[i]], SIGKILL) == 0);
  for (r = 0; r < ALL; r++) {
    int killed = 0;
    CHECK(waitpid(pids[r], &status, 0) == pids[r]);
    for (i = 0; i < deaths; i++) killed |= r == dead[i];
    if (killed) {
      CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    } else {
      CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
  }
}

int main(void) {
  int last[] = {3}, leader[] = {0}, two[] = {0, 2};
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(shared != MAP_FAILED);
  job(last, 1);
  job(leader, 1);
  job(two, 2);
  return 0;
}
