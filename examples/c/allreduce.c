/* AllReduce and AlltoAll between processes of one host, with nothing but NCCL's interface:
 *
 *   cc -I include examples/c/allreduce.c -L lib -lnccl -Wl,-rpath,$PWD/lib -o allreduce
 *   ./allreduce 4
 *
 * The program starts itself once per rank. How ranks learn the unique id is up to the program (MPI, a
 * store, a file); here it is an environment variable. Buffers are host memory and the stream is NULL,
 * so a call has its results in place when it returns. */
#include <errno.h>
#include <nccl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

extern char **environ;

#define CHECK(call)                                                                             \
  do {                                                                                          \
    ncclResult_t result = (call);                                                               \
    if (result != ncclSuccess) {                                                                \
      fprintf(stderr, "%s: %s: %s\n", #call, ncclGetErrorString(result), ncclGetLastError(NULL)); \
      exit(1);                                                                                  \
    }                                                                                           \
  } while (0)

/* Small integers, so that float sums are exact and results can be compared with ==. */
static float element(int rank, size_t i) { return (float)((rank + 1) * (int)(i % 11)); }

static void *allocate(size_t bytes) {
  void *p;
  CHECK(ncclMemAlloc(&p, bytes));
  return p;
}

/* Sums n floats over all ranks; returns how many results are wrong. */
static size_t all_reduce(ncclComm_t comm, int rank, int ranks, size_t n) {
  float *send = allocate(n * sizeof *send), *recv = allocate(n * sizeof *recv);
  size_t i, wrong = 0;
  for (i = 0; i < n; i++) send[i] = element(rank, i);
  CHECK(ncclAllReduce(send, recv, n, ncclFloat, ncclSum, comm, NULL));
  for (i = 0; i < n; i++) wrong += recv[i] != (float)(ranks * (ranks + 1) / 2 * (int)(i % 11));
  /* In place, on the result: every rank holds the same, so the maximum changes nothing. */
  CHECK(ncclAllReduce(recv, recv, n, ncclFloat, ncclMax, comm, NULL));
  for (i = 0; i < n; i++) wrong += recv[i] != (float)(ranks * (ranks + 1) / 2 * (int)(i % 11));
  CHECK(ncclMemFree(send));
  CHECK(ncclMemFree(recv));
  return wrong;
}

/* Block q of rank r goes to block r of rank q. */
static size_t all_to_all(ncclComm_t comm, int rank, int ranks, size_t n) {
  size_t i, wrong = 0, total = n * (size_t)ranks;
  float *send = allocate(total * sizeof *send), *recv = allocate(total * sizeof *recv);
  for (i = 0; i < total; i++) send[i] = element(rank, i);
  CHECK(ncclAlltoAll(send, recv, n, ncclFloat, comm, NULL));
  for (i = 0; i < total; i++) wrong += recv[i] != element((int)(i / n), (size_t)rank * n + i % n);
  CHECK(ncclMemFree(send));
  CHECK(ncclMemFree(recv));
  return wrong;
}

static int run_rank(int rank, int ranks, const char *hex) {
  static const size_t sizes[] = {1, 2, 1000, 4099, 1 << 18};
  ncclUniqueId id;
  ncclComm_t comm;
  size_t i, wrong = 0;
  for (i = 0; i < sizeof id.internal; i++) {
    unsigned byte;
    if (sscanf(hex + 2 * i, "%2x", &byte) != 1) return 2;
    id.internal[i] = (char)byte;
  }
  CHECK(ncclCommInitRank(&comm, ranks, id, rank));
  for (i = 0; i < sizeof sizes / sizeof *sizes; i++)
    wrong += all_reduce(comm, rank, ranks, sizes[i]) + all_to_all(comm, rank, ranks, sizes[i]);
  CHECK(ncclCommFinalize(comm));
  CHECK(ncclCommDestroy(comm));
  if (wrong != 0) fprintf(stderr, "rank %d: %zu wrong elements\n", rank, wrong);
  return wrong != 0;
}

static int start_ranks(char *self, int ranks) {
  ncclUniqueId id;
  char hex[2 * sizeof id.internal + 1], number[16], count[16];
  char *args[] = {self, count, number, NULL};
  int rank, failed = 0;
  size_t i;
  CHECK(ncclGetUniqueId(&id));
  for (i = 0; i < sizeof id.internal; i++) snprintf(hex + 2 * i, 3, "%02x", (unsigned char)id.internal[i]);
  setenv("EXAMPLE_ID", hex, 1);
  snprintf(count, sizeof count, "%d", ranks);
  /* posix_spawn and not fork alone: a forked child cannot use a NCCL that its parent has used. */
  for (rank = 0; rank < ranks; rank++) {
    pid_t pid;
    snprintf(number, sizeof number, "%d", rank);
    errno = posix_spawn(&pid, "/proc/self/exe", NULL, NULL, args, environ);
    if (errno != 0) {
      perror("cannot start a rank");
      return 1;
    }
  }
  for (rank = 0; rank < ranks; rank++) {
    int status = 0;
    failed += wait(&status) < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0;
  }
  if (failed == 0) printf("%d ranks: all results are right\n", ranks);
  return failed != 0;
}

int main(int argc, char **argv) {
  int ranks = argc > 1 ? atoi(argv[1]) : 4;
  const char *hex = getenv("EXAMPLE_ID");
  if (ranks < 1) {
    fprintf(stderr, "usage: %s RANKS\n", argv[0]);
    return 2;
  }
  if (argc > 2 && hex != NULL) return run_rank(atoi(argv[2]), ranks, hex);
  return start_ranks(argv[0], ranks);
}
