/* A libcuda.so.1 for tests, of host memory and threads: streams, events, memory operations, capture and replay of
 * graphs, and errors on demand. Device memory cannot be touched by the CPU (see memory.c), so that whoever takes a
 * device pointer for a host pointer crashes here as with a driver.
 *
 * What a driver may refuse is refused: calls that must not be made while a stream is captured or out of a host
 * function, pointers and streams of another context, waits that cross captures, forks of a capture that do not
 * join, words in memory that the driver does not know. What a driver may do it does: a graph's nodes run in any
 * order that its edges allow, copies of memory that is not page-locked hold the caller up, and so does a stream
 * that has much to do. */
#ifndef LP_CUDA_STUB_H
#define LP_CUDA_STUB_H

#define _GNU_SOURCE
#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

#include "../driver.h"

#define STUB_API __attribute__((visibility("default")))
#define MAX_DEVICES 16

struct CUctx_st {
  unsigned long long id; /* from 1 */
  CUdevice device;
  CUstream legacy; /* the default stream */
  bool reaches[MAX_DEVICES]; /* others' memory */
  CUresult error;            /* that it ended with: nothing runs in it any more */
};

/* ---- memory.c ---- */

/* Where the CPU of the stub reaches size bytes at a pointer of any kind; NULL where they are not all of one
 * live allocation of the device and not host memory. */
void *stub_reach(CUdeviceptr at, size_t size);

/* A device's or page-locked memory, as it was allocated, registered or imported. */
struct block {
  struct block *next;
  char *at;    /* what the program sees */
  char *alias; /* where it can be reached */
  size_t size;
  int type; /* CUmemorytype */
  uint64_t id; /* that no other block has had */
  bool managed;
  CUcontext ctx;
  /* ipc.c */
  int fd;          /* of memory that can be exported, else -1 */
  ino_t imported;  /* the file that it came from, 0: it is this process's own */
  int opened;      /* how often it has been, and not closed */
  char *device;    /* of registered memory, whose at is the host's pointer: the one for devices */
};
void stub_add_block(struct block *b);
/* Takes the block that begins there out of the list; NULL where there is none that fits. */
struct block *stub_take_block(CUdeviceptr at, bool (*fits)(const struct block *b));
/* Calls f for all blocks, until it returns true, under the same lock. */
void stub_each_block(bool (*f)(struct block *b, void *arg), void *arg);
bool stub_knows(CUdeviceptr at); /* it is no host memory that only the program knows */
/* Calls f for the block that has the address, NULL where none has, under the lock of the list. */
void stub_with_block(CUdeviceptr at, void (*f)(struct block *b, void *arg), void *arg);

/* ---- ipc.c ---- */

/* It is the host's pointer to registered memory, which a device may not know. */
bool stub_is_registered(CUdeviceptr at);

/* ---- stream.c ---- */

enum kind { COPY, CALL, WAIT_VALUE, WRITE_VALUE, KERNEL, GRAPH, RECORD, WAIT_EVENT };

struct op {
  struct op *next;
  enum kind kind;
  void *dst; /* COPY; also the word of WAIT_VALUE and WRITE_VALUE */
  const void *src;
  size_t size;
  CUhostFn fn; /* CALL */
  void *data;
  uint32_t value; /* WAIT_VALUE, WRITE_VALUE */
  unsigned flags;
  const struct ptx_function *function; /* KERNEL */
  unsigned blocks, threads;
  char params[1024];
  CUgraphExec graph; /* GRAPH: a reference */
  CUevent event;     /* RECORD, WAIT_EVENT */
  uint64_t turn; /* of the event */
};

/* Nodes of a graph: those that what a captured stream is given next depends on, or what an event stands for. */
struct nodes {
  struct node **all;
  size_t n;
};

struct node {
  struct op op;
  struct nodes after; /* that it depends on */
  size_t index;       /* in its graph: above those of what it depends on */
};

struct CUgraph_st {
  pthread_mutex_t mutex;
  int references;
  uint64_t id;
  CUstream origin;
  int mode; /* CUstreamCaptureMode that it was begun in */
  bool invalid;
  struct nodes nodes; /* all, in the order of their making */
  struct object { struct object *next; CUhostFn destroy; void *data; } *objects;
};

struct CUstream_st {
  CUcontext ctx;
  bool blocking; /* ordered with the default stream */
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  struct op *first, **last;
  uint64_t queued, done; /* operations */
  bool ended;
  CUgraph capture; /* NULL while none */
  struct nodes at; /* of the capture */
  CUstream next;   /* of all */
};

/* Appends an operation to a stream, or to the graph that it is captured into. */
CUresult stub_submit(CUstream stream, struct op op);
CUstream stub_stream(CUstream stream); /* resolves the default streams; NULL without a context */
/* CUDA_SUCCESS where the stream can be used: it has not been destroyed, and is no default stream that a capture
 * makes unusable. */
CUresult stub_usable(CUstream stream);
void stub_drain(CUstream stream); /* waits for all that it has been given */
CUstream stub_new_stream(CUcontext ctx, bool blocking);
/* Does it, unless its context has failed. False where it waits for a value that is not there, and may not block. */
bool stub_run(struct op *op, CUcontext ctx, bool block);
void stub_drain_context(CUcontext ctx);       /* waits for all that its streams have been given */
void stub_leave_capture(CUgraph graph); /* all streams that are captured into it */

CUresult cuEventCreate(CUevent *event, unsigned flags);
CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer);

/* ---- kernel.c ---- */

void stub_run_kernel(const struct op *op);

/* ---- graph.c ---- */

/* True, with the capture invalidated, where a capture forbids this thread calls that may wait. */
bool stub_capture_forbids(void);
bool stub_any_capture(void); /* whether some capture is in progress */
void stub_graph_append(CUstream stream, struct op op); /* to the graph that it is captured into */
void stub_graph_run(CUgraphExec exec, CUcontext ctx);  /* once, and gives the reference back */
CUgraph stub_capturing(uint64_t id);                   /* the capture with this number, NULL where it has ended */
void stub_add_nodes(struct nodes *to, const struct nodes *some);
void stub_clear_nodes(struct nodes *n);

/* ---- context.c ---- */

int stub_version(void);                   /* of CUDA, that the driver is for: 12040 is 12.4 */
int stub_architecture(CUdevice device);   /* 90 is sm_90 */

/* The error that a test has asked this function for, else CUDA_SUCCESS. */
CUresult stub_injected(const char *function);
CUcontext stub_current(void);
CUresult cuCtxPushCurrent_v2(CUcontext ctx);
CUresult stub_failed(CUcontext ctx); /* the error that it ended with, else CUDA_SUCCESS */
void stub_call_back(CUhostFn fn, void *data); /* which may not call the driver */

/* Starts a function of the interface: an injected error ends it. */
#define BEGIN()                                  \
  do {                                           \
    CUresult injected = stub_injected(__func__); \
    if (injected != CUDA_SUCCESS) return injected; \
  } while (0)

#endif
