/* Ranks as processes that share one device, or have one each: processes RANKS. In a second set of ranks one is
 * killed while the others wait for it. They still receive everything that it has sent. */
#include <signal.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests.h"

#define N 140001
#define BLOCK 40000
#define MOST 8

static int world, me;
static int through[2]; /* a pipe, with a byte of each rank that has received its data */
static int launched[2]; /* the same for each rank that has a launch */
static ncclComm_t comm;
static float host[N];
static float *all; /* a block for each rank */

static float value(int rank, int round, int i) { return (float)(rank * 3 + round + i % 5); }

/* A sum, an AllGather, and a message from the previous rank. */
static void exchange(CUstream s, float *a, float *b, float *c, int round) {
  int i, r, before = (me + world - 1) % world;
  for (i = 0; i < N; i++) host[i] = value(me, round, i);
  gpu_copy(a, host, sizeof host);
  OK(ncclAllReduce(a, b, N, ncclFloat, ncclSum, comm, (cudaStream_t)s));
  OK(ncclAllGather(a, all, BLOCK, ncclFloat, comm, (cudaStream_t)s));
  OK(ncclGroupStart());
  OK(ncclSend(a, N, ncclFloat, (me + 1) % world, comm, (cudaStream_t)s));
  OK(ncclRecv(c, N, ncclFloat, before, comm, (cudaStream_t)s));
  OK(ncclGroupEnd());
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
  gpu_copy(host, b, sizeof host);
  for (i = 0; i < N; i++) {
    float want = 0;
    for (r = 0; r < world; r++) want += value(r, round, i);
    CHECK(host[i] == want);
  }
  gpu_copy(host, c, sizeof host);
  for (i = 0; i < N; i++) CHECK(host[i] == value(before, round, i));
  for (r = 0; r < world; r++) {
    gpu_copy(host, all + (size_t)r * BLOCK, BLOCK * sizeof *host);
    for (i = 0; i < BLOCK; i++) CHECK(host[i] == value(r, round, i));
  }
}

/* Ranks register in several ways, or not at all, and open each other's memory. */
static void enroll(float *at, size_t size, int turn) {
  void *handle;
  ncclWindow_t window;
  if (turn % 3 == 0) OK(ncclCommRegister(comm, at + turn % 2 * 4, size - 16, &handle)); /* not all of it */
  if (turn % 3 == 1) OK(ncclCommWindowRegister(comm, at, size, &window, NCCL_WIN_COLL_SYMMETRIC));
}

/* Rank 0 registers memory while the launches of all ranks wait for their callers. */
static void behind_gate(CUstream s, const float *a, float *b) {
  uint32_t *gate = new_gate();
  void *handle;
  float *c = gpu_alloc(sizeof host);
  char byte;
  int i;
  wait_for_gate(s, gate);
  OK(ncclAllReduce(a, b, N, ncclFloat, ncclSum, comm, (cudaStream_t)s));
  if (me > 0) CHECK(write(launched[1], "", 1) == 1);
  for (i = 1; me == 0 && i < world; i++) CHECK(read(launched[0], &byte, 1) == 1);
  if (me == 0) OK(ncclCommRegister(comm, c, sizeof host, &handle));
  usleep(50000); /* in which the others may open it */
  IS(gpu.StreamQuery(s), CUDA_ERROR_NOT_READY);
  open_gate(gate);
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
}

static int child(char **argv) {
  ncclUniqueId id;
  CUstream s;
  float *a, *b, *c;
  ncclResult_t state;
  int devices, round;
  size_t i;
  world = atoi(argv[2]);
  me = atoi(argv[3]);
  for (i = 0; i < sizeof id; i++) sscanf(argv[5] + 2 * i, "%2hhx", (unsigned char *)&id + i);
  CHECK(sscanf(argv[6], "%d,%d,%d,%d", &through[0], &through[1], &launched[0], &launched[1]) == 4);
  gpu_open();
  IS(gpu.DeviceGetCount(&devices), CUDA_SUCCESS);
  gpu_use(me % devices);
  OK(ncclCommInitRank(&comm, world, id, me));
  s = gpu_stream(CU_STREAM_NON_BLOCKING);
  a = gpu_alloc(sizeof host);
  b = gpu_alloc(sizeof host);
  c = gpu_alloc(sizeof host);
  all = gpu_alloc((size_t)world * BLOCK * sizeof *all);
  behind_gate(s, a, b);
  for (round = 0; round < 2; round++) exchange(s, a, b, c, round);
  enroll(a, sizeof host, me);
  enroll(b, sizeof host, me + world / 2);
  enroll(all, (size_t)world * BLOCK * sizeof *all, 1);
  for (; round < 6; round++) exchange(s, a, b, c, round);
  if (strcmp(argv[4], "all") == 0) {
    OK(ncclCommDestroy(comm));
    return 0;
  }
  if (me == world - 1) {
    char byte;
    for (i = 1; i < (size_t)world; i++) CHECK(read(through[0], &byte, 1) == 1);
    raise(SIGKILL);
  }
  CHECK(write(through[1], "", 1) == 1);
  state = ncclAllReduce(a, b, N, ncclFloat, ncclSum, comm, (cudaStream_t)s);
  CHECK(state == ncclSuccess || state == ncclRemoteError); /* the failure may be known already */
  state = await_failure(comm);
  IS(state, ncclRemoteError);
  CHECK(strstr(ncclGetLastError(NULL), "lost rank") != NULL);
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS); /* it does not hang */
  OK(ncclCommAbort(comm));
  return 0;
}

static void run(const char *self, const char *what, const char *ranks) {
  ncclUniqueId id;
  char hex[2 * sizeof id + 1], rank[8], ends[48];
  pid_t pids[MOST];
  size_t i;
  int k, status;
  OK(ncclGetUniqueId(&id));
  for (i = 0; i < sizeof id; i++) sprintf(hex + 2 * i, "%02x", ((unsigned char *)&id)[i]);
  CHECK(pipe(through) == 0 && pipe(launched) == 0);
  sprintf(ends, "%d,%d,%d,%d", through[0], through[1], launched[0], launched[1]);
  for (k = 0; k < world; k++) {
    sprintf(rank, "%d", k);
    pids[k] = fork();
    CHECK(pids[k] >= 0);
    if (pids[k] == 0) {
      execl(self, self, "child", ranks, rank, what, hex, ends, (char *)NULL);
      _exit(127);
    }
  }
  for (k = 0; k < world; k++) {
    CHECK(waitpid(pids[k], &status, 0) == pids[k]);
    if (strcmp(what, "killed") == 0 && k == world - 1)
      CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    else
      CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  close(through[0]);
  close(through[1]);
  close(launched[0]);
  close(launched[1]);
}

int main(int argc, char **argv) {
  if (argc == 7 && strcmp(argv[1], "child") == 0) return child(argv);
  world = argc > 1 ? atoi(argv[1]) : 3;
  CHECK(world >= 2 && world <= MOST);
  run("/proc/self/exe", "all", argv[1]);
  run("/proc/self/exe", "killed", argv[1]);
  return 0;
}
