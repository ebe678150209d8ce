/* Inside libnccl.so.2: what its files share. Nothing here is exported.
 *
 * The front owns what belongs to threads and processes (groups, the last error, loading, fork); the
 * core owns communicators and does the work. The front contains no Go, so that loading it into any
 * program costs nothing and a program that never communicates never starts a Go runtime. */
#ifndef LP_FRONT_H
#define LP_FRONT_H

#include <stdbool.h>

#include "../core/lp_core.h"
#include "lp_nccl_device.h"
#include "nccl.h"

#define LP_ERR_BYTES 1024

/* Defines an entry point: pncclX strong, and ncclX as its weak alias. */
#define LP_API(ret, name, params)                                                              \
  extern __typeof__(name) p##name __attribute__((visibility("default")));                      \
  extern __typeof__(name) name __attribute__((weak, alias("p" #name), visibility("default"))); \
  ret p##name params

/* ---- loader.c ---- */

/* The core, loaded by the first call that needs it. On failure NULL, *why is the result to return
 * and the last error is set. In a child forked after the core was loaded it is always NULL. */
const struct lp_core* lp_core(ncclResult_t* why);
/* True in a child forked after the core was loaded. */
bool lp_forked(void);
/* ncclInvalidUsage with the text that explains it. */
ncclResult_t lp_fail_forked(void);

/* ---- error.c ---- */

/* Sets the last error and returns code. */
ncclResult_t lp_fail(ncclResult_t code, const char* format, ...) __attribute__((format(printf, 2, 3)));
/* The same for a result of the core: success passes, a failure takes its text from err. */
ncclResult_t lp_result(int code, const char* err);
/* Makes the last error usable in a child of fork, whatever other threads were doing. */
void lp_error_after_fork(void);

/* ---- group.c ---- */

/* True inside a group of this thread. */
bool lp_group_open(void);
/* Keeps the first error for the end of the group; returns code. */
ncclResult_t lp_group_note(ncclResult_t code);
/* Queue work for the outermost end. Several communicators may be queued at once (all or none);
 * out[i] receives the handle of inits[i]. */
ncclResult_t lp_group_add_call(const struct lp_call* call);
ncclResult_t lp_group_add_inits(const struct lp_init* inits, ncclComm_t* const* out, size_t n);
/* Queues the end of a communicator, which comes after all calls and creations of the group. */
enum lp_end { LP_FINALIZE, LP_DESTROY };
ncclResult_t lp_group_add_end(ncclComm_t comm, enum lp_end how);
/* Takes what is queued for a communicator that is aborted off the group. */
void lp_group_forget(ncclComm_t comm);

/* ---- quick.c ---- */

enum lp_quick_end {
  LP_QUICK_NOT,  /* nothing has been done */
  LP_QUICK_BEGUN, /* the core must go on with it: run_begun, on this thread */
  LP_QUICK_DONE
};

/* Makes a call that is no part of a group, if it is of those that need no core. One that is BEGUN says
 * about its operator what the core needs. */
enum lp_quick_end lp_quick_run(struct lp_call* call);
/* The gates of all communicators. */
struct lp_gate* lp_gates(void);

/* ---- collectives.c ---- */

/* Runs a call, or queues it where a group is open. */
ncclResult_t lp_submit(struct lp_call* call);

/* ---- env.c ---- */

/* The value of a variable, of the environment or of an nccl.conf file; NULL where it has none. */
const char* lp_env(const char* name);
/* All variables, those of the environment first, then those of files, as NAME=value; ends with NULL.
 * The caller frees the array alone. NULL without memory. */
char** lp_environ(void);

/* ---- memory.c ---- */

/* Makes the memory of ncclMemAlloc known to a core that has just been loaded. */
void lp_memory_tell(const struct lp_core* core);
void lp_memory_after_fork(void);

/* ---- config.c ---- */

/* Checks the configuration of a call (NULL: none) and copies what it asks of Lightpath into call. */
ncclResult_t lp_config_read(const char* function, const ncclCollConfig_t* config, struct lp_call* call);

/* ---- lifecycle.c ---- */

/* Makes communicators now. inits[i].comm goes to *out[i], also where they are still on their way. */
ncclResult_t lp_init_now(struct lp_init* inits, ncclComm_t* const* out, size_t n);
/* Makes communicators now, or when the group of this thread ends. */
ncclResult_t lp_make(struct lp_init* inits, ncclComm_t* const* out, size_t n);
/* Whether a communicator blocks that is configured so: NCCL_COMM_BLOCKING of 0 or 1 comes first, for all. */
int lp_comm_blocking(int configured);
/* Checks a communicator's configuration of any age (NULL: none) and copies to *mine what the caller can
 * have meant; all else is undefined there. */
ncclResult_t lp_comm_config(const char* function, const ncclConfig_t* config, ncclConfig_t* mine);
/* Finalizes or destroys a communicator. */
ncclResult_t lp_end_now(ncclComm_t comm, enum lp_end how);
/* A communicator whose ranks meet by ids. */
ncclResult_t lp_init_rank(const char* function, ncclComm_t* comm, int nranks, const ncclUniqueId* ids, int nids,
                          int rank, const ncclConfig_t* config);

/* Functions of the core's table that need a communicator and nothing else. */
typedef int lp_action(uint64_t comm, char* err, size_t errlen);

static inline uint64_t lp_handle(ncclComm_t comm) { return (uint64_t)(uintptr_t)comm; }

/* ---- unsupported.c ---- */

/* ncclInvalidUsage, saying that function is not implemented and what to use instead. */
ncclResult_t lp_unsupported(const char* function, const char* instead);

#endif
