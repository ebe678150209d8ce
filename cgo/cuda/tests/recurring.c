/* Memory that calls use again and again is used in place, until the program frees it: recurring threads|processes
 * [NAME...]. Ranks are threads or processes, each with its device if there are enough. The stub refuses kernels that
 * use memory which its process has freed. */
#define _GNU_SOURCE
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sums.h"

#define MOST 8

/* State that the ranks share. */
static struct shared {
  pthread_barrier_t barrier;
  ncclUniqueId id;
  bool done[MOST];
} *shared;
static bool processes;
static bool blind; /* nothing tells which rank uses memory: a driver, or threads with one context */

static void together(void) { pthread_barrier_wait(&shared->barrier); }

/* Whether all ranks say so. */
static bool all_agree(struct rank *r, bool mine) {
  bool all = true;
  int i;
  shared->done[r->rank] = mine;
  together();
  for (i = 0; i < r->world; i++) all &= shared->done[i];
  together();
  return all;
}

/* How many kernels of other ranks have used a buffer's allocations. Each of them uses its part of the buffer. If
 * nothing tells, the results of the calls are all that is checked. */
static unsigned uses(const float *a) {
  static unsigned asked;
  CUdeviceptr at = (uintptr_t)a, end = at + sizeof host[0], base;
  unsigned n = 0;
  size_t size;
  if (blind) return __atomic_add_fetch(&asked, 1, __ATOMIC_RELAXED) / 16;
  for (; at < end; at = base + size) {
    n += gpu.Uses(at);
    IS(gpu.MemGetAddressRange(&base, &size, at), CUDA_SUCCESS);
  }
  return n;
}

/* How many allocations of other processes are open. */
static int imports(void) { return gpu.Imports != NULL ? gpu.Imports() : 0; }

/* A sum, checked. */
static void add(struct rank *r, float *a, float *b, CUstream s, int v) {
  put(a, r->rank, v);
  OK(sum(r, a, b, s));
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
  expect_sum(b, r->rank, r->world, v);
}

/* Makes sums until the buffers of all ranks that want it are used in place. */
static void until_used(struct rank *r, float *a, float *b, CUstream s, bool want) {
  unsigned before = uses(a);
  int i;
  for (i = 0; !all_agree(r, !want || uses(a) > before); i++) {
    CHECK(i < 8000);
    add(r, a, b, s, i);
    usleep(500);
  }
}

/* Not in the first two calls, but soon. */
static void second(struct rank *r) {
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  float *a = buffer(), *b = buffer();
  add(r, a, b, s, 0);
  usleep(200000); /* nothing is published meanwhile */
  add(r, a, b, s, 1);
  together();
  CHECK(blind || (uses(a) == 0 && uses(b) == 0));
  until_used(r, a, b, s, true);
}

/* Other memory at the same address is not taken for the earlier one. */
static void replaced(struct rank *r) {
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  float *a = buffer(), *b = buffer(), *again;
  int i, k;
  for (k = 0; k < 4; k++) {
    until_used(r, a, b, s, true);
    for (i = 0; i < r->world; i++, together()) { /* one at a time, so that threads do not take each other's addresses */
      if (i != r->rank || k == i) continue;
      gpu_free(a);
      again = buffer();
      CHECK(blind || again == a);
      a = again;
    }
    for (i = 0; i < 5; i++) add(r, a, b, s, 100 * k + i);
  }
}

/* Another communicator has the earlier memory open, and does not notice until it looks. */
static void twice(struct rank *r) {
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  float *a = buffer(), *b = buffer();
  ncclComm_t first = r->comm, other;
  OK(ncclCommSplit(r->comm, 0, r->rank, &other, NULL));
  until_used(r, a, b, s, true);
  r->comm = other;
  until_used(r, a, b, s, true);
  r->comm = first;
  gpu_free(a);
  a = buffer();
  until_used(r, a, b, s, true);
  OK(ncclCommDestroy(other));
}

/* Peers close memory that a rank has freed, also if no call comes any more. */
static void freed(struct rank *r) {
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  float *a = buffer(), *b = buffer();
  int i, before = imports();
  until_used(r, a, b, s, true);
  CHECK(!processes || gpu.Imports == NULL || imports() > before);
  together();
  gpu_free(a);
  gpu_free(b);
  for (i = 0; imports() > before; i++) {
    CHECK(i < 30000);
    usleep(1000);
  }
  together(); /* a rank that has left withdraws nothing */
}

/* ---- Memory that the program maps ---- */

static size_t granularity(int types) {
  const CUmemAllocationProp prop = {CU_MEM_ALLOCATION_TYPE_PINNED, types, {CU_MEM_LOCATION_TYPE_DEVICE, 0}, NULL, {0}};
  size_t g;
  IS(gpu.MemGetAllocationGranularity(&g, &prop, 0), CUDA_SUCCESS);
  return g;
}

static void map(char *at, size_t size, CUdevice device, int types) {
  CUmemLocation home = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  const CUmemAllocationProp prop = {CU_MEM_ALLOCATION_TYPE_PINNED, types, home, NULL, {0}};
  CUmemGenericAllocationHandle piece;
  CUmemAccessDesc access[MOST];
  int i, n = 1;
  if (!processes) IS(gpu.DeviceGetCount(&n), CUDA_SUCCESS); /* threads use each other's addresses */
  n = n < MOST ? n : MOST;
  for (i = 0; i < n; i++) {
    home.id = processes ? device : i;
    access[i] = (CUmemAccessDesc){home, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  }
  IS(gpu.MemCreate(&piece, size, &prop, 0), CUDA_SUCCESS);
  IS(gpu.MemMap((uintptr_t)at, size, 0, piece, 0), CUDA_SUCCESS);
  IS(gpu.MemRelease(piece), CUDA_SUCCESS);
  IS(gpu.MemSetAccess((uintptr_t)at, size, access, (size_t)n), CUDA_SUCCESS);
}

static char *reserve(size_t size) {
  CUdeviceptr at;
  IS(gpu.MemAddressReserve(&at, size, 0, 0, 0), CUDA_SUCCESS);
  return (char *)(uintptr_t)at;
}

/* A buffer that lies on both sides of an address. */
static float *across(char *at) { return (float *)(at - sizeof host[0] / 2 / 256 * 256); }

/* A segment of pieces that grows, and whose pieces the program replaces. */
static void expandable(struct rank *r) {
  enum { PIECES = 24, FIRST = 8 };
  size_t g = granularity(1);
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  char *segment = reserve(PIECES * g);
  float *a = across(segment + 4 * g), *c = across(segment + 16 * g), *b = buffer();
  int i, k, before = imports();
  for (i = 0; i < FIRST; i++) map(segment + i * g, g, r->device, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  until_used(r, a, b, s, true);
  for (; i < PIECES; i++) map(segment + i * g, g, r->device, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  until_used(r, c, b, s, true); /* a buffer in what was added */
  add(r, a, b, s, 1);
  for (k = 0; k < 3; k++) {
    if (r->rank % 2 == k % 2) { /* other memory at the place of one piece */
      IS(gpu.MemUnmap((uintptr_t)segment + 3 * g, g), CUDA_SUCCESS);
      map(segment + 3 * g, g, r->device, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    }
    for (i = 0; i < 4; i++) add(r, a, b, s, 10 * k + i);
    until_used(r, a, b, s, true);
  }
  together();
  IS(gpu.MemUnmap((uintptr_t)segment, PIECES * g), CUDA_SUCCESS);
  for (i = 0; imports() > before + r->world; i++) { /* b may be open */
    CHECK(i < 30000);
    usleep(1000);
  }
  together();
  IS(gpu.MemAddressFree((uintptr_t)segment, PIECES * g), CUDA_SUCCESS);
}

/* Memory that cannot be exported, or that is not this process's own. */
static void kept(struct rank *r) {
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  size_t g = granularity(0);
  float *mapped = (float *)reserve(8 * g), *b = buffer();
  CUdeviceptr pool, other;
  int i;
  for (i = 0; i < 8; i++) map((char *)mapped + i * g, g, r->device, CU_MEM_HANDLE_TYPE_NONE);
  IS(gpu.MemAllocAsync(&pool, sizeof host[0], s), CUDA_SUCCESS);
  for (i = 0; i < 20; i++) add(r, (float *)(uintptr_t)pool, b, s, i);
  for (i = 0; i < 20; i++) add(r, mapped, b, s, i);
  CHECK(blind || (uses((float *)(uintptr_t)pool) == 0 && uses(mapped) == 0));
  IS(gpu.MemFreeAsync(pool, s), CUDA_SUCCESS);
  if (processes) {
    CUipcMemHandle *handles = (CUipcMemHandle *)(shared + 1);
    IS(gpu.IpcGetMemHandle(&handles[r->rank], (uintptr_t)b), CUDA_SUCCESS);
    together();
    IS(gpu.IpcOpenMemHandle(&other, handles[(r->rank + 1) % r->world], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
       CUDA_SUCCESS);
    b = buffer();
    for (i = 0; i < 20; i++) { /* only its device may refuse it */
      OK(sum(r, (float *)(uintptr_t)other, b, s));
      IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
    }
    together();
    IS(gpu.IpcCloseMemHandle(other), CUDA_SUCCESS);
  }
}

/* More allocations than a rank can publish, each used several times. */
static void many(struct rank *r) {
  enum { ALL = 90 };
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  static float *a[MOST][ALL];
  float *b = buffer();
  int i, k, used = 0, before = imports();
  for (i = 0; i < ALL; i++) a[r->rank][i] = buffer();
  for (k = 0; k < 3; k++) {
    for (i = 0; i < ALL; i++) add(r, a[r->rank][i], b, s, i);
    usleep(100000);
    together();
  }
  for (i = 0; i < ALL; i++) used += uses(a[r->rank][i]) > 0;
  CHECK(blind || (used > 10 && used <= 64));
  CHECK(imports() <= before + 64 * (r->world - 1));
}

/* A rank whose buffers live for two calls stops trying. The others go on. */
static void short_lived(struct rank *r) {
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  float *a = buffer(), *b = buffer(), *own;
  int i, k;
  for (i = 0; i < 200; i++) {
    own = r->rank == 0 ? buffer() : a;
    for (k = 0; k < 2; k++) add(r, own, b, s, i + k);
    if (i % 16 == 0) usleep(2000);
    if (r->rank == 0) gpu_free(own);
  }
  until_used(r, a, b, s, r->rank > 0);
  CHECK(r->rank > 0 || blind || uses(a) == 0);
}

/* A rank frees its memory after an abort, while a call used it in place. */
static void aborted(struct rank *r) {
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  float *a = buffer(), *b = buffer();
  int i;
  until_used(r, a, b, s, true);
  together();
  for (i = 0; i < 3 && r->rank < r->world - 1; i++) OK(sum(r, a, b, s));
  if (r->rank == r->world - 1) {
    usleep(20000);
    abort_comm(r);
  } else {
    (void)await_failure(r->comm);
  }
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
  gpu_free(a);
  gpu_free(b);
  if (r->comm != NULL) abort_comm(r);
  together();
}

/* ---- Graphs ---- */

static void replay(struct rank *r, CUgraphExec exec, float *a, float *b, CUstream s, int v) {
  put(a, r->rank, v);
  IS(gpu.GraphLaunch(exec, s), CUDA_SUCCESS);
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
  expect_sum(b, r->rank, r->world, v);
}

static CUgraphExec capture(struct rank *r, float *a, float *b, CUstream s) {
  CUgraphExec exec;
  together(); /* a capture forbids calls of other threads */
  IS(gpu.StreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  OK(sum(r, a, b, s));
  exec = end_capture(s);
  together();
  return exec;
}

/* A graph uses the memory in place. It is freed before the graph is destroyed, and after. */
static void captured(struct rank *r) {
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  float *a, *b = buffer();
  CUgraphExec exec;
  unsigned before;
  int i, k;
  for (k = 0; k < 2; k++) {
    a = buffer();
    until_used(r, a, b, s, true);
    exec = capture(r, a, b, s);
    before = uses(a);
    for (i = 0; i < 3; i++) replay(r, exec, a, b, s, i);
    CHECK(all_agree(r, blind || uses(a) > before));
    if (k == 0) gpu_free(a);
    together(); /* freeing waits for the device, which threads may share: no rank calls before */
    for (i = 0; k == 0 && i < 5; i++) {
      float *other = buffer(); /* perhaps at that address */
      add(r, other, b, s, i);
      add(r, other, b, s, i + 1);
    }
    IS(gpu.GraphExecDestroy(exec), CUDA_SUCCESS);
    if (k == 1) gpu_free(a);
    together();
    for (i = 0; i < 5; i++) {
      float *other = buffer();
      add(r, other, b, s, i);
    }
  }
}

/* A program may map other memory below a graph. */
static void remapped(struct rank *r) {
  size_t g = granularity(1), size = (sizeof host[0] + g - 1) / g * g;
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  char *at = reserve(size);
  float *a = (float *)at, *b = buffer();
  CUgraphExec exec;
  int i, k;
  map(at, size, r->device, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  until_used(r, a, b, s, true);
  exec = capture(r, a, b, s);
  for (k = 0; k < 3; k++) {
    for (i = 0; i < 3; i++) replay(r, exec, a, b, s, 10 * k + i);
    IS(gpu.MemUnmap((uintptr_t)at, size), CUDA_SUCCESS);
    map(at, size, r->device, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  }
  IS(gpu.GraphExecDestroy(exec), CUDA_SUCCESS);
  until_used(r, a, b, s, true);
}

/* Messages in a ring. */
static void messages(struct rank *r) {
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  float *a = buffer(), *b = buffer();
  int i, to = (r->rank + 1) % r->world, from = (r->rank + r->world - 1) % r->world;
  for (i = 0; !all_agree(r, uses(a) > 0); i++) {
    CHECK(i < 8000);
    put(a, r->rank, i);
    OK(ncclGroupStart());
    OK(ncclSend(a, N, ncclFloat, to, r->comm, (cudaStream_t)s));
    OK(ncclRecv(b, N, ncclFloat, from, r->comm, (cudaStream_t)s));
    OK(ncclGroupEnd());
    IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
    expect_of(b, r->rank, from, i);
    if (i == 0) CHECK(blind || uses(a) == 0);
    together();
    usleep(500);
  }
}

/* A rank has posted a receive on another communicator, for which nothing is sent before this rank has called more. If
 * opening memory waited for the device, and kept this rank from calling, all would hang. */
static void posted_early(struct rank *r) {
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING), early = gpu_stream(CU_STREAM_NON_BLOCKING);
  float *a = buffer(), *b = buffer(), *c = buffer();
  ncclComm_t other;
  int i, k;
  OK(ncclCommSplit(r->comm, 0, r->rank, &other, NULL));
  for (k = 0; k < 3; k++) {
    if (r->rank == 0) OK(ncclRecv(c, N, ncclFloat, 1, other, (cudaStream_t)early));
    for (i = 0; i < 8; i++) {
      add(r, a, b, s, i);
      usleep(2000); /* watchers have time to open a, and may not */
    }
    put(a, r->rank, 0);
    if (r->rank == 1) OK(ncclSend(a, N, ncclFloat, 0, other, (cudaStream_t)early));
    IS(gpu.StreamSynchronize(early), CUDA_SUCCESS);
  }
  until_used(r, a, b, s, true);
  OK(ncclCommDestroy(other));
}

static const struct named {
  const char *name;
  int ranks;
  void (*run)(struct rank *r);
} tests[] = {
    {"second", 3, second},   {"replaced", 3, replaced}, {"twice", 2, twice},       {"freed", 3, freed},
    {"kept", 2, kept},       {"many", 2, many},         {"aborted", 3, aborted},   {"captured", 2, captured},
    {"remapped", 2, remapped}, {"messages", 3, messages}, {"expandable", 2, expandable},
    {"short_lived", 2, short_lived}, {"posted_early", 2, posted_early},
};
enum { TESTS = sizeof tests / sizeof *tests };

static void be_rank(const struct named *t, int rank) {
  struct rank r = {.rank = rank, .world = t->ranks};
  int devices;
  IS(gpu.DeviceGetCount(&devices), CUDA_SUCCESS);
  r.device = rank % devices;
  blind = gpu.Uses == NULL || (!processes && devices < t->ranks);
  gpu_use(r.device);
  if (rank == 0) OK(ncclGetUniqueId(&shared->id));
  together();
  OK(ncclCommInitRank(&r.comm, r.world, shared->id, rank));
  t->run(&r);
  if (r.comm != NULL) OK(ncclCommDestroy(r.comm));
}

static const struct named *current;
static void *thread(void *rank) {
  be_rank(current, (int)(intptr_t)rank);
  return NULL;
}

static void in_threads(const struct named *t) {
  pthread_t all[MOST];
  int i;
  current = t;
  for (i = 0; i < t->ranks; i++) CHECK(pthread_create(&all[i], NULL, thread, (void *)(intptr_t)i) == 0);
  for (i = 0; i < t->ranks; i++) pthread_join(all[i], NULL);
}

static void in_processes(const char *self, int fd, int test) {
  char index[16], rank[16], file[16];
  pid_t all[MOST];
  int i, status, failed = 0;
  sprintf(index, "%d", test), sprintf(file, "%d", fd);
  for (i = 0; i < tests[test].ranks; i++) {
    sprintf(rank, "%d", i);
    if ((all[i] = fork()) == 0) {
      execl(self, self, "child", index, rank, file, (char *)NULL);
      _exit(127);
    }
  }
  for (i = 0; i < tests[test].ranks; i++) { /* the first that fails ends the others, which would wait for it */
    int k;
    pid_t pid = wait(&status);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) failed++;
    for (k = 0; k < tests[test].ranks; k++) {
      if (all[k] == pid) all[k] = 0;
      if (failed > 0 && all[k] > 0) kill(all[k], SIGKILL);
    }
  }
  CHECK(failed == 0);
}

static void share(int fd) {
  shared = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  CHECK(shared != MAP_FAILED);
}

int main(int argc, char **argv) {
  pthread_barrierattr_t across;
  int fd, i, k;
  setenv("LIGHTPATH_DEVICE_PATH", "direct", 1);
  if (argc == 5 && strcmp(argv[1], "child") == 0) {
    share(atoi(argv[4]));
    processes = true;
    gpu_open();
    be_rank(&tests[atoi(argv[2])], atoi(argv[3]));
    return 0;
  }
  CHECK(argc > 1 && (strcmp(argv[1], "threads") == 0 || strcmp(argv[1], "processes") == 0));
  processes = argv[1][0] == 'p';
  fd = memfd_create("recurring", 0);
  CHECK(fd >= 0 && ftruncate(fd, 1 << 16) == 0);
  share(fd);
  if (!processes) gpu_open();
  for (i = 0; i < TESTS; i++) {
    bool wanted = argc == 2;
    for (k = 2; k < argc; k++) wanted |= strcmp(argv[k], tests[i].name) == 0;
    if (!wanted) continue;
    pthread_barrierattr_init(&across);
    pthread_barrierattr_setpshared(&across, PTHREAD_PROCESS_SHARED);
    CHECK(pthread_barrier_init(&shared->barrier, &across, (unsigned)tests[i].ranks) == 0);
    if (processes)
      in_processes("/proc/self/exe", fd, i);
    else
      in_threads(&tests[i]);
    printf("%s\n", tests[i].name);
    fflush(stdout);
  }
  return 0;
}
