/* A job whose ranks are processes, for tests of the recorder: job MODE RANKS. */
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../front/tests/check.h"

#define FLOATS 1000

static struct shared {
  pthread_barrier_t barrier;
  ncclUniqueId ids[2];
}* shared;
static int rank, ranks;
static float in[8 * FLOATS], out[8 * FLOATS];

static void compute(int us) {
  struct timespec t = {0, us * 1000L};
  nanosleep(&t, NULL);
}

static void meet(void) { pthread_barrier_wait(&shared->barrier); }

static ncclComm_t make(int id) {
  ncclComm_t comm;
  if (rank == 0) OK(ncclGetUniqueId(&shared->ids[id]));
  meet();
  OK(ncclCommInitRank(&comm, ranks, shared->ids[id], rank));
  return comm;
}

static void all_reduce(ncclComm_t comm, size_t n) { OK(ncclAllReduce(in, out, n, ncclFloat, ncclSum, comm, NULL)); }

/* Sends n floats to the next rank. */
static void shift(ncclComm_t comm, size_t n) {
  OK(ncclGroupStart());
  OK(ncclSend(in, n, ncclFloat, (rank + 1) % ranks, comm, NULL));
  OK(ncclRecv(out, n, ncclFloat, (rank + ranks - 1) % ranks, comm, NULL));
  OK(ncclGroupEnd());
}

/* An iteration: all, halves, a shift; between them computation. Other calls come before and after. */
static void train(void) {
  ncclComm_t all = make(0), half;
  OK(ncclGroupStart());
  OK(ncclCommSplit(all, rank % 2, rank, &half, NULL));
  OK(ncclGroupEnd());
  all_reduce(all, 7);
  for (int i = 0; i < 8; i++) {
    meet();
    compute(20000);
    all_reduce(all, FLOATS);
    meet();
    compute(4000);
    OK(ncclAllGather(in, out, FLOATS, ncclFloat, half, NULL));
    meet();
    compute(8000);
    shift(all, getenv("JOB_VARIES") != NULL ? 100 + i : 100);
  }
  all_reduce(all, 1);
  OK(ncclCommDestroy(half));
  OK(ncclCommDestroy(all));
}

/* Every form of call, with arguments that mean nothing: for the library that writes them. */
static void forms(void) {
  ncclComm_t all = make(0), two[2];
  cudaStream_t stream = (cudaStream_t)0x77;
  char* at = (char*)0x1000;
  ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
  int n;
  config.userProfilerTag = 8;
  OK(ncclGetVersion(&n));
  CHECK(n == 22703 && strcmp(ncclGetErrorString(ncclInternalError), "an error") == 0);
  OK(ncclCommCount(all, &n));
  CHECK(n == ranks);
  OK(ncclAllReduce(at, at + 1, 2, ncclFloat64, ncclMax, all, stream));
  OK(pncclAllReduce(at, at + 1, 3, ncclFloat64, ncclMax, all, stream));
  OK(ncclAllReduceConfig(at, at + 1, 4, ncclInt8, ncclMin, all, stream, &config));
  OK(ncclReduce(at, at + 1, 5, ncclBfloat16, ncclProd, 1, all, stream));
  OK(ncclSend(at, 6, ncclInt32, 1, all, stream));
  OK(ncclPutSignal(at, 1, ncclInt8, 2, (ncclWindow_t)0x33, 4, 5, 6, 7, all, stream));
  OK(ncclPutSignal(at, 1, ncclInt8, 2, (ncclWindow_t)0x33, 4, 5, 6, 7, all, stream));
  IS(ncclAllReduce(at, at, 13, ncclFloat, ncclSum, all, stream), ncclInternalError);
  if (getenv("LIGHTPATH_ITERATION_LIBRARY") != NULL) /* the library has none */
    IS(ncclScatter(at, at, 1, ncclFloat, 0, all, stream), ncclInvalidUsage);
  OK(ncclCommInitAll(two, 2, NULL));
  OK(ncclGroupStart());
  OK(ncclGroupStart());
  for (n = 0; n < 2; n++) OK(ncclAllGather(at, at + 1, 2, ncclFloat, two[n], NULL));
  OK(ncclGroupEnd());
  OK(ncclGroupEnd());
  OK(ncclCommDestroy(all));
}

static void* calls_of_thread(void* comm) {
  for (int i = 0; i < 5000; i++) all_reduce(comm, i % 2 + 1);
  return NULL;
}

/* Two threads, each with its communicator. */
static void threads(void) {
  ncclComm_t comms[2] = {make(0), make(1)};
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, calls_of_thread, comms[1]) == 0);
  calls_of_thread(comms[0]);
  CHECK(pthread_join(thread, NULL) == 0);
}

/* A child uses NCCL after its parent has. */
static void forks(void) {
  ncclComm_t comm = make(0);
  int status;
  pid_t child;
  calls_of_thread(comm);
  child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    OK(ncclCommInitAll(&comm, 1, NULL));
    for (int i = 0; i < 3; i++) all_reduce(comm, 5);
    _exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  all_reduce(comm, 9);
}

static void killed(void) {
  train();
  if (rank == 1) raise(SIGKILL);
}

static void full(void) {
  ncclComm_t comm = make(0);
  for (int i = 0; i < 50000; i++) all_reduce(comm, (size_t)i % 5 + 1);
}

/* More communicators than there is room for. A library may give a new one the handle of one that has ended. */
static void many(void) {
  for (int i = 0; i < 1024 + 100; i++) {
    ncclComm_t comm = make(0);
    all_reduce(comm, 1);
    OK(ncclCommDestroy(comm));
    meet();
  }
}

/* The time of a call, the least of 20 loops. */
static void cost(void) {
  ncclComm_t comm = make(0);
  double least = 1e9, group = 1e9;
  for (int loop = 0; loop < 20; loop++) {
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    for (int i = 0; i < 100000; i++) (void)ncclAllReduce(in, out, 1, ncclFloat, ncclSum, comm, NULL);
    clock_gettime(CLOCK_MONOTONIC, &b);
    double ns = ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) / 100000;
    if (ns < least) least = ns;
    clock_gettime(CLOCK_MONOTONIC, &a);
    for (int i = 0; i < 10000; i++) {
      ncclGroupStart();
      for (int k = 0; k < 8; k++) (void)ncclSend(in, 1, ncclFloat, 0, comm, NULL);
      ncclGroupEnd();
    }
    clock_gettime(CLOCK_MONOTONIC, &b);
    ns = ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) / 80000;
    if (ns < group) group = ns;
  }
  printf("%.1f ns a call, %.1f ns a call in groups of 8\n", least, group);
}

static const struct {
  const char* name;
  void (*run)(void);
} modes[] = {{"train", train}, {"forms", forms},   {"threads", threads}, {"forks", forks},
             {"killed", killed}, {"full", full}, {"many", many}, {"cost", cost}};

int main(int argc, char** argv) {
  pthread_barrierattr_t attributes;
  void (*run)(void) = NULL;
  int bad = 0, status;
  CHECK(argc == 3);
  ranks = atoi(argv[2]);
  for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
    if (strcmp(argv[1], modes[i].name) == 0) run = modes[i].run;
  CHECK(run != NULL && ranks > 0);
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(shared != MAP_FAILED);
  pthread_barrierattr_init(&attributes);
  pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&shared->barrier, &attributes, (unsigned)ranks);
  for (rank = 0; rank < ranks; rank++) {
    char text[16];
    snprintf(text, sizeof text, "%d", rank);
    setenv("RANK", text, 1);
    if (fork() == 0) {
      run();
      exit(0);
    }
  }
  while (wait(&status) > 0) bad |= WIFEXITED(status) ? WEXITSTATUS(status) : 0; /* one that is killed is no failure */
  return bad;
}
