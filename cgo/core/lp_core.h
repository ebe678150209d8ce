/* The boundary between libnccl.so.2 (cgo/front, pure C) and liblightpath.so (cgo/core, Go).
 *
 * The front loads the core with dlopen and asks it for one table of functions:
 *   const struct lp_core *lpCoreTable(uint32_t abi);
 * which returns NULL for another abi than LP_CORE_ABI: one whose tables do not begin with version. The front takes the
 * core of its own build only, so the rest of the table may change with every build.
 *
 * All functions return an ncclResult_t. On failure they write one line, with NUL at its end, into err (errlen bytes,
 * may be NULL and 0). Handles are 64-bit values, never 0. A stale handle is ncclInvalidArgument, never a crash. Any
 * thread may call any function. */
#ifndef LP_CORE_H
#define LP_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lp_types.h"

#define LP_CORE_ABI 2u
#define LP_UNIQUE_ID_BYTES 128

/* Gates are in the front's memory, by the last 16 bits of a handle modulo this number. A communicator whose gate is
 * taken has none. LP_GATE_BUSY is lp_gate.word while C is inside. */
#define LP_GATES 1024
#define LP_GATE_BUSY 1u

/* One communicator to make. blocking is 0 or 1. name may be NULL. The fields after comm are for communicators made from
 * others, which use of the fields before only blocking, name and, LP_BY_GROW, nranks and id. */
struct lp_init {
  unsigned char id[LP_UNIQUE_ID_BYTES];
  int32_t nranks;
  int32_t rank;
  int32_t device;
  int32_t blocking;
  const char *name;
  uint64_t comm; /* out; 0 if a split makes none for this rank */

  uint32_t how;
  uint32_t more_ids;         /* LP_BY_ID: the number of ids at more, beyond id */
  const unsigned char *more; /* LP_UNIQUE_ID_BYTES each */
  uint64_t parent;
  int32_t color, key;     /* LP_BY_SPLIT */
  const int32_t *exclude; /* LP_BY_SHRINK: ranks of the parent */
  uint32_t excluded;
  bool abort_parent;      /* LP_BY_SHRINK */
  bool has_id;            /* LP_BY_GROW: id is set */
};

/* One communicator of the other library to make, on one of its networks (net; NULL: its choice). */
struct lp_other_init {
  unsigned char id[LP_UNIQUE_ID_BYTES];
  int32_t nranks;
  int32_t rank;
  int32_t device;
  const char *name;
  const char *net;
  uint64_t comm; /* out */
};

/* The other libnccl, for interposed collectives. Functions return its ncclResult_t. */
struct lp_other {
  int (*unique_id)(unsigned char *id);
  /* Makes all in one group, or none. */
  int (*make)(struct lp_other_init *inits, size_t n);
  /* Enqueues messages as one group. */
  int (*exchange)(uint64_t comm, const struct lp_transfer *list, size_t n, void *stream);
  int (*async_error)(uint64_t comm);
  int (*abort)(uint64_t comm);
  int (*destroy)(uint64_t comm);
  /* Writes the library's text for a result. */
  void (*text)(int result, char *err, size_t errlen);
};

struct lp_core {
  const char *version; /* of Lightpath, and the digest of this interface */

  int (*get_unique_id)(unsigned char *id, char *err, size_t errlen);
  /* Makes n communicators of this process at once (ncclCommInitRank inside a group). */
  int (*init)(struct lp_init *inits, size_t n, char *err, size_t errlen);
  /* Checks the arguments of a call without running it, and copies an operator's factor into it. For queued calls. */
  int (*check)(struct lp_call *call, char *err, size_t errlen);
  /* Runs calls as one group. Returns when all are complete. */
  int (*run)(const struct lp_call *calls, size_t n, char *err, size_t errlen);

  /* Does LP_FINALIZE, LP_DESTROY, ... to a communicator. */
  int (*act)(uint64_t comm, int32_t act, char *err, size_t errlen);
  /* Answers LP_ASK_RANKS, ... of a communicator. */
  int (*ask)(uint64_t comm, int32_t question, int32_t *out, char *err, size_t errlen);
  /* *out is the communicator's ncclResult_t, and err its message. */
  int (*async_error)(uint64_t comm, int32_t *out, char *err, size_t errlen);

  /* Operators. later: calls read the scalar, not this one. */
  int (*op_create)(uint64_t comm, int32_t type, const void *scalar, bool later, int32_t *op, char *err, size_t errlen);
  int (*op_destroy)(uint64_t comm, int32_t op, char *err, size_t errlen);

  /* Tells the core how to get the variables: all returns an array that the core frees, of strings that it does not.
   * Called once, before any other function. A Go library sees the environment of the process's start, not later
   * changes. */
  void (*use_environ)(char **(*all)(void));

  /* Memory of ncclMemAlloc. fd is its file, which it begins, or -1. memory_remove is called before the memory is
   * freed. It returns ncclInvalidUsage while some of it is registered. */
  void (*memory_add)(const void *base, size_t size, int fd);
  int (*memory_remove)(const void *base, char *err, size_t errlen);
  /* Registrations of buffers and windows. reg_find writes where the buffer is; with end it deregisters the buffer. */
  int (*reg)(uint64_t comm, void *buff, size_t size, bool window, int flags, uint64_t *handle, char *err,
             size_t errlen);
  int (*reg_find)(uint64_t comm, uint64_t handle, bool window, bool end, void **buff, char *err, size_t errlen);

  /* Writes the predicted microseconds of calls as one group. Runs none. */
  int (*simulate)(const struct lp_call *calls, size_t n, double *us, char *err, size_t errlen);
  /* Writes the id by which new ranks join a communicator that grows from comm. */
  int (*grow_id)(uint64_t comm, unsigned char *id, char *err, size_t errlen);
  /* stat is an ncclCommMemStat_t. */
  int (*mem_stats)(uint64_t comm, int32_t stat, uint64_t *value, char *err, size_t errlen);

  /* Tells the core where the LP_GATES gates are, once, before any communicator is made. They are never freed. */
  void (*use_gates)(struct lp_gate *gates);
  /* Continues a call that has filled its slot through a gate. Called by the same thread. */
  int (*run_begun)(const struct lp_call *call, char *err, size_t errlen);

  /* Interposes collectives on streams of communicators that have just been made, if there is anything to interpose.
   * other stays valid as long as the process. */
  int (*interpose)(const uint64_t *comms, size_t n, const struct lp_other *other, char *err, size_t errlen);
  /* *yes tells whether a call is interposed: then run() puts it on its stream, else the other library makes it.
   * Checks the call like check(), and may wait for its plan. */
  int (*interposes)(struct lp_call *call, bool *yes, char *err, size_t errlen);

  /* Memory of ncclMemAlloc on the device of the thread's context; *out is NULL if the thread has none. device_free
   * writes to *known whether at is such memory. It returns ncclInvalidUsage while some of it is registered. */
  int (*device_alloc)(size_t size, void **out, char *err, size_t errlen);
  int (*device_free)(void *at, bool *known, char *err, size_t errlen);
};

#endif
