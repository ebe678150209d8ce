/* Failures of other ranks: an abort from another thread, calls that do not match, a rank that never joins, and one
 * that dies. In each case every waiting call returns an error that names the rank at fault. */
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void sleep_ms(long ms) {
  struct timespec t = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&t, NULL);
}

struct call {
  ncclComm_t comm;
  size_t count;
  ncclResult_t result;
};

static void* all_reduce(void* arg) {
  struct call* c = arg;
  static float in[8], out[2][8];
  c->result = ncclAllReduce(in, out[c->count % 2], c->count, ncclFloat, ncclSum, c->comm, NULL);
  return NULL;
}

/* An abort of its communicator ends the wait of a thread for a rank that makes no call; the other rank's next call
 * fails too. */
static void aborted(void) {
  ncclComm_t comms[2];
  struct call waiting = {.count = 4, .result = ncclSuccess};
  pthread_t t;
  float x = 0;
  OK(ncclCommInitAll(comms, 2, NULL));
  waiting.comm = comms[0];
  CHECK(pthread_create(&t, NULL, all_reduce, &waiting) == 0);
  sleep_ms(200);
  OK(ncclCommAbort(comms[0]));
  CHECK(pthread_join(t, NULL) == 0);
  CHECK(waiting.result != ncclSuccess && waiting.result != ncclInProgress);
  CHECK(ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, comms[1], NULL) != ncclSuccess);
  OK(ncclCommAbort(comms[1]));
}

static void mismatched(void) {
  ncclComm_t comms[2];
  struct call calls[2] = {{.count = 4}, {.count = 5}};
  pthread_t t[2];
  ncclResult_t state = ncclSuccess;
  int r;
  OK(ncclCommInitAll(comms, 2, NULL));
  for (r = 0; r < 2; r++) {
    calls[r].comm = comms[r];
    CHECK(pthread_create(&t[r], NULL, all_reduce, &calls[r]) == 0);
  }
  for (r = 0; r < 2; r++) {
    CHECK(pthread_join(t[r], NULL) == 0);
    CHECK(calls[r].result == ncclInvalidUsage);
    OK(ncclCommGetAsyncError(comms[r], &state));
    CHECK(state == ncclInvalidUsage);
    CHECK(strstr(ncclGetLastError(comms[r]), "rank") != NULL);
    OK(ncclCommAbort(comms[r]));
  }
}

static void never_comes(void) {
  ncclUniqueId id;
  ncclComm_t comm;
  CHECK(setenv("LIGHTPATH_TIMEOUT", "1s", 1) == 0);
  OK(ncclGetUniqueId(&id));
  FAILS(ncclCommInitRank(&comm, 2, id, 0), ncclTimeout, "1");
  CHECK(comm == NULL);
}

/* Rank 1, in a process of its own that was forked before NCCL was used: joins, and dies after rank 0 has joined. */
static pid_t doomed_rank(int pipe_in) {
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    ncclUniqueId id;
    ncclComm_t comm;
    char joined;
    CHECK(read(pipe_in, &id, sizeof id) == sizeof id);
    OK(ncclCommInitRank(&comm, 2, id, 1));
    CHECK(read(pipe_in, &joined, 1) == 1);
    sleep_ms(100); /* so that rank 0 is most likely waiting by then */
    raise(SIGKILL);
  }
  return pid;
}

static void dies(pid_t pid, int pipe_out) {
  ncclUniqueId id;
  ncclComm_t comm;
  ncclResult_t state;
  float x = 0;
  int status;
  OK(ncclGetUniqueId(&id));
  CHECK(write(pipe_out, &id, sizeof id) == sizeof id);
  OK(ncclCommInitRank(&comm, 2, id, 0));
  CHECK(write(pipe_out, "", 1) == 1);
  FAILS(ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, comm, NULL), ncclRemoteError, "rank 1");
  OK(ncclCommGetAsyncError(comm, &state));
  CHECK(state == ncclRemoteError);
  OK(ncclCommDestroy(comm));
  CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
}

int main(void) {
  int fds[2];
  pid_t pid;
  CHECK(pipe(fds) == 0);
  pid = doomed_rank(fds[0]);
  dies(pid, fds[1]);
  aborted();
  mismatched();
  never_comes();
  return 0;
}
