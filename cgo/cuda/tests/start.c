/* The time until a program's first communicator is there, and its second: start threads|processes RANKS [LIMIT_MS].
 * Ranks share a device. It prints a line of JSON for each number. Over the stub with its virtual clock, the times are
 * sums over the driver's calls in a rank's process, and LIMIT_MS bounds the first communicator's. On a device they are
 * real times. */
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "gpu.h"

enum { MOST = 8, INITS = 2 };

/* Shared by all processes. */
static struct {
  pthread_barrier_t barrier;
  ncclUniqueId id[INITS];
  double context[MOST], init[INITS][MOST]; /* us */
} *shared;

static int world;
static bool together; /* ranks are threads */
static uint64_t (*modelled)(void);

static double now(void) {
  struct timespec t;
  if (modelled != NULL) return (double)modelled() / 1e3;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void wait_for_all(void) { pthread_barrier_wait(&shared->barrier); }

static void *run_rank(void *arg) {
  int rank = (int)(intptr_t)arg, k;
  ncclComm_t comm[INITS];
  CUcontext ctx;
  double began = now();
  IS(gpu.DevicePrimaryCtxRetain(&ctx, 0), CUDA_SUCCESS);
  IS(gpu.CtxSetCurrent(ctx), CUDA_SUCCESS);
  shared->context[rank] = now() - began;
  for (k = 0; k < INITS; k++) {
    if (rank == 0) OK(ncclGetUniqueId(&shared->id[k]));
    wait_for_all();
    began = now();
    wait_for_all();
    OK(ncclCommInitRank(&comm[k], world, shared->id[k], rank));
    wait_for_all();
    shared->init[k][rank] = now() - began;
  }
  for (k = 0; k < INITS; k++) OK(ncclCommDestroy(comm[k]));
  return NULL;
}

static void start_driver(void) {
  gpu_open();
  *(void **)&modelled = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "stubCpuTime"); /* NULL: a device */
}

static void run_threads(void) {
  pthread_t threads[MOST];
  int r;
  start_driver();
  for (r = 0; r < world; r++) CHECK(pthread_create(&threads[r], NULL, run_rank, (void *)(intptr_t)r) == 0);
  for (r = 0; r < world; r++) pthread_join(threads[r], NULL);
}

/* The processes are made before any has a driver or a thread. */
static void run_processes(void) {
  pid_t pids[MOST];
  int r, status;
  for (r = 0; r < world; r++) {
    pids[r] = fork();
    CHECK(pids[r] >= 0);
    if (pids[r] > 0) continue;
    start_driver();
    run_rank((void *)(intptr_t)r);
    exit(0);
  }
  for (r = 0; r < world; r++)
    CHECK(waitpid(pids[r], &status, 0) == pids[r] && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static double most(const double *values) {
  double m = 0;
  int r;
  for (r = 0; r < world; r++)
    if (values[r] > m) m = values[r];
  return m;
}

static void show(const char *what, double us) {
  printf("{\"name\": \"start\", \"what\": \"%s, %d %s\", \"unit\": \"ms\", \"measured\": %.3f}\n", what, world,
         together ? "threads" : "processes", us / 1e3);
}

int main(int argc, char **argv) {
  pthread_barrierattr_t across;
  CHECK(argc >= 3);
  together = strcmp(argv[1], "threads") == 0;
  world = atoi(argv[2]);
  CHECK(world >= 1 && world <= MOST);
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(shared != MAP_FAILED);
  pthread_barrierattr_init(&across);
  pthread_barrierattr_setpshared(&across, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&shared->barrier, &across, (unsigned)world);
  if (together) run_threads();
  else run_processes();
  show("context", most(shared->context));
  show("first communicator", most(shared->init[0]));
  show("second communicator", most(shared->init[1]));
  CHECK(argc < 4 || most(shared->init[0]) <= atof(argv[3]) * 1e3);
  return 0;
}
