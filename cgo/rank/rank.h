/* lightpath-rank: one rank (or, with threads, all ranks of a process) of a benchmark job, in plain C
 * over the NCCL ABI, so that what is timed is what a framework would call.
 *
 * The job comes as a text file (--job PATH), one key=value per line:
 *   rank=R world=N threads=T rendezvous=PATH barrier=PATH      (each on its own line)
 * then one line per run:
 *   run collective=allreduce type=float op=sum root=0 bytes=S count=C warmup=W iters=I check=0|1 inplace=0|1 mode=loop|sync pause=MS
 * count is the call's element count; bytes is only reported. With threads=T the process holds ranks
 * rank .. rank+T-1. Rank 0 writes the unique id, in hex, to the rendezvous file; the others wait for it.
 *
 * mode=loop times I calls back to back. mode=sync puts all ranks behind a barrier in shared memory
 * before every call and records its start and end (CLOCK_MONOTONIC, ns), and checks every call; pause
 * is how long it lets the planes rest before that, so that what one call left behind (a plan's trailing
 * reset) is not counted against the next; in mode=loop, how long a rank rests before the run.
 * Standard output: one JSON object per rank and run; on failure {"rank":R,"error":TEXT,"result":CODE} and exit 1. */
#ifndef LIGHTPATH_RANK_H
#define LIGHTPATH_RANK_H

#include <stddef.h>
#include <stdint.h>

#include "nccl.h"

enum collective { ALLREDUCE, BROADCAST, REDUCE, ALLGATHER, REDUCESCATTER, ALLTOALL, GATHER, SCATTER, SENDRECV, NCOLLECTIVES };

struct run {
  enum collective coll;
  ncclDataType_t type;
  ncclRedOp_t op;
  int root, warmup, iters, check, inplace, sync, pause;
  uint64_t bytes, count;
};

struct job {
  int rank, world, threads;
  char rendezvous[4096], barrier[4096];
  struct run *runs;
  size_t nruns;
};

/* job.c: 0, or -1 after a line on standard error. */
int job_read(const char *path, struct job *job);
const char *collective_name(enum collective c);

/* data.c: patterns and the oracle. Every function is pure. */
size_t type_size(ncclDataType_t t);
/* Elements of the send and receive buffer of one rank. */
uint64_t send_count(const struct run *r, int world);
uint64_t recv_count(const struct run *r, int world);
/* Fills n elements with the pattern of `rank`. */
void fill(void *buf, const struct run *r, int rank, uint64_t n);
/* Counts the elements of the receive buffer that are not what the collective must leave. */
uint64_t count_wrong(const void *recv, const struct run *r, int rank, int world);

/* sync.c: a barrier for processes that share a file, and threads. */
struct barrier;
struct barrier *barrier_open(const char *path, int world);
void barrier_wait(struct barrier *b);
int64_t now_ns(void);

/* Publishes (rank 0) or waits for the unique id; 0, or -1 after a line on standard error. */
int rendezvous_put(const char *path, const ncclUniqueId *id);
int rendezvous_get(const char *path, ncclUniqueId *id);

#endif
