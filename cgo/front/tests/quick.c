/* Short calls, with and without the core: quick RANKS [SEED]. The front may make a call outside a group by itself;
 * a call in a group goes to the core. Each rank chooses on its own, so the front and the core must agree on slots,
 * counters and the order of calls. Some buffers are of ncclMemAlloc, which other ranks read in place. At the end
 * three errors must be reported: a rank that makes no call, one that makes another call, and one that dies. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { MAX_RANKS = 8, MAX_COUNT = 17000, SHAPES = 40, ROUNDS = 6000 };

enum kind { ALLREDUCE, BROADCAST, REDUCE, ALLGATHER, REDUCESCATTER, ALLTOALL, GATHER, SCATTER, KINDS };

struct shape {
  enum kind kind;
  int type, op, root, in_place; /* type is an index of types */
  size_t count;
};

static int ranks, rank;
static ncclUniqueId* id;
static ncclComm_t comm;

static uint64_t draw(uint64_t* state) {
  uint64_t x = *state += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

static const struct {
  ncclDataType_t type;
  size_t size;
} types[] = {{ncclInt8, 1},  {ncclUint8, 1},  {ncclInt32, 4},   {ncclUint32, 4},
             {ncclInt64, 8}, {ncclUint64, 8}, {ncclFloat32, 4}, {ncclFloat64, 8}};

static void put(int type, void* at, size_t i, double v) {
  switch (types[type].type) {
    case ncclInt8: ((int8_t*)at)[i] = (int8_t)v; break;
    case ncclUint8: ((uint8_t*)at)[i] = (uint8_t)v; break;
    case ncclInt32: ((int32_t*)at)[i] = (int32_t)v; break;
    case ncclUint32: ((uint32_t*)at)[i] = (uint32_t)v; break;
    case ncclInt64: ((int64_t*)at)[i] = (int64_t)v; break;
    case ncclUint64: ((uint64_t*)at)[i] = (uint64_t)v; break;
    case ncclFloat32: ((float*)at)[i] = (float)v; break;
    default: ((double*)at)[i] = v; break;
  }
}

static double get(int type, const void* at, size_t i) {
  switch (types[type].type) {
    case ncclInt8: return ((const int8_t*)at)[i];
    case ncclUint8: return ((const uint8_t*)at)[i];
    case ncclInt32: return ((const int32_t*)at)[i];
    case ncclUint32: return ((const uint32_t*)at)[i];
    case ncclInt64: return (double)((const int64_t*)at)[i];
    case ncclUint64: return (double)((const uint64_t*)at)[i];
    case ncclFloat32: return ((const float*)at)[i];
    default: return ((const double*)at)[i];
  }
}

/* Element i that a rank sends in a round: so small that products of all ranks fit every type, and negative where
 * the type allows it, so that signed and unsigned differ. */
static double element(const struct shape* s, int round, int of, size_t i) {
  uint64_t state = (uint64_t)round << 32 ^ (uint64_t)of << 24 ^ i;
  int v = (int)(draw(&state) % 3), sign = types[s->type].type == ncclUint8 || types[s->type].type == ncclUint32 ||
                                          types[s->type].type == ncclUint64;
  return sign ? v : v - 1;
}

static double combined(const struct shape* s, int round, size_t i) {
  double v = element(s, round, 0, i);
  for (int p = 1; p < ranks; p++) {
    double e = element(s, round, p, i);
    switch (s->op) {
      case ncclSum: v += e; break;
      case ncclProd: v *= e; break;
      case ncclMax: v = v > e ? v : e; break;
      default: v = v < e ? v : e; break;
    }
  }
  return v;
}

/* Element i that this rank receives. */
static double result(const struct shape* s, int round, size_t i) {
  size_t n = s->count, block = i / n, at = i % n;
  switch (s->kind) {
    case BROADCAST: return element(s, round, s->root, i);
    case ALLGATHER:
    case GATHER: return element(s, round, (int)block, at);
    case ALLTOALL: return element(s, round, (int)block, (size_t)rank * n + at);
    case SCATTER: return element(s, round, s->root, (size_t)rank * n + at);
    case REDUCESCATTER: return combined(s, round, (size_t)rank * n + at);
    default: return combined(s, round, i);
  }
}

static size_t sends(const struct shape* s) {
  int all = s->kind == REDUCESCATTER || s->kind == ALLTOALL || s->kind == SCATTER;
  if ((s->kind == BROADCAST || s->kind == SCATTER) && rank != s->root) return 0;
  return all ? s->count * (size_t)ranks : s->count;
}

static size_t gets(const struct shape* s) {
  int all = s->kind == ALLGATHER || s->kind == ALLTOALL || s->kind == GATHER;
  if ((s->kind == REDUCE || s->kind == GATHER) && rank != s->root) return 0;
  return all ? s->count * (size_t)ranks : s->count;
}

static ncclResult_t call(const struct shape* s, void* send, void* recv) {
  ncclDataType_t t = types[s->type].type;
  ncclRedOp_t op = (ncclRedOp_t)s->op;
  switch (s->kind) {
    case ALLREDUCE: return ncclAllReduce(send, recv, s->count, t, op, comm, NULL);
    case BROADCAST: return ncclBroadcast(send, recv, s->count, t, s->root, comm, NULL);
    case REDUCE: return ncclReduce(send, recv, s->count, t, op, s->root, comm, NULL);
    case ALLGATHER: return ncclAllGather(send, recv, s->count, t, comm, NULL);
    case REDUCESCATTER: return ncclReduceScatter(send, recv, s->count, t, op, comm, NULL);
    case ALLTOALL: return ncclAlltoAll(send, recv, s->count, t, comm, NULL);
    case GATHER: return ncclGather(send, recv, s->count, t, s->root, comm, NULL);
    default: return ncclScatter(send, recv, s->count, t, s->root, comm, NULL);
  }
}

static void random_calls(uint64_t seed) {
  enum { BYTES = MAX_COUNT * MAX_RANKS * 8 };
  static char memory[2][BYTES];
  void* shared[2];
  for (int i = 0; i < 2; i++) OK(ncclMemAlloc(&shared[i], BYTES));
  struct shape shapes[SHAPES];
  uint64_t common = seed, own = seed ^ (uint64_t)(rank + 1) << 40;
  for (int i = 0; i < SHAPES; i++) {
    static const size_t most[] = {3, 40, 600, MAX_COUNT};
    struct shape* s = &shapes[i];
    s->kind = draw(&common) % KINDS;
    s->type = (int)(draw(&common) % (sizeof types / sizeof *types));
    s->op = (int)(draw(&common) % 4);
    s->root = (int)(draw(&common) % (uint64_t)ranks);
    s->in_place = draw(&common) % 2 && s->kind != ALLTOALL;
    s->count = 1 + draw(&common) % most[draw(&common) % 4];
  }
  const int rounds = ranks < 5 ? ROUNDS : ROUNDS / 3; /* many ranks on few CPUs are slow */
  for (int round = 0; round < rounds; round++) {
    /* Most calls have one of a few shapes, which have been used before; some have another. */
    const struct shape* s = &shapes[(12 * round / rounds * 5 + (int)(draw(&common) % 6)) % SHAPES];
    size_t n = sends(s), m = gets(s), own_block = (size_t)rank * s->count * types[s->type].size;
    int alloc = draw(&own) % 2;
    char *one = alloc ? shared[0] : memory[0], *other = alloc ? shared[1] : memory[1];
    char *send = one, *recv = other;
    if (s->in_place && s->kind != SCATTER && s->kind != REDUCESCATTER) {
      recv = one;
      send = s->kind == ALLGATHER || (s->kind == GATHER && m > 0) ? one + own_block : one;
    } else if (s->in_place && (n > 0 || s->kind == REDUCESCATTER)) {
      recv = one + own_block;
    }
    for (size_t i = 0; i < n; i++) put(s->type, send, i, element(s, round, rank, i));
    if (recv == other) memset(other, 0x5a, m * types[s->type].size);
    if (draw(&own) % 200 == 0) usleep((useconds_t)(draw(&own) % 3000));
    if (draw(&own) % 4 == 0) {
      OK(ncclGroupStart());
      OK(call(s, n ? send : NULL, m ? recv : NULL));
      OK(ncclGroupEnd());
    } else {
      OK(call(s, n ? send : NULL, m ? recv : NULL));
    }
    for (size_t i = 0; i < m; i++)
      if (get(s->type, recv, i) != result(s, round, i)) {
        fprintf(stderr,
                "rank %d round %d: kind %d of %zu, type %d, op %d, root %d, in place %d: element %zu is %g, not %g\n",
                rank, round, s->kind, s->count, s->type, s->op, s->root, s->in_place, i, get(s->type, recv, i),
                result(s, round, i));
        exit(1);
      }
  }
  for (int i = 0; i < 2; i++) OK(ncclMemFree(shared[i]));
}

static void start(int generation) {
  if (rank == 0) {
    OK(ncclGetUniqueId(&id[generation]));
    __atomic_store_n((int*)&id[MAX_RANKS] + generation, 1, __ATOMIC_RELEASE);
  }
  while (!__atomic_load_n((int*)&id[MAX_RANKS] + generation, __ATOMIC_ACQUIRE)) usleep(1000);
  OK(ncclCommInitRank(&comm, ranks, id[generation], rank));
  /* So that the shape of the call that fails has been used before. */
  int in = rank, out;
  for (int i = 0; i < 100; i++) OK(ncclAllReduce(&in, &out, 1, ncclInt, ncclSum, comm, NULL));
}

/* After calls in place, a call whose buffers overlap in another way is still an error. */
static void overlap(void) {
  int x[4] = {rank, 1};
  for (int i = 0; i < 3; i++) OK(ncclAllReduce(x, x, 2, ncclInt, ncclSum, comm, NULL));
  FAILS(ncclAllReduce(x, x + 1, 2, ncclInt, ncclSum, comm, NULL), ncclInvalidArgument, "overlap");
  FAILS(ncclAllReduce(NULL, x, 2, ncclInt, ncclSum, comm, NULL), ncclInvalidArgument, "sendbuff is NULL");
}

/* Waits, once, until all ranks are here. */
static void meet(void) {
  int* here = (int*)&id[MAX_RANKS] + 4; /* behind the words of start */
  __atomic_fetch_add(here, 1, __ATOMIC_ACQ_REL);
  while (__atomic_load_n(here, __ATOMIC_ACQUIRE) < ranks) usleep(1000);
}

/* One rank makes another call. */
static void differ(void) {
  float in[4] = {0}, out[4];
  start(1);
  for (int i = 0; i < 10; i++) OK(ncclBroadcast(in, out, 2, ncclFloat, 0, comm, NULL));
  meet(); /* the failure of the communicator would also end a rank's earlier call */
  int a = 1, b;
  ncclResult_t rc = rank == 1 ? ncclBroadcast(in, out, 2, ncclFloat, 1, comm, NULL)
                              : ncclAllReduce(&a, &b, 1, ncclInt, ncclSum, comm, NULL);
  if (rc == ncclSuccess) rc = ncclAllReduce(&a, &b, 1, ncclInt, ncclSum, comm, NULL); /* a root need not wait */
  CHECK(rc == ncclInvalidUsage);
  CHECK(strstr(ncclGetLastError(NULL), "Broadcast") != NULL && strstr(ncclGetLastError(NULL), "AllReduce") != NULL);
  OK(ncclCommAbort(comm));
}

static void* abort_soon(void* unused) {
  (void)unused;
  usleep(50000);
  OK(ncclCommAbort(comm));
  return NULL;
}

/* One rank makes no call, and another thread aborts the communicator. */
static void stay_away(void) {
  pthread_t thread;
  int a = 1, b;
  start(2);
  if (rank == 1) {
    abort_soon(NULL);
    return;
  }
  CHECK(pthread_create(&thread, NULL, abort_soon, NULL) == 0);
  CHECK(ncclAllReduce(&a, &b, 1, ncclInt, ncclSum, comm, NULL) != ncclSuccess);
  CHECK(pthread_join(thread, NULL) == 0);
  IS(ncclAllReduce(&a, &b, 1, ncclInt, ncclSum, comm, NULL), ncclInvalidArgument); /* the handle is no longer valid */
}

/* One rank dies between two calls. */
static void die(void) {
  int a = 1, b;
  start(3);
  if (rank == 1) raise(SIGKILL);
  ncclResult_t rc = ncclSuccess;
  while (rc == ncclSuccess) rc = ncclAllReduce(&a, &b, 1, ncclInt, ncclSum, comm, NULL);
  CHECK(rc == ncclRemoteError);
  /* Calls that need no other rank fail now too. */
  IS(ncclReduce(&a, &b, 1, ncclInt, ncclSum, 1, comm, NULL), ncclRemoteError);
  OK(ncclCommAbort(comm));
}

int main(int argc, char** argv) {
  int bad = 0, status;
  pid_t children[MAX_RANKS];
  ranks = argc > 1 ? atoi(argv[1]) : 2;
  id = mmap(NULL, sizeof *id * (MAX_RANKS + 1), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (id == MAP_FAILED || ranks < 2 || ranks > MAX_RANKS) return 2;
  for (rank = 0; rank < ranks; rank++) {
    if ((children[rank] = fork()) != 0) continue;
    start(0);
    random_calls(argc > 2 ? strtoull(argv[2], NULL, 0) : 1);
    overlap();
    OK(ncclCommDestroy(comm));
    differ();
    stay_away();
    die();
    return 0;
  }
  for (rank = 0; rank < ranks; rank++) {
    CHECK(waitpid(children[rank], &status, 0) == children[rank]);
    bad |= rank == 1 ? !WIFSIGNALED(status) : status != 0;
  }
  return bad;
}
