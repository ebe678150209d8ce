/* Internal: declarations that the files of libnccl.so.2 share. Nothing here is exported.
 *
 * The front owns the state of threads and processes: groups, the last error, loading the core, fork. The core owns the
 * communicators and does the work. The front contains no Go: loading it starts no Go runtime, so a program that never
 * communicates never has one. README.md says which file does what, and which may call which. */
#ifndef LP_FRONT_H
#define LP_FRONT_H

#include <stdbool.h>

#include "../core/lp_core.h"
#include "lp_nccl_device.h"
#include "nccl.h"

#define LP_ERR_BYTES 1024

/* Defines an entry point: pncclX, and ncclX as its weak alias. */
#define LP_API(ret, name, params)                                                              \
  extern __typeof__(name) p##name __attribute__((visibility("default")));                      \
  extern __typeof__(name) name __attribute__((weak, alias("p" #name), visibility("default"))); \
  ret p##name params

static inline uint64_t lp_handle(ncclComm_t comm) { return (uint64_t)(uintptr_t)comm; }
static inline ncclComm_t lp_comm(uint64_t handle) { return (ncclComm_t)(uintptr_t)handle; }

/* ---- error.c ---- */

/* Sets the last error and returns code. */
ncclResult_t lp_fail(ncclResult_t code, const char* format, ...) __attribute__((format(printf, 2, 3)));
/* Returns the core's result code. A failure becomes the last error, with the text err. */
ncclResult_t lp_result(int code, const char* err);
/* Frees the lock of the last error in a child of fork, which has none of the parent's threads. */
void lp_error_after_fork(void);

/* ---- env.c ---- */

/* The value of a variable, from the environment or an nccl.conf file; NULL if it has none. */
const char* lp_env(const char* name);
/* All variables as NAME=value, those of the environment first; ends with NULL. The caller frees the array, not the
 * strings. NULL if there is no memory. */
char** lp_environ(void);

/* ---- regions.c: the allocations of ncclMemAlloc ---- */

/* Allocates a region. NULL if there is no memory. */
void* lp_region_alloc(size_t size);
/* Frees a region. A pointer that is none, or a region that is registered, is an error. */
ncclResult_t lp_region_free(void* base);
/* Tells a core that has just been loaded which regions there are; from now on it learns of each change. */
void lp_regions_tell(const struct lp_core* core);
void lp_regions_after_fork(void);

/* ---- quick.c ---- */

enum lp_quick_end {
  LP_QUICK_NOT,   /* nothing has been done: the core makes the call */
  LP_QUICK_BEGUN, /* this rank's slot is filled: the core continues the call (run_begun), on this thread */
  LP_QUICK_DONE
};

/* Makes a call that is not in a group, if C can. A call that is BEGUN says where its operator's scalar is. */
enum lp_quick_end lp_quick_run(struct lp_call* call);
/* The gates of all communicators, LP_GATES of them. */
struct lp_gate* lp_gates(void);

/* ---- loader.c ---- */

/* The core; the first call loads it. On failure NULL: *why is the result to return, and the last error is set. In a
 * child that was forked after the core was loaded it is always NULL. */
const struct lp_core* lp_core(ncclResult_t* why);
/* In a child that was forked after the core was loaded: ncclInvalidUsage, with the text that explains it. */
ncclResult_t lp_check_fork(void);

/* Makes a call of the core's table, with the arguments before err. Its value is the result; a failure becomes the last
 * error. */
#define LP_CORE(FUNCTION, ...)                                                             \
  ({                                                                                       \
    char err_[LP_ERR_BYTES];                                                               \
    ncclResult_t rc_;                                                                      \
    const struct lp_core* core_ = lp_core(&rc_);                                           \
    err_[0] = '\0';                                                                        \
    core_ == NULL ? rc_ : lp_result(core_->FUNCTION(__VA_ARGS__, err_, sizeof err_), err_); \
  })

/* ---- group.c: the calls that a thread has queued ---- */

enum lp_group_kind { LP_GROUP_UNKNOWN, LP_GROUP_BLOCKING, LP_GROUP_NONBLOCKING };

/* The end of a communicator. */
struct lp_pending_end {
  ncclComm_t comm;
  int32_t how; /* LP_FINALIZE or LP_DESTROY */
};

/* The open group of this thread. Only group.c writes to the lists. */
struct lp_group {
  int depth;
  ncclResult_t error; /* the first, else ncclSuccess */
  enum lp_group_kind kind;
  struct lp_call* calls;
  struct lp_init* inits;
  ncclComm_t** out;            /* out[i] receives the handle of inits[i] */
  struct lp_pending_end* ends; /* at most one for each communicator */
  size_t call_count, init_count, end_count;
};

struct lp_group* lp_group(void);
/* Whether this thread has a group open. */
bool lp_group_open(void);
/* Keeps the first error for the end of the group. Returns code. */
ncclResult_t lp_group_note(ncclResult_t code);
/* Refuses a call that a group can hold: ncclInvalidArgument, with that text. */
#define LP_REFUSE(...) lp_group_note(lp_fail(ncclInvalidArgument, __VA_ARGS__))
/* The error of a group for whose calls there is no memory. */
ncclResult_t lp_group_no_memory(void);
/* Queue a call, or communicators to make: all or none. */
ncclResult_t lp_group_add_call(const struct lp_call* call);
ncclResult_t lp_group_add_inits(const struct lp_init* inits, ncclComm_t* const* out, size_t n);
/* Queues the end of a communicator, which follows all calls and inits of the group. */
ncclResult_t lp_group_add_end(ncclComm_t comm, int32_t how);
/* Whether the group ends a communicator. */
bool lp_group_ends(uint64_t comm);
/* Removes what is queued for a communicator. */
void lp_group_forget(ncclComm_t comm);
/* Empties the group. */
void lp_group_reset(void);

/* ---- config.c ---- */

/* Checks a call's configuration (may be NULL) and copies its options to call. */
ncclResult_t lp_config_read(const char* function, const ncclCollConfig_t* config, struct lp_call* call);
/* Checks a communicator's configuration of any version (may be NULL) and copies to *mine the fields that its caller
 * knew; the others are undefined. */
ncclResult_t lp_comm_config(const char* function, const ncclConfig_t* config, ncclConfig_t* mine);
/* Whether a communicator blocks that is configured so. NCCL_COMM_BLOCKING, if it is 0 or 1, overrides the
 * configuration. */
int lp_comm_blocking(int configured);

/* ---- comm.c ---- */

/* Makes communicators now. *out[i] receives inits[i].comm, also while they are being made in the background. */
ncclResult_t lp_init_now(struct lp_init* inits, ncclComm_t* const* out, size_t n);
/* Makes communicators now, or when the group of this thread ends. */
ncclResult_t lp_make(struct lp_init* inits, ncclComm_t* const* out, size_t n);
/* Does LP_FINALIZE, LP_DESTROY or LP_ABORT in both libraries. */
ncclResult_t lp_end_now(ncclComm_t comm, int32_t how);
/* Makes a communicator whose ranks meet by ids. */
ncclResult_t lp_init_rank(const char* function, ncclComm_t* comm, int nranks, const ncclUniqueId* ids, int nids,
                          int rank, const ncclConfig_t* config);

/* ---- collectives.c ---- */

/* Runs a call, or queues it if a group is open. */
ncclResult_t lp_submit(struct lp_call* call);

#endif
