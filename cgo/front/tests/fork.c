/* Fork: a child forked before the core is loaded can use NCCL. In a child forked later, every call that needs the
 * core fails at once; its parent is not affected. */
#include "check.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static void use(void) {
  ncclUniqueId id;
  ncclComm_t comm;
  float in = 3, out = 0;
  OK(ncclGetUniqueId(&id));
  OK(ncclCommInitRank(&comm, 1, id, 0));
  OK(ncclAllReduce(&in, &out, 1, ncclFloat, ncclSum, comm, NULL));
  CHECK(out == 3);
  OK(ncclCommDestroy(comm));
}

/* The handle is the parent's. No call that takes it may use the core, whose threads do not exist here. */
static void refused(ncclComm_t comm) {
  ncclUniqueId id;
  ncclComm_t other;
  float x = 0;
  int n;
  memset(&id, 0, sizeof id);
  FAILS(ncclGetUniqueId(&id), ncclInvalidUsage, "forked");
  FAILS(ncclCommInitRank(&other, 1, id, 0), ncclInvalidUsage, "forked");
  FAILS(ncclCommInitAll(&other, 1, NULL), ncclInvalidUsage, "forked");
  FAILS(ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, comm, NULL), ncclInvalidUsage, "forked");
  FAILS(ncclSend(&x, 1, ncclFloat, 0, comm, NULL), ncclInvalidUsage, "forked");
  FAILS(ncclCommCount(comm, &n), ncclInvalidUsage, "forked");
  FAILS(ncclCommFinalize(comm), ncclInvalidUsage, "forked");
  FAILS(ncclCommDestroy(comm), ncclInvalidUsage, "forked");
  FAILS(ncclCommAbort(comm), ncclInvalidUsage, "forked");
  FAILS(ncclGroupStart(), ncclInvalidUsage, "forked");
  OK(ncclGetVersion(&n));
}

static void child(void (*body)(ncclComm_t), ncclComm_t comm) {
  int status = 0;
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    alarm(100); /* a hang ends the test */
    body(comm);
    _exit(0);
  }
  CHECK(waitpid(pid, &status, 0) == pid);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void uses(ncclComm_t comm) {
  (void)comm;
  use();
}

static volatile int stop;
static void* spoil(void* arg) {
  while (!stop) ncclGetVersion(NULL); /* holds the lock of the last error most of the time */
  return arg;
}

/* Two ranks run collectives while their process forks. Calls in the children fail, those in the parent do not. */
struct rank {
  ncclComm_t comm;
  int rank, calls;
};

static volatile int enough;
static void* reduce_on(void* arg) {
  struct rank* r = arg;
  static float bufs[2][50000];
  float* buf = bufs[r->rank];
  int i;
  do { /* rank 0 ends the loop of both ranks by the value that it sends */
    buf[0] = (float)(r->rank == 0 && enough);
    buf[1] = (float)r->rank;
    for (i = 2; i < 50000; i++) buf[i] = 1;
    OK(ncclAllReduce(buf, buf, 50000, ncclFloat, ncclSum, r->comm, NULL));
    CHECK(buf[1] == 1 && buf[49999] == 2);
    r->calls++;
  } while (buf[0] == 0);
  return NULL;
}

static void during(void) {
  ncclComm_t comms[2];
  struct rank ranks[2];
  pthread_t t[2];
  int i;
  OK(ncclCommInitAll(comms, 2, NULL));
  for (i = 0; i < 2; i++) {
    ranks[i] = (struct rank){comms[i], i, 0};
    CHECK(pthread_create(&t[i], NULL, reduce_on, &ranks[i]) == 0);
  }
  for (i = 0; i < 50; i++) child(refused, comms[i % 2]);
  enough = 1;
  for (i = 0; i < 2; i++) CHECK(pthread_join(t[i], NULL) == 0);
  CHECK(ranks[0].calls > 0 && ranks[0].calls == ranks[1].calls);
  for (i = 0; i < 2; i++) OK(ncclCommDestroy(comms[i]));
}

int main(void) {
  ncclUniqueId id;
  ncclComm_t comm;
  pthread_t t;
  int i;
  float in = 2, out = 0;
  child(uses, NULL);
  OK(ncclGetUniqueId(&id));
  OK(ncclCommInitRank(&comm, 1, id, 0));
  child(refused, comm);
  CHECK(pthread_create(&t, NULL, spoil, NULL) == 0);
  for (i = 0; i < 20; i++) child(refused, comm);
  stop = 1;
  CHECK(pthread_join(t, NULL) == 0);
  OK(ncclAllReduce(&in, &out, 1, ncclFloat, ncclSum, comm, NULL));
  CHECK(out == 2);
  OK(ncclCommDestroy(comm));
  during();
  use();
  return 0;
}
