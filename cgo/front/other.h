/* The other libnccl, which LIGHTPATH_NCCL_FALLBACK_LIB names, and the calls that it makes instead of Lightpath. */
#ifndef LP_OTHER_H
#define LP_OTHER_H

#include "front.h"

/* ---- other.c: the library ---- */

/* Whether there is one. All functions below do nothing, or answer no, if there is none. */
bool lp_other(void);
/* ncclInvalidUsage, with the reason, if the one that was asked for cannot be used. */
ncclResult_t lp_other_check(void);
/* LIGHTPATH_FALLBACK: whether all calls go to it (all), or those on streams are interposed (interpose). */
bool lp_other_takes_all(void);
bool lp_other_interposes(void);
/* Its file. */
const char* lp_other_path(void);
/* Its function of that name. NULL sets *why and the last error. */
void* lp_other_symbol(const char* name, ncclResult_t* why);
#define LP_OTHER(name, why) ((__typeof__(name)*)lp_other_symbol(#name, why))
/* Returns a result of it. A failure becomes the last error, with the library's text. */
ncclResult_t lp_other_result(const char* function, ncclResult_t rc);
/* The library's text for a result. */
void lp_other_text(ncclResult_t rc, char* text, size_t size);

/* Whether this process has loaded CUDA's driver: else it has no device memory. */
bool lp_cuda(void);
/* The same, if there is another library. */
bool lp_other_cuda(void);
/* Whether p is device memory, for the other library. */
bool lp_other_device(const void* p);

/* Return from the calling function with the result of the other library's NAME. mine, in the arguments, is its
 * communicator for ours. LP_FORWARD_IN_GROUP joins the thread's group; MINE is how to find the communicator, NULL
 * for none. */
#define LP_FORWARD(NAME, ...)                                                        \
  do {                                                                               \
    ncclResult_t rc_ = ncclSuccess;                                                  \
    __typeof__(NAME)* call_ = LP_OTHER(NAME, &rc_);                                  \
    return call_ == NULL ? rc_ : lp_other_result(#NAME, call_(__VA_ARGS__));         \
  } while (0)
#define LP_FORWARD_ON(NAME, COMM, ...)                                               \
  do {                                                                               \
    ncclResult_t why_ = ncclSuccess;                                                 \
    ncclComm_t mine = lp_other_comm(#NAME, COMM, &why_);                             \
    if (mine == NULL) return why_;                                                   \
    LP_FORWARD(NAME, __VA_ARGS__);                                                   \
  } while (0)
#define LP_MINE(NAME, COMM) lp_other_comm(#NAME, COMM, &rc_)
#define LP_FORWARD_IN_GROUP(NAME, MINE, ...)                                         \
  do {                                                                               \
    ncclResult_t rc_ = ncclSuccess;                                                  \
    ncclComm_t mine __attribute__((unused)) = MINE;                                  \
    __typeof__(NAME)* call_ = rc_ == ncclSuccess ? LP_OTHER(NAME, &rc_) : NULL;      \
    if (rc_ == ncclSuccess) rc_ = lp_other_enter_group();                            \
    if (rc_ == ncclSuccess) rc_ = lp_other_result(#NAME, call_(__VA_ARGS__));        \
    return lp_group_note(rc_);                                                       \
  } while (0)

/* ---- other_make.c ---- */

/* Makes communicators of it, all or none. Returns its ncclResult_t. */
int lp_other_make(struct lp_other_init* inits, size_t n);

/* ---- other_comm.c: its communicators and operators ---- */

/* Makes its communicators for those of ours that have just been made. */
void lp_other_attach(const struct lp_core* core, const struct lp_init* inits, size_t n);
/* Its communicator for ours. NULL sets *why and the last error. */
ncclComm_t lp_other_comm(const char* function, ncclComm_t ours, ncclResult_t* why);
/* Does LP_FINALIZE, LP_DESTROY or LP_ABORT to its communicator. */
ncclResult_t lp_other_end(ncclComm_t ours, int32_t how);
/* Stops the work of its communicator. */
ncclResult_t lp_other_revoke(ncclComm_t ours, int flags);
/* The same for a communicator from which only others will be made. */
void lp_other_stop(ncclComm_t ours);
/* The asynchronous error of its communicator. */
ncclResult_t lp_other_async_error(ncclComm_t ours);

/* Creates its operator for one of ours that has just been created. */
void lp_other_op_create(ncclComm_t comm, ncclRedOp_t ours, void* scalar, ncclDataType_t type,
                        ncclScalarResidence_t residence);
/* The number of a call's operator there. */
ncclResult_t lp_other_op(const char* function, const struct lp_call* call, ncclRedOp_t* op);
/* Removes the entry of our operator, and returns its number there; ncclNumOps if there is none. */
ncclRedOp_t lp_other_op_remove(ncclComm_t comm, ncclRedOp_t ours);
/* Destroys an operator of it. */
void lp_other_op_destroy(ncclComm_t comm, ncclRedOp_t op);

/* ---- other_call.c: its calls ---- */

/* Makes a call there, now. */
ncclResult_t lp_other_forward(const char* function, const struct lp_call* call, ncclRedOp_t op,
                              const ncclCollConfig_t* config);
/* Opens a group there if this thread has one open here. */
ncclResult_t lp_other_enter_group(void);
/* Ends the group that this thread has opened there: runs it or, with predicted, only predicts its time. */
ncclResult_t lp_other_group_end(ncclSimInfo_t* predicted);

/* Handles of buffers and windows: ours are odd numbers, the other library's are addresses. */
static inline bool lp_is_registration(const void* handle) { return ((uintptr_t)handle & 1) != 0; }

/* ---- interpose.c: collectives on streams that Lightpath plans and the other library carries ---- */

/* ncclInvalidUsage if the library cannot be used for it. */
ncclResult_t lp_interpose_check(void);
/* Prepares communicators that have just been made. */
void lp_interpose_attach(const struct lp_core* core, const struct lp_init* inits, size_t n);
/* Makes a call on a stream or device memory, interposed or passed on, now or when the group of this thread ends. */
ncclResult_t lp_interpose_call(const char* function, const struct lp_call* call, const ncclCollConfig_t* config);
/* Runs the calls that the group has queued, unless error is a failure. Returns the group's result so far. */
ncclResult_t lp_interpose_group_end(ncclResult_t error);
/* Removes what is queued for a communicator, NULL: for all. */
void lp_interpose_forget(ncclComm_t comm);
/* Delays the end of an operator that queued calls still need. Returns false if none does. */
bool lp_interpose_op_end(ncclComm_t comm, ncclRedOp_t op);

/* ---- route.c: which library makes a call ---- */

/* Whether a call is for the other library: it has a stream or device memory, or all calls are. */
bool lp_route_other(const struct lp_call* call);
/* The same for one-sided calls: in a process that uses devices, windows are device memory, so all are. */
bool lp_route_other_onesided(const void* stream);
/* Makes such a call there. */
ncclResult_t lp_route_call(const char* function, const struct lp_call* call, const ncclCollConfig_t* config);

#endif
