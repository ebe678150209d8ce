/* A libcuda.so.1 for tests, of host memory and threads: streams, events, memory operations, capture and
 * replay of graphs, and errors on demand. Device memory cannot be touched by the CPU (see memory.c), so
 * that whoever takes a device pointer for a host pointer crashes here as with a driver.
 *
 * What a driver would refuse is refused: calls that must not be made while a stream is captured, pointers
 * and streams of another context, waits that cross captures. */
#ifndef LP_CUDA_STUB_H
#define LP_CUDA_STUB_H

#define _GNU_SOURCE
#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

#include "../driver.h"

#define STUB_API __attribute__((visibility("default")))
#define MAX_DEVICES 8

struct CUctx_st {
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
  bool managed;
  CUcontext ctx;
  /* ipc.c */
  int fd;          /* of memory that can be exported, else -1 */
  ino_t imported;  /* the file that it came from, 0: it is this process's own */
  char *device;    /* of registered memory, whose at is the host's pointer: the one for devices */
};
void stub_add_block(struct block *b);
/* Takes the block that begins there out of the list; NULL where there is none that fits. */
struct block *stub_take_block(CUdeviceptr at, bool (*fits)(const struct block *b));
/* Calls f for the block that has the address, NULL where none has, under the lock of the list. */
void stub_with_block(CUdeviceptr at, void (*f)(struct block *b, void *arg), void *arg);

/* ---- ipc.c ---- */

/* It is the host's pointer to registered memory, which a device may not know. */
bool stub_is_registered(CUdeviceptr at);

/* ---- stream.c ---- */

enum kind { COPY, CALL, WAIT_VALUE, WRITE_VALUE, KERNEL, RECORD, WAIT_EVENT };

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
  char params[256];
  CUevent event; /* RECORD, WAIT_EVENT */
  uint64_t turn; /* of the event */
};

struct CUgraph_st {
  pthread_mutex_t mutex;
  int references;
  uint64_t id;
  CUstream origin;
  int mode; /* CUstreamCaptureMode that it was begun in */
  bool invalid;
  struct op *first, **last;
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
  CUstream next;   /* of all */
};

/* Appends an operation to a stream, or to the graph that it is captured into. */
CUresult stub_submit(CUstream stream, struct op op);
CUstream stub_stream(CUstream stream); /* resolves the default stream; NULL without a context */
CUstream stub_new_stream(CUcontext ctx, bool blocking);
void stub_run(struct op *op);
void stub_leave_capture(CUgraph graph); /* all streams that are captured into it */

CUresult cuEventCreate(CUevent *event, unsigned flags);
CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer);

/* ---- kernel.c ---- */

void stub_run_kernel(const struct op *op);

/* ---- graph.c ---- */

/* True, with the capture invalidated, where a capture forbids this thread calls that may wait. */
bool stub_capture_forbids(void);
void stub_graph_append(CUgraph graph, struct op op);

/* ---- context.c ---- */

/* The error that a test has asked this function for, else CUDA_SUCCESS. */
CUresult stub_injected(const char *function);
CUcontext stub_current(void);
CUresult stub_failed(CUcontext ctx); /* the error that it ended with, else CUDA_SUCCESS */

/* Starts a function of the interface: an injected error ends it. */
#define BEGIN()                                  \
  do {                                           \
    CUresult injected = stub_injected(__func__); \
    if (injected != CUDA_SUCCESS) return injected; \
  } while (0)

#endif
