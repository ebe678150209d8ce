/* A rank ends before the others have made their last call: leaves HOW CALL [LEAVER]. HOW is destroy (its process goes
 * on), leave (destroy, and its process ends), exit (its process ends without destroy) or kill. CALL is allreduce,
 * sendrecv or group (a send and a receive of each pair). Every other rank gets ncclRemoteError that names the rank,
 * long before LIGHTPATH_TIMEOUT. Processes are forked before NCCL is used. */
#include "check.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 3, COMMON = 5, MORE = 1000, COUNT = 100 };

static struct shared {
  ncclUniqueId id;
  int have_id, common, over;
} * shared;

static void wait_for(int* flag, int value) {
  const struct timespec moment = {0, 1000 * 1000};
  while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) < value) nanosleep(&moment, NULL);
}

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static ncclResult_t call(const char* what, int rank, ncclComm_t comm) {
  static float in[RANKS][COUNT], out[RANKS][COUNT];
  ncclResult_t rc;
  int p;
  if (strcmp(what, "allreduce") == 0) return ncclAllReduce(in, out, COUNT, ncclFloat, ncclSum, comm, NULL);
  if (strcmp(what, "sendrecv") == 0) { /* round the ring, the receive alone */
    rc = rank == 0 ? ncclSend(in, COUNT, ncclFloat, 1, comm, NULL) : ncclSuccess;
    if (rc == ncclSuccess) rc = ncclRecv(out, COUNT, ncclFloat, (rank + RANKS - 1) % RANKS, comm, NULL);
    if (rc == ncclSuccess && rank != 0) rc = ncclSend(in, COUNT, ncclFloat, (rank + 1) % RANKS, comm, NULL);
    return rc;
  }
  OK(ncclGroupStart());
  for (p = 0; p < RANKS; p++) {
    if (p == rank) continue;
    OK(ncclSend(in[p], COUNT, ncclFloat, p, comm, NULL));
    OK(ncclRecv(out[p], COUNT, ncclFloat, p, comm, NULL));
  }
  return ncclGroupEnd();
}

static void rank_process(int rank, int leaver, const char* how, const char* what) {
  char name[32];
  ncclComm_t comm;
  ncclResult_t rc = ncclSuccess;
  double began;
  int i;
  alarm(100);
  if (rank == 0) {
    OK(ncclGetUniqueId(&shared->id));
    __atomic_store_n(&shared->have_id, 1, __ATOMIC_RELEASE);
  }
  wait_for(&shared->have_id, 1);
  OK(ncclCommInitRank(&comm, RANKS, shared->id, rank));
  for (i = 0; i < COMMON; i++) OK(call(what, rank, comm));
  __atomic_add_fetch(&shared->common, 1, __ATOMIC_RELEASE);
  if (rank == leaver) {
    /* Only a rank that destroys its communicator leaves the others time to complete the calls that it has made. */
    if (strcmp(how, "exit") == 0 || strcmp(how, "kill") == 0) wait_for(&shared->common, RANKS);
    if (strcmp(how, "kill") == 0) kill(getpid(), SIGKILL);
    if (strcmp(how, "exit") != 0) OK(ncclCommDestroy(comm));
    if (strcmp(how, "destroy") == 0) wait_for(&shared->over, RANKS - 1);
    exit(0);
  }
  began = seconds();
  for (i = 0; i < MORE && rc == ncclSuccess; i++) rc = call(what, rank, comm);
  fprintf(stderr, "rank %d: %.2f s: %d: %s\n", rank, seconds() - began, (int)rc, ncclGetLastError(comm));
  snprintf(name, sizeof name, "rank %d (", leaver);
  CHECK(rc == ncclRemoteError && strstr(ncclGetLastError(comm), name) != NULL);
  CHECK(seconds() - began < 5); /* LIGHTPATH_TIMEOUT is 600 */
  __atomic_add_fetch(&shared->over, 1, __ATOMIC_RELEASE);
  wait_for(&shared->over, RANKS - 1); /* the error is the leaver's, not that of the first to notice */
  OK(ncclCommAbort(comm));
  exit(0);
}

int main(int argc, char** argv) {
  pid_t pids[RANKS];
  int r, status, leaver = argc > 3 ? atoi(argv[3]) : RANKS - 1;
  CHECK(argc >= 3);
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(shared != MAP_FAILED);
  for (r = 0; r < RANKS; r++) {
    pids[r] = fork();
    CHECK(pids[r] >= 0);
    if (pids[r] == 0) rank_process(r, leaver, argv[1], argv[2]);
  }
  for (r = 0; r < RANKS; r++) {
    CHECK(waitpid(pids[r], &status, 0) == pids[r]);
    if (r == leaver && strcmp(argv[1], "kill") == 0) {
      CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    } else {
      CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
  }
  return 0;
}
