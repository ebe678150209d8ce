/* Compares every collective on device memory with the expected results: all types and operators, in place and not,
 * on streams of all kinds, several calls in flight.
 *
 * oracle [-r] [-s SIZE] [-c COUNT] [-e N] [RANKS...]
 *   -c  makes only calls of COUNT elements
 *   -s  makes only calls with types of SIZE bytes or more
 *   -e  makes only every Nth call
 *   -r  registers two of three buffers, other ones on each rank */
#include "gpu.h"
#include "../../rank/rank.h"

/* Calls in flight. */
#define AHEAD 4

struct buffers_of {
  struct run run;
  char *base, *send, *recv;
  void *handle; /* of a registration, NULL for none */
  size_t sent, received;
  int number; /* of the call */
};

static bool registered;

/* Allocates the buffers of a call. In place, the smaller one lies in the larger. */
static void allocate(struct buffers_of *b, const struct rank *k) {
  size_t block = b->run.count * type_size(b->run.type);
  size_t size = b->sent > b->received ? b->sent : b->received;
  if (!b->run.inplace) size = b->sent + b->received + 64;
  b->base = gpu_alloc(size);
  b->handle = NULL;
  if (registered && size > 0 && ((size_t)k->rank + b->run.count + (size_t)b->run.type) % 3 > 0)
    OK(ncclCommRegister(k->comm, b->base, size, &b->handle));
  b->send = b->recv = b->base;
  if (!b->run.inplace)
    b->recv = b->base + (b->sent + 63) / 64 * 64;
  else if (b->received > b->sent)
    b->send += (size_t)k->rank * block;
  else if (b->sent > b->received)
    b->recv += (size_t)k->rank * block;
}

/* Allocates and fills the buffers of a call. No rank of the process may have work on the device, which a driver may
 * wait for. */
static void prepare(struct buffers_of *b, const struct run *r, const struct rank *k) {
  size_t size = type_size(r->type);
  char *host;
  b->run = *r;
  b->sent = send_count(r, k->world) * size;
  b->received = recv_count(r, k->world) * size;
  allocate(b, k);
  host = malloc(b->sent + 1);
  fill(host, r, k->rank, send_count(r, k->world));
  gpu_copy(b->send, host, b->sent);
  free(host);
}

/* Makes the calls, and waits for them. */
static void make(struct buffers_of *ahead, int n, const struct rank *k, CUstream *streams) {
  int i;
  meet();
  for (i = 0; i < n; i++) {
    struct buffers_of *b = &ahead[i];
    OK(nccl_call(&b->run, k->rank, k->world, (struct buffers){b->send, b->recv}, k->comm, streams[b->number % 3]));
  }
  for (i = 0; i < 3; i++) IS(gpu.StreamSynchronize(streams[i]), CUDA_SUCCESS);
  meet();
}

static void finish(struct buffers_of *b, const struct rank *k) {
  char *host = malloc(b->received + 1);
  uint64_t wrong;
  gpu_copy(host, b->recv, b->received);
  wrong = count_wrong(host, &b->run, k->rank, k->world);
  if (wrong > 0) {
    fprintf(stderr, "rank %d of %d: collective %d type %d op %d count %zu root %d in place %d: %zu wrong\n", k->rank,
            k->world, b->run.coll, b->run.type, b->run.op, (size_t)b->run.count, b->run.root, b->run.inplace,
            (size_t)wrong);
    exit(1);
  }
  free(host);
  if (b->handle != NULL) OK(ncclCommDeregister(k->comm, b->handle));
  gpu_free(b->base);
}

/* Only at the root a rooted call can be in place. */
static bool sensible(const struct run *r) {
  bool rooted = r->coll == REDUCE || r->coll == GATHER || r->coll == SCATTER;
  return !(r->inplace && (rooted || r->coll == SENDRECV || r->coll == ALLTOALL));
}

static uint64_t only;     /* COUNT, 0: several */
static size_t least = 1; /* SIZE */
static int every = 1;    /* N; odd, since every second call is in place */

static void all(struct rank *k) {
  static const uint64_t counts[] = {1, 0, 7, 1000, 40001};
  CUstream streams[] = {gpu_stream(CU_STREAM_NON_BLOCKING), gpu_stream(CU_STREAM_NON_BLOCKING),
                        gpu_stream(CU_STREAM_NON_BLOCKING)};
  struct buffers_of ahead[AHEAD];
  int n = 0, number = 0;
  struct run r = {0};
  CUcontext before, after;
  if (k->alone) {
    streams[1] = NULL;
    streams[2] = gpu_stream(CU_STREAM_DEFAULT);
  }
  IS(gpu.CtxGetCurrent(&before), CUDA_SUCCESS);
  for (r.coll = ALLREDUCE; r.coll < ALLTOALLV; r.coll++) {
    for (r.type = ncclInt8; r.type <= ncclFloat8e5m2; r.type++) {
      if (type_size(r.type) < least) continue;
      for (r.op = ncclSum; r.op <= (reduces(&r) ? ncclAvg : ncclSum); r.op++) {
        for (r.inplace = 0; r.inplace < 2; r.inplace++) {
          number++;
          r.count = only > 0 ? only : counts[number % 5];
          r.root = number % k->world;
          if (!sensible(&r) || number % every > 0) continue;
          prepare(&ahead[n], &r, k);
          ahead[n].number = number;
          if (++n < AHEAD) continue;
          make(ahead, n, k, streams);
          while (n > 0) finish(&ahead[--n], k);
        }
      }
    }
  }
  make(ahead, n, k, streams);
  while (n > 0) finish(&ahead[--n], k);
  IS(gpu.CtxGetCurrent(&after), CUDA_SUCCESS);
  CHECK(before == after);
}

int main(int argc, char **argv) {
  int i;
  gpu_open();
  for (i = 1; i < argc; i++) {
    if (strcmp(argv[i], "-c") == 0 && i + 1 < argc)
      only = strtoull(argv[++i], NULL, 10);
    else if (strcmp(argv[i], "-s") == 0 && i + 1 < argc)
      least = strtoull(argv[++i], NULL, 10);
    else if (strcmp(argv[i], "-e") == 0 && i + 1 < argc)
      every = atoi(argv[++i]);
    else if (strcmp(argv[i], "-r") == 0)
      registered = true;
    else
      ranks(atoi(argv[i]), all, NULL);
  }
  return 0;
}
