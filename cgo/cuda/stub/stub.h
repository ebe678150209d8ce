/* A libcuda.so.1 for tests, made of host memory and threads: streams, events, memory operations, capture and replay
 * of graphs, and errors on demand. The CPU cannot access device memory (see block.c), so code that takes a device
 * pointer for a host pointer crashes, as with a driver.
 *
 * The stub refuses everything that a driver may refuse: forbidden calls during a capture or in a host function,
 * pointers and streams of another context, and waits across captures. It also refuses forks of a capture that do not
 * join, and words in unknown memory. It uses the freedom that a driver has. A graph's nodes run in any order that its
 * edges allow. A caller waits for copies of memory that is not page-locked, and for a stream with a full queue.
 *
 * Calls go down these layers only:
 *
 *   cu_*.c                           functions of the interface; cu_capture.c lies below the others
 *   begin.c                          what each does first: the context's lock, errors on demand
 *   stream.c, queue.c, run.c         operations: enqueued, in threads, run
 *   clock.c, graph.c, ptx_run.c      what operations cost, the nodes of graphs, kernels
 *   block.c, context.c, turn.c, ptx_parse.c, cubin.c */
#ifndef LP_CUDA_STUB_H
#define LP_CUDA_STUB_H

#define _GNU_SOURCE
#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

#include "../driver.h"

#define STUB_API __attribute__((visibility("default")))
#define MAX_DEVICES 16
#define MAX_QUEUES 32
#define KEY_SHIFT 36 /* a key is the number of a file and an offset in it */

enum copy_kind { COPY_OUT, COPY_IN, COPY_ANY, COPY_ROWS, COPIES };

struct CUctx_st {
  unsigned long long id; /* from 1 */
  CUdevice device;
  CUstream legacy; /* the default stream */
  bool reaches[MAX_DEVICES]; /* memory of these devices */
  CUresult error;            /* with which it failed: nothing runs in it any more */
  pthread_mutex_t lock;      /* begin.c */
  bool copied[COPIES];       /* kinds of copies that it has had */
  struct queue *queues[MAX_QUEUES]; /* queue.c */
  unsigned streams;                 /* how many have got one */
};

/* ---- turn.c ---- */

/* Waits for this process's turn on the device, if processes take turns. The thread keeps it until stub_end_turn. */
void stub_take_turn(CUdevice device);
void stub_end_turn(void); /* before the thread waits for anything */

void stub_in_turn(CUdevice device, uint64_t end); /* an operation of the turn ends then */
uint64_t stub_turn_began(CUdevice device);

/* ---- context.c ---- */

CUcontext stub_current(void);
void stub_set_current(CUcontext ctx);
CUresult stub_failed(CUcontext ctx); /* its error, else CUDA_SUCCESS */
void stub_call_back(CUhostFn fn, void *data); /* the function may not call the driver */
bool stub_called_back(void); /* this thread runs a host function */

int stub_devices(void);
int stub_version(void);                   /* of CUDA: 12040 is 12.4 */
int stub_architecture(CUdevice device);   /* 90 is sm_90 */
bool stub_peers(void);                    /* devices reach each other */

/* ---- block.c ---- */

/* Device or page-locked memory, as it was allocated, registered or imported. */
struct block {
  struct block *next;
  char *at;    /* what the program sees */
  char *alias; /* where the stub accesses it */
  size_t size;
  int type; /* CUmemorytype */
  uint64_t id; /* unique */
  bool managed;
  CUcontext ctx;
  CUdevice home; /* whose memory it is */
  uint64_t key;  /* of its first byte, in all processes */
  /* cu_ipc.c */
  int fd;          /* if the memory can be exported, else -1 */
  ino_t imported;  /* the file that it came from, 0: this process's memory */
  int opened;      /* how often it has been opened, less closed */
  uint32_t *freed; /* in a page that importers share; NULL: it cannot be shared. The words after it: its device, and how
                    * many kernels of other contexts have used it */
  pid_t owner;     /* of imported memory: the process, and its address there */
  const char *theirs;
  /* cu_mapped.c */
  struct piece *piece; /* of mapped memory, else NULL */
  unsigned granted;    /* bit mask of the devices that may access it */
  char *device;    /* of registered memory: the pointer for devices; at is the host's */
};
void stub_add_block(struct block *b);
/* Removes the block that begins there from the list. NULL if there is none. */
struct block *stub_take_block(CUdeviceptr at, bool (*fits)(const struct block *b));
/* Copies the block that holds the address. Returns false if there is none: only the program knows the memory. */
bool stub_find(CUdeviceptr at, struct block *found);
/* Calls f, under the list's lock, for the block that holds the address; NULL if there is none. */
void stub_with_block(CUdeviceptr at, void (*f)(struct block *b, void *arg), void *arg);
/* Calls f for all blocks, under the list's lock, until it returns true. */
void stub_each_block(bool (*f)(struct block *b, void *arg), void *arg);

/* Where the stub accesses size bytes at a pointer of any kind. NULL unless they are host memory, or all in one live
 * allocation of a device. */
void *stub_reach(CUdeviceptr at, size_t size);
int stub_home(CUdeviceptr at); /* the device whose memory it is, -1 for the host */
/* The number of a word in all processes, and whether it is in memory of the host. */
uint64_t stub_key(CUdeviceptr at, bool *of_host);
bool stub_may_touch(struct block *b);  /* false, with a message, if its owner has freed it */

/* A memory file of device memory, with a page for the word freed behind it. Returns -1 if there is none. */
int stub_new_file(size_t size, ino_t *number);
/* Maps the file, and sets alias, at and freed. The block has its size. at is a new address, unless it is set. */
void stub_map_file(struct block *b, int fd);
size_t stub_room(size_t size);         /* whole pages */

/* ---- Operations ---- */

enum kind { COPY, CALL, WAIT_VALUE, WRITE_VALUE, KERNEL, GRAPH, RECORD, WAIT_EVENT };

struct op {
  struct op *next;
  CUstream stream;
  enum kind kind;
  void *dst; /* COPY; also the word of WAIT_VALUE and WRITE_VALUE */
  const void *src;
  size_t size;
  size_t rows, dst_pitch, src_pitch; /* of a copy of rows of size bytes */
  CUhostFn fn; /* CALL */
  void *data;
  uint32_t value; /* WAIT_VALUE, WRITE_VALUE */
  unsigned flags;
  const struct ptx_function *function; /* KERNEL */
  unsigned blocks, threads;
  char params[4096];
  CUgraphExec graph; /* GRAPH: a reference */
  CUevent event;     /* RECORD, WAIT_EVENT */
  struct recording *record; /* of the event */
  /* clock.c */
  CUdeviceptr dst_at, src_at; /* COPY: as the program sees them */
  uint64_t key;               /* of the word, in all processes */
  bool of_host, in_graph;     /* the word is in memory of the host; the operation is a node */
  uint64_t issued, begun, end; /* ns */
};

/* Nodes of a graph: those before the next operation of a captured stream, or before an event. */
struct nodes {
  struct node **all;
  size_t n;
};

struct node {
  struct op op;
  struct nodes after; /* the nodes that it depends on */
  size_t index;       /* in its graph: greater than those of nodes that it depends on */
};

struct CUgraph_st {
  pthread_mutex_t mutex;
  int references;
  uint64_t id;
  CUstream origin;
  int mode; /* CUstreamCaptureMode */
  pthread_t thread; /* that began the capture */
  bool invalid;
  struct nodes nodes; /* all, in the order of their creation */
  struct object { struct object *next; CUhostFn destroy; void *data; } *objects;
};

/* A graph that can be launched. It runs once at a time. */
struct CUgraphExec_st {
  CUgraph graph;
  int references; /* atomic */
  bool in_order; /* its context has a single queue */
  pthread_mutex_t running;
};

struct CUstream_st {
  CUcontext ctx;
  uint64_t id; /* of no other stream */
  bool blocking; /* ordered with the default stream */
  struct queue *queue;
  uint64_t queued, done; /* operations; guarded by the queue's mutex */
  uint64_t now;          /* when the last ended, on the virtual clock */
  bool ended;
  CUgraph capture; /* NULL while none */
  struct nodes at; /* of the capture */
  CUstream next;   /* of all */
};

/* ---- clock.c ---- */

/* Calls that a thread has made of the driver. */
enum { STUB_FUNCTIONS = 48 };
struct stub_counts {
  uint64_t memory_operations;
  struct { const char *function; uint64_t calls; } of[STUB_FUNCTIONS];
};

bool stub_clock(void); /* whether there is one */
uint64_t stub_host_now(void);               /* of this thread */
void stub_host_reached(uint64_t at);        /* it has seen something that happened then */
void stub_time(struct op *op, CUcontext ctx); /* sets end; begun is set */
void stub_stamp(struct op *op);             /* its words are written at its end */
bool stub_skips(size_t bytes);              /* copies and kernels of so many bytes move nothing */
size_t stub_kernel_bytes(const struct op *op);

void stub_made_context(void);
void stub_loaded(bool code, size_t bytes); /* a module of machine code or text */
void stub_first_launch(bool *had);         /* of a function: sets the flag */
void stub_count_call(const char *function);
void stub_count_word(void);
const struct stub_counts *stub_counts(void); /* of this thread */
void stub_interval(const struct stub_counts *from, const struct stub_counts *to); /* reports the difference */

/* One recording of an event. A wait is for the recording that was the last one then: a later one on another stream may
 * be reached first. The event's mutex guards it. */
struct recording {
  int users; /* the event while it is the last one, its operation, and waits */
  bool reached;
  struct timespec at; /* when it was reached */
  uint64_t now;       /* of the virtual clock, at that time */
};

struct CUevent_st {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  struct recording *last; /* NULL: it was never recorded */
  CUcontext ctx;
  struct stub_counts counts; /* of the thread, when it was recorded */
  bool destroyed;
  uint64_t capture;    /* the capture that it was last recorded in, 0: none */
  struct nodes before; /* of that capture: the nodes before it */
};

/* ---- graph.c ---- */

void stub_capture(CUstream stream, struct op op); /* appends it to the graph that the stream is captured into */
void stub_add_nodes(struct nodes *to, const struct nodes *some);
void stub_clear_nodes(struct nodes *n);
void stub_release_graph(CUgraph g);
void stub_release_exec(CUgraphExec exec);

/* ---- run.c ---- */

/* Runs an operation, unless its context has failed. Returns false if it must wait for a value and may not block. */
bool stub_run(struct op *op, CUcontext ctx, bool block);

/* ---- queue.c ---- */

/* Gives a new stream a queue: its own one, or one of its context's. */
void stub_join_queue(CUstream s);
void stub_leave_queue(CUstream s); /* when the stream's operations have run */
/* Appends an operation. It waits for room in the queue, unless full is set. */
void stub_append(CUstream s, struct op op, bool full);
void stub_drain(CUstream s); /* waits for all its operations */
bool stub_busy(CUstream s);
bool stub_one_queue(void); /* contexts have a single queue */

/* ---- stream.c ---- */

CUstream stub_new_stream(CUcontext ctx, bool blocking);
CUstream stub_stream(CUstream stream); /* resolves the default streams; NULL without a context */
/* CUDA_SUCCESS if the stream can be used: it has not been destroyed, and no capture makes it unusable. */
CUresult stub_usable(CUstream stream);
/* stub_usable for an operation: it invalidates that capture, and the stream must be of the current context. */
CUresult stub_enqueues(CUstream stream);
/* Appends an operation to a stream, or to the graph that it is captured into. */
CUresult stub_submit(CUstream stream, struct op op);
CUevent stub_new_event(CUcontext ctx);
struct recording *stub_record(CUevent e);   /* a new recording, for its operation */
struct recording *stub_recorded(CUevent e); /* the last recording, for a wait; NULL: there is none */
void stub_drop(struct recording *r);        /* ends a use; the event's mutex is held */
void stub_drain_context(CUcontext ctx);       /* waits for all operations of its streams */
void stub_leave_capture(CUgraph graph); /* ends the capture of all its streams */

/* ---- begin.c ---- */

/* Takes the context's lock for a function of the interface, if the settings want it, and waits for the device where
 * the function does. *held is for stub_unlock. Returns an error that ends the function. */
CUresult stub_begin(const char *function, CUcontext *held);
void stub_unlock(CUcontext *held);
/* Makes the first call with this flag wait for the device. */
void stub_first(const char *function, CUcontext ctx, bool *had);
/* Waits for a stream without the context's lock. */
void stub_drain_unlocked(CUstream s);

/* Starts a function of the interface: an injected error ends it. The context's lock is held until it returns. */
#define BEGIN()                                                   \
  __attribute__((cleanup(stub_unlock))) CUcontext held_ = NULL;   \
  CUresult begun_ = stub_begin(__func__, &held_);                 \
  if (begun_ != CUDA_SUCCESS) return begun_

/* ---- cu_capture.c ---- */

/* Whether a capture forbids this thread calls that may wait; if so, it invalidates the capture. */
bool stub_capture_forbids(void);
CUgraph stub_capturing(uint64_t id); /* the capture with this id, NULL if it has ended */

#endif
