/* lightpath-rank: one rank (or, with threads, all ranks of a process) of a benchmark job, in plain C
 * over the NCCL ABI, so that what is timed is what a framework would call. The programs of cgo/peers
 * are the same job, timing and oracle over other libraries: a program defines the lib_ functions below.
 *
 * The job comes as a text file (--job PATH), one key=value per line:
 *   rank=R world=N threads=T rendezvous=PATH barrier=PATH      (each on its own line)
 *   memory=library|plain|device|registered  what buffers are: the library's (default), pages that it does not know, a device's, or a
 *                         device's that are registered
 *   device=D              the device of every rank, with memory of devices; without it rank r takes r modulo their number
 *   library=PATH          fails unless the library that is loaded is this file
 *   commands=PATH         a socket to connect to: run lines come from there, and reports go there
 *   reserve=BYTES         with commands: the size of the two buffers that all runs share which need no larger ones
 * then one line per run:
 *   run collective=allreduce type=float op=sum root=0 bytes=S count=C warmup=W iters=I check=0|1 inplace=0|1 mode=loop|each|sync pause=MS graph=G
 * count is the call's element count; bytes is only reported. collective=alltoallv is grouped sends and
 * receives of different sizes: matrix=PATH is a text of world x world element counts, by source, and
 * count the largest sum of a row or column. With threads=T the process holds ranks
 * rank .. rank+T-1. Rank 0 writes the unique id, in hex, to the rendezvous file; the others wait for it.
 *
 * mode=loop times I calls back to back; mode=each too, and records each call's start and end. mode=sync puts all ranks behind a barrier in shared memory
 * before every call and records its start and end (CLOCK_MONOTONIC, ns), and checks every call; pause
 * is how long it lets the planes rest before that, so that what one call left behind (a plan's trailing
 * reset) is not counted against the next; in mode=loop, how long a rank rests before the run.
 *
 * With memory of devices calls go to a stream of the rank's: mode=loop times between two events on it, the other modes until
 * the stream has drained. graph=G, in mode=loop, captures the I calls into a graph and times G launches of it.
 *
 * Standard output: one JSON object per rank and run; on failure {"rank":R,"error":TEXT,"result":CODE} and exit 1.
 *
 * On a commands socket a rank first says {"rank":R,"library":TEXT}, then answers every run line by one
 * report, or by {"rank":R,"unsupported":TEXT} where its library lacks the call, and ends with the socket.
 * A rank that waits for a line uses no processor. */
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
/* Reads the fields of a run line, behind "run "; changes text. The matrix is the caller's to free. */
int run_parse(char *text, int world, struct run *r);
const char *collective_name(enum collective c);

struct buffers {
  char *send, *recv;
};

struct memory;
struct device;

/* One rank of a job. out is where it reports. */
struct worker {
  int rank, world;
  const struct memory *memory;
  struct device *device; /* of device_memory, else NULL */
  void *comm;
  struct barrier *bar;
  FILE *out;
};

/* Where buffers are, and how time is told there. Each ends the process through rank_fail where it fails. */
struct memory {
  char *(*obtain)(const struct worker *w, size_t bytes);
  void (*give_back)(const struct worker *w, char *mem, size_t bytes);
  /* To buffers and from them. host may be the buffer itself. */
  void (*put)(const struct worker *w, char *to, const void *host, size_t bytes);
  void (*get)(const struct worker *w, void *host, const char *from, size_t bytes);
  /* The time of calls made in between, until they have ended, in us. */
  int64_t (*start)(const struct worker *w);
  double (*stop)(const struct worker *w, int64_t started);
  /* Waits for all calls to end. NULL where they have when they return. */
  void (*finish)(const struct worker *w);
  /* Captures r's calls into a graph, launches it graph times, and once before that where r has a warmup, and
   * returns the time of a call in us. NULL where there are no graphs. */
  double (*replay)(const struct worker *w, const struct run *r, struct buffers at);
};

/* run.c: buffers of the library, and pages that it does not know. */
extern const struct memory library_memory, plain_memory;

/* What a program defines. Each ends the process through rank_fail where its library fails. */
void lib_call(const struct worker *w, const struct run *r, struct buffers at);
/* Why the library cannot do r, or NULL. */
const char *lib_unsupported(const struct run *r);
void *lib_alloc(const struct worker *w, size_t bytes);
void lib_free(const struct worker *w, void *mem, size_t bytes);
const char *lib_name(void);

/* run.c: a job's runs, each with its report; ranks of one process may call these side by side. */
void work_through(struct worker *w, const struct job *job);
/* The same with runs as they come over the job's socket; 0, or -1 after a line on standard error. */
int work_session(struct worker *w, const struct job *job);
_Noreturn void rank_fail(const struct worker *w, const char *what, int result, const char *text);

/* device.c: buffers of a device, over the CUDA driver. Gives the rank the device (-1: by its rank), whose context
 * becomes the thread's. */
extern const struct memory device_memory;
struct device *device_open(const struct worker *w, int number);
void *device_stream(const struct device *d);

/* call.c: r over NCCL's interface. stream is a cudaStream_t. A function that the library lacks is ncclInvalidUsage. */
ncclResult_t nccl_call(const struct run *r, int rank, int world, struct buffers at, ncclComm_t comm, void *stream);
/* The function that it lacks, or NULL. */
const char *nccl_lacks(const struct run *r);

/* data.c: patterns and the oracle. Every function is pure. */
/* Where the call's pointers are when it runs in place (NCCL's rules). */
struct buffers place(const struct run *r, int rank, struct buffers b);
size_t type_size(ncclDataType_t t);
/* Elements of the send and receive buffer of one rank. */
uint64_t send_count(const struct run *r, int world);
uint64_t recv_count(const struct run *r, int world);
/* Where, in the send buffer of rank s of an alltoallv, the elements for rank d begin. */
uint64_t matrix_offset(const struct run *r, int world, int s, int d);
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
