/* lightpath-rank: one rank of a benchmark job or, with threads, several ranks of a process, in plain C over the NCCL
 * ABI: it times the calls that a framework makes. The programs of cgo/peers share the job, timing and oracle, over
 * other libraries: each program defines the lib_ functions below.
 *
 * The job is a text file (--job PATH) of lines key=value:
 *   rank=R world=N threads=T rendezvous=PATH barrier=PATH      (each on its own line)
 *   memory=MEMORY   the buffers: library (the library allocates them), plain (it does not know their pages), device, or
 *                   registered (device memory that is registered)
 *   device=D        the device of every rank; without it, rank r uses device r modulo their number
 *   library=PATH    fails unless the loaded library is this file
 *   commands=PATH   a socket: run lines come from it, and reports go to it
 *   reserve=BYTES   with commands: the size of the two buffers that all smaller runs share
 * Then one line per run:
 *   run collective=allreduce type=float op=sum root=0 bytes=S count=C warmup=W iters=I check=0|1 inplace=0|1
 *     mode=loop|each|sync pause=MS graph=G      (on one line)
 * count is the call's element count; bytes is only reported. collective=alltoallv is grouped sends and receives of
 * different sizes: matrix=PATH is a text of world x world element counts, by source, and count the largest sum of a row
 * or column. With threads=T the process has ranks rank .. rank+T-1. Rank 0 writes the unique id, in hex, to the
 * rendezvous file; the others wait for it.
 *
 * A launcher that shares no files with the ranks uses - as the PATH of --job, rendezvous and barrier. The job then
 * comes over standard input, up to a line "end". Rank 0 prints {"unique_id":HEX}; the launcher answers every other rank
 * with a line of that text. At a barrier a rank prints {"barrier":true} and waits for an empty line.
 *
 * mode=loop times I calls back to back. mode=each also records each call's start and end. mode=sync puts all ranks
 * behind a barrier before every call, records its start and end (CLOCK_MONOTONIC, ns), and checks
 * every call. There, pause is how long the planes rest before a call, so that work after a call (a plan's trailing
 * reset) is not counted in the next. In mode=loop, a rank rests so long after the warm-up, and repeats it.
 *
 * With device memory, calls use a stream. mode=loop measures between two events on it, the other modes until the stream
 * is idle. graph=G, in mode=loop, captures the I calls into a graph and times G launches of it.
 *
 * Standard output: one JSON object per rank and run. On failure {"rank":R,"error":TEXT,"result":CODE} and exit 1.
 *
 * On a commands socket a rank first sends {"rank":R,"library":TEXT}. It answers every run line with a report, or with
 * {"rank":R,"unsupported":TEXT} if its library lacks the call. It ends with the socket. A rank that waits for a line
 * uses no processor. */
#ifndef LIGHTPATH_RANK_H
#define LIGHTPATH_RANK_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "nccl.h" /* names of types and operators; only main.c and call.c call the library */

enum collective {
  ALLREDUCE,
  BROADCAST,
  REDUCE,
  ALLGATHER,
  REDUCESCATTER,
  ALLTOALL,
  GATHER,
  SCATTER,
  SENDRECV,
  ALLTOALLV,
  NCOLLECTIVES
};

struct run {
  enum collective coll;
  ncclDataType_t type;
  ncclRedOp_t op;
  int root, warmup, iters, check, inplace, sync, each, pause, graph;
  uint64_t bytes, count;
  uint64_t *matrix; /* ALLTOALLV: elements from rank s to d at [s * world + d]; count is the largest row or column */
};

enum where { LIBRARY, PLAIN, DEVICE, REGISTERED };

struct job {
  int rank, world, threads, device;
  enum where memory;
  size_t reserve;
  char rendezvous[4096], barrier[4096], commands[4096], library[4096];
  struct run *runs;
  size_t nruns;
};

/* job.c: 0, or -1 after a line on standard error. */
int job_read(const char *path, struct job *job);
/* Reads the fields of a run line after "run ", and changes text. The caller frees the matrix. */
int run_parse(char *text, int world, struct run *r);
const char *collective_name(enum collective c);

struct buffers {
  char *send, *recv;
};

struct memory;
struct device;

/* One rank of a job. It reports to out. */
struct worker {
  int rank, world;
  const struct memory *memory;
  struct device *device; /* of device_memory, else NULL */
  void *comm;
  struct barrier *bar;
  FILE *out;
};

/* A kind of memory, and how time is measured there. A function that fails ends the process through rank_fail. */
struct memory {
  char *(*obtain)(const struct worker *w, size_t bytes);
  void (*give_back)(const struct worker *w, char *mem, size_t bytes);
  /* Copy to a buffer and from it. host may be the buffer itself. */
  void (*put)(const struct worker *w, char *to, const void *host, size_t bytes);
  void (*get)(const struct worker *w, void *host, const char *from, size_t bytes);
  /* The time in us of the calls in between, until they have ended. */
  int64_t (*start)(const struct worker *w);
  double (*stop)(const struct worker *w, int64_t started);
  /* Waits for all calls to end. NULL if calls have ended when they return. */
  void (*finish)(const struct worker *w);
  /* Captures r's calls into a graph, launches it graph times, after one launch if r has a warmup, and returns the
   * time of a call in us. NULL if there are no graphs. */
  double (*replay)(const struct worker *w, const struct run *r, struct buffers at);
};

/* run.c: buffers of the library, and pages unknown to it. */
extern const struct memory library_memory, plain_memory;

/* Each program defines these. A failure of its library ends the process through rank_fail. */
void lib_call(const struct worker *w, const struct run *r, struct buffers at);
/* Why the library cannot make r's calls, or NULL. */
const char *lib_unsupported(const struct run *r);
void *lib_alloc(const struct worker *w, size_t bytes);
void lib_free(const struct worker *w, void *mem, size_t bytes);
const char *lib_name(void);

/* run.c: makes the runs of the job, or of its socket, and reports each. Ranks of one process may call this at the same
 * time. 0, or -1 after a line on standard error. */
int work(struct worker *w, const struct job *job);
_Noreturn void rank_fail(const struct worker *w, const char *what, int result, const char *text);

/* device.c: buffers of a device, over the CUDA driver. Makes the context of the device (-1: by the rank) current on the
 * thread. */
extern const struct memory device_memory;
struct device *device_open(const struct worker *w, int number);
void *device_stream(const struct device *d);

/* call.c: makes r's call over NCCL's interface. stream is a cudaStream_t. ncclInvalidUsage if the library lacks the
 * function. */
ncclResult_t nccl_call(const struct run *r, int rank, int world, struct buffers at, ncclComm_t comm, void *stream);
/* The function that the library lacks, or NULL. */
const char *nccl_lacks(const struct run *r);

/* data.c: patterns and the oracle. Every function is pure. */
/* Whether the call combines elements of different ranks. */
int reduces(const struct run *r);
/* The call's pointers, in place by NCCL's rules. */
struct buffers place(const struct run *r, int rank, struct buffers b);
size_t type_size(ncclDataType_t t);
/* Elements of the send and receive buffer of one rank. */
uint64_t send_count(const struct run *r, int world);
uint64_t recv_count(const struct run *r, int world);
/* Fills n elements with the pattern of `rank`. */
void fill(void *buf, const struct run *r, int rank, uint64_t n);
/* Counts the wrong elements of the receive buffer. */
uint64_t count_wrong(const void *recv, const struct run *r, int rank, int world);

#define LAUNCHER "-" /* the path that means the launcher at the other end of standard input and output */

/* sync.c: a barrier for processes that share a file, for threads, and for processes of one launcher. */
struct barrier;
struct barrier *barrier_open(const struct worker *w, const char *path);
void barrier_wait(struct barrier *b);
int64_t now_ns(void);
int64_t cpu_ns(void); /* of the process */

/* Publishes (rank 0) or waits for the unique id; 0, or -1 after a line on standard error. */
int rendezvous_put(const char *path, const ncclUniqueId *id);
int rendezvous_get(const char *path, ncclUniqueId *id);

#endif
