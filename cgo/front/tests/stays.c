/* Which short calls the front makes without the core: stays RANKS, with counting.c as the core. Reductions of
 * every type and operator are made once in a group, which goes to the core, and twice outside. The second of these
 * must not reach the core, and all three must give the same bits. These are more shapes than a communicator has
 * room for at first. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

/* So small that a call uses a small slot, of which there are enough that no rank waits for one. */
enum { MAX_RANKS = 3, MAX_COUNT = 150, MAX_SIZE = 8, OPS = ncclNumOps + 2, KINDS = 3, COUNTS = 3 };

static int ranks, rank;
static ncclComm_t comm;
static unsigned long* counted;

static const size_t counts[COUNTS] = {1, 37, MAX_COUNT};
static const size_t sizes[ncclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

/* Random bits; floats are below 2 so that no result is a NaN. */
static void fill(char* at, ncclDataType_t type, size_t count, uint64_t seed) {
  size_t size = sizes[type], i;
  for (i = 0; i < count * size; i++) {
    uint64_t x = (seed << 32 ^ i ^ (uint64_t)rank << 24) * 0x9e3779b97f4a7c15u;
    at[i] = (char)(x >> 40);
    if (type >= ncclFloat16 && i % size == size - 1) at[i] &= (char)0xbf;
  }
}

struct operators {
  ncclRedOp_t of[OPS];
  char element[MAX_SIZE], later[MAX_SIZE];
};

static struct operators operators_of(ncclDataType_t type) {
  static char later[ncclNumTypes][MAX_SIZE];
  struct operators o;
  int i;
  for (i = 0; i < ncclNumOps; i++) o.of[i] = (ncclRedOp_t)i;
  fill(o.element, type, 1, 1000);
  fill(later[type], type, 1, 2000);
  OK(ncclRedOpCreatePreMulSum(&o.of[ncclNumOps], o.element, type, ncclScalarHostImmediate, comm));
  OK(ncclRedOpCreatePreMulSum(&o.of[ncclNumOps + 1], later[type], type, ncclScalarDevice, comm));
  return o;
}

static ncclResult_t call(int kind, const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op) {
  switch (kind) {
    case 0: return ncclAllReduce(in, out, count, type, op, comm, NULL);
    case 1: return ncclReduce(in, out, count, type, op, 1, comm, NULL);
    default: return ncclReduceScatter(in, out, count, type, op, comm, NULL);
  }
}

/* Makes every call once, in a group or not, and stores the results or compares them with the stored ones. */
static void pass(const struct operators* ops, char* kept, int grouped) {
  static char in[MAX_COUNT * MAX_SIZE * MAX_RANKS], out[MAX_COUNT * MAX_SIZE];
  int type, op, at, kind;
  for (type = 0; type < ncclNumTypes; type++)
    for (op = 0; op < OPS; op++)
      for (at = 0; at < COUNTS; at++)
        for (kind = 0; kind < KINDS; kind++, kept += sizeof out) { /* AllReduce is one of them, so no rank gets ahead */
          fill(in, type, counts[at] * (size_t)ranks, (uint64_t)(type * 100 + op * 10 + at));
          memset(out, 0, sizeof out);
          if (grouped) OK(ncclGroupStart());
          OK(call(kind, in, out, counts[at], type, ops[type].of[op]));
          if (grouped) OK(ncclGroupEnd());
          if (grouped) memcpy(kept, out, sizeof out);
          if (memcmp(kept, out, sizeof out) != 0) {
            fprintf(stderr, "rank %d: kind %d of %zu, type %d, op %d: not what the core makes\n", rank, kind,
                    counts[at], type, op);
            exit(1);
          }
        }
}

/* After an operator is destroyed, the next call with another operator goes to the core once more. */
static void destroy(const struct operators* ops) {
  float in = 1, out;
  double wide = 1;
  ncclRedOp_t gone = ops[ncclFloat32].of[ncclNumOps], left = ops[ncclFloat64].of[ncclNumOps];
  unsigned long before;
  OK(ncclRedOpDestroy(gone, comm));
  FAILS(ncclAllReduce(&in, &out, 1, ncclFloat32, gone, comm, NULL), ncclInvalidArgument, "destroyed");
  before = *counted;
  for (int i = 0; i < 3; i++) OK(ncclAllReduce(&wide, &wide, 1, ncclFloat64, left, comm, NULL));
  CHECK(*counted == before + 1);
}

/* More shapes than a communicator can ever store. */
static void many(void) {
  static int8_t in[1300], out[1300];
  memset(in, 1, sizeof in);
  for (int round = 0; round < 2; round++)
    for (size_t n = 1; n <= sizeof in; n++) {
      out[n - 1] = 0;
      OK(ncclAllReduce(in, out, n, ncclInt8, ncclSum, comm, NULL));
      CHECK(out[n - 1] == ranks);
    }
}

static void body(ncclUniqueId* id, int* ready) {
  static char kept[ncclNumTypes * OPS * COUNTS * KINDS * MAX_COUNT * MAX_SIZE];
  struct operators ops[ncclNumTypes];
  unsigned long before;
  if (rank == 0) {
    OK(ncclGetUniqueId(id));
    __atomic_store_n(ready, 1, __ATOMIC_RELEASE);
  }
  while (!__atomic_load_n(ready, __ATOMIC_ACQUIRE)) usleep(1000);
  OK(ncclCommInitRank(&comm, ranks, *id, rank));
  void* core = dlopen(getenv("LIGHTPATH_CORE"), RTLD_NOW | RTLD_NOLOAD);
  CHECK(core != NULL && (counted = dlsym(core, "counted")) != NULL);
  for (int type = 0; type < ncclNumTypes; type++) ops[type] = operators_of(type);
  pass(ops, kept, 1);
  pass(ops, kept, 0);
  before = *counted;
  CHECK(before > 0);
  pass(ops, kept, 0);
  if (*counted != before) {
    fprintf(stderr, "rank %d: %lu calls came to the core\n", rank, *counted - before);
    exit(1);
  }
  destroy(ops);
  many();
  OK(ncclCommDestroy(comm));
}

int main(int argc, char** argv) {
  struct {
    ncclUniqueId id;
    int ready;
  }* shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pid_t children[MAX_RANKS];
  int bad = 0, status;
  ranks = argc > 1 ? atoi(argv[1]) : 2;
  if (shared == MAP_FAILED || ranks < 2 || ranks > MAX_RANKS) return 2;
  for (rank = 0; rank < ranks; rank++) {
    if ((children[rank] = fork()) != 0) continue;
    body(&shared->id, &shared->ready);
    return 0;
  }
  for (rank = 0; rank < ranks; rank++) {
    CHECK(waitpid(children[rank], &status, 0) == children[rank]);
    bad |= status != 0;
  }
  return bad;
}
