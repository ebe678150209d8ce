/* The boundary between libnccl.so.2 (cgo/front, pure C) and liblightpath.so (cgo/core, Go).
 *
 * The front loads the core with dlopen and asks it for one function table:
 *   const struct lp_core *lpCoreTable(uint32_t abi);
 * which returns NULL for an abi it does not know. Tables only grow; `size` says how far.
 *
 * All functions return an ncclResult_t value and write, on failure, one NUL-terminated line
 * into err (errlen bytes, may be NULL/0). Handles are opaque 64-bit values (slot and
 * generation), never 0; a stale or foreign handle is ncclInvalidArgument, never a crash.
 * Thread-safe throughout: any thread may call anything. */
#ifndef LP_CORE_H
#define LP_CORE_H

#include <stddef.h>
#include <stdint.h>

#include "lp_quick.h"

#define LP_CORE_ABI 1u
#define LP_UNIQUE_ID_BYTES 128

/* Values of shim.CallKind. */
enum lp_kind {
  LP_ALLREDUCE = 0,
  LP_BROADCAST,
  LP_REDUCE,
  LP_ALLGATHER,
  LP_REDUCESCATTER,
  LP_ALLTOALL,
  LP_GATHER,
  LP_SCATTER,
  LP_SEND,
  LP_RECV,
  /* One-sided: see window and offset. A wait is for count signals of peer. */
  LP_PUT_SIGNAL,
  LP_SIGNAL,
  LP_WAIT_SIGNAL
};

/* One call. type and op are ncclDataType_t and ncclRedOp_t; peer is root or peer. */
struct lp_call {
  uint64_t comm;
  uint32_t kind;
  int32_t type;
  int32_t op;
  int32_t peer;
  uint64_t count;
  const void *send;
  void *recv;
  void *stream;
  /* Options of this call, 0 where it has none; see lightpath.h. */
  uint64_t plan;        /* the leading digits of a plan's digest, in the most significant bits */
  uint32_t plan_digits; /* how many there are, 0 .. 16 */
  uint32_t deadline_us;
  uint64_t planes; /* bit j: plane j may be used */
  /* What an operator of the user (op >= ncclNumOps) stands for. check() fills it in, so that a
   * queued call outlives its operator; 0 leaves it to run(). */
  uint32_t scalar_where; /* enum lp_scalar */
  uint32_t reserved;
  uint64_t scalar;       /* the element, in its first bytes */
  const void *scalar_at; /* where the element is when the call runs */
  /* LP_PUT_SIGNAL: the caller's handle of the window, and the byte of the peer's. */
  uint64_t window, offset;
};

enum lp_scalar { LP_SCALAR_NONE = 0, LP_SCALAR_HERE, LP_SCALAR_AT };

/* Values of shim.How; 0 is a communicator that comes from no other. */
enum lp_how { LP_BY_ID = 0, LP_BY_SPLIT, LP_BY_SHRINK, LP_BY_GROW };

/* One communicator to make. blocking is the config's (0 or 1). name may be NULL. What LP_BY_SPLIT
 * and the others need stands below; of what is above they take blocking, name and, LP_BY_GROW, nranks
 * and id. */
struct lp_init {
  unsigned char id[LP_UNIQUE_ID_BYTES];
  int32_t nranks;
  int32_t rank;
  int32_t device;
  int32_t blocking;
  const char *name;
  uint64_t comm; /* out; 0 where a split has none for this rank */

  uint32_t how;
  uint32_t more_ids;         /* LP_BY_ID: so many ids beyond id, at more */
  const unsigned char *more; /* LP_UNIQUE_ID_BYTES each */
  uint64_t parent;
  int32_t color, key;     /* LP_BY_SPLIT */
  const int32_t *exclude; /* LP_BY_SHRINK: ranks of the parent */
  uint32_t excluded;
  int32_t abort_parent; /* LP_BY_SHRINK: 0 or 1 */
  int32_t has_id;       /* LP_BY_GROW: id is set */
};

/* One message of a group of the other library. */
struct lp_transfer {
  void *at;
  int64_t bytes;
  int32_t peer;
  uint8_t send; /* 0: receive */
};

/* One communicator of the other library to make, on a network of it (NULL: its choice). */
struct lp_other_init {
  unsigned char id[LP_UNIQUE_ID_BYTES];
  int32_t nranks;
  int32_t rank;
  int32_t device;
  const char *name;
  const char *net;
  uint64_t comm; /* out */
};

/* The other libnccl, for collectives that are interposed. Results are those of ncclResult_t. */
struct lp_other {
  int (*unique_id)(unsigned char *id);
  /* All in one group; all or none. */
  int (*make)(struct lp_other_init *inits, size_t n);
  /* Enqueues messages as one group. */
  int (*exchange)(uint64_t comm, const struct lp_transfer *list, size_t n, void *stream);
  int (*async_error)(uint64_t comm);
  int (*abort)(uint64_t comm);
  int (*destroy)(uint64_t comm);
  /* What the library says of a result. */
  void (*words)(int result, char *err, size_t errlen);
};

struct lp_core {
  uint32_t abi;
  uint32_t size; /* of this struct */
  const char *version; /* of Lightpath */

  int (*get_unique_id)(unsigned char *id, char *err, size_t errlen);
  /* Makes n communicators of this process at once (ncclCommInitRank inside a group). */
  int (*init)(struct lp_init *inits, size_t n, char *err, size_t errlen);
  /* Checks the arguments of a call without running it (queued calls), and copies into it what it
   * refers to. */
  int (*check)(struct lp_call *call, char *err, size_t errlen);
  /* Runs calls as one group; returns when all are complete. */
  int (*run)(const struct lp_call *calls, size_t n, char *err, size_t errlen);

  int (*finalize)(uint64_t comm, char *err, size_t errlen);
  int (*destroy)(uint64_t comm, char *err, size_t errlen);
  int (*abort)(uint64_t comm, char *err, size_t errlen);
  int (*count)(uint64_t comm, int32_t *out, char *err, size_t errlen);
  int (*rank)(uint64_t comm, int32_t *out, char *err, size_t errlen);
  int (*device)(uint64_t comm, int32_t *out, char *err, size_t errlen);
  /* *out is the ncclResult_t of the communicator; err carries its message. */
  int (*async_error)(uint64_t comm, int32_t *out, char *err, size_t errlen);

  /* Operators: later says that the scalar is read by the calls and not now. */
  int (*op_create)(uint64_t comm, int32_t type, const void *scalar, int32_t later, int32_t *op, char *err, size_t errlen);
  int (*op_destroy)(uint64_t comm, int32_t op, char *err, size_t errlen);

  /* Says where the core finds the variables that it reads, in an array that it frees, of strings
   * that it does not. Called once, before anything else: a Go library sees the environment that the
   * process began with, not what the program has set since. */
  void (*use_environ)(char **(*all)(void));

  /* Memory of ncclMemAlloc: fd is its file, which it begins, or -1. memory_remove comes before it is
   * freed, and is ncclInvalidUsage while some of it is registered. */
  void (*memory_add)(const void *base, size_t size, int fd);
  int (*memory_remove)(const void *base, char *err, size_t errlen);
  /* Registrations of buffers and windows. reg_find writes where the buffer is, and with end
   * deregisters it. */
  int (*reg)(uint64_t comm, void *buff, size_t size, int window, int flags, uint64_t *handle, char *err, size_t errlen);
  int (*reg_find)(uint64_t comm, uint64_t handle, int window, int end, void **buff, char *err, size_t errlen);

  /* Writes how many microseconds calls would take as one group, and runs nothing. */
  int (*simulate)(const struct lp_call *calls, size_t n, double *us, char *err, size_t errlen);
  int (*revoke)(uint64_t comm, char *err, size_t errlen);
  int (*suspend)(uint64_t comm, char *err, size_t errlen);
  int (*resume)(uint64_t comm, char *err, size_t errlen);
  /* The id by which others join what grows out of comm. */
  int (*grow_id)(uint64_t comm, unsigned char *id, char *err, size_t errlen);
  /* *out is 1 where calls on comm block, else 0; also while comm is being made. */
  int (*blocking)(uint64_t comm, int32_t *out, char *err, size_t errlen);
  /* stat is an ncclCommMemStat_t. */
  int (*mem_stats)(uint64_t comm, int32_t stat, uint64_t *value, char *err, size_t errlen);

  /* Says where the gates are (LP_GATES), once, before any communicator is made. They are never freed. */
  void (*use_gates)(struct lp_gate *gates);
  /* Goes on with a call that came through a gate and left it BEGUN; by the thread that did. */
  int (*run_begun)(const struct lp_call *call, char *err, size_t errlen);

  /* Has collectives on streams of communicators that have just been made interposed, where there is something to
   * interpose. other lives as long as the process. */
  int (*interpose)(const uint64_t *comms, size_t n, const struct lp_other *other, char *err, size_t errlen);
  /* *yes tells whether a call is interposed: run() then puts it on its stream, else it is for the other
   * library as it is. Checks it like check(), and may wait for its plan. */
  int (*interposes)(struct lp_call *call, int32_t *yes, char *err, size_t errlen);

  /* Memory of ncclMemAlloc on the device of the thread's context; *out is NULL where it has none. device_free writes to
   * *known whether at is such memory, and is ncclInvalidUsage while some of it is registered. */
  int (*device_alloc)(size_t size, void **out, char *err, size_t errlen);
  int (*device_free)(void *at, int32_t *known, char *err, size_t errlen);
};

#endif
