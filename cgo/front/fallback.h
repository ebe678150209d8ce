/* The other libnccl, of LIGHTPATH_NCCL_FALLBACK_LIB: what may go to it, and how. */
#ifndef LP_FALLBACK_H
#define LP_FALLBACK_H

#include "front.h"

/* Whether there is one. All below do nothing, or answer no, where there is none. */
bool lp_fallback(void);
/* ncclInvalidUsage with the reason where one was asked for that cannot be used. */
ncclResult_t lp_fallback_check(void);
/* Its function of that name; NULL sets *why and the last error. */
void* lp_fallback_symbol(const char* name, ncclResult_t* why);
/* Passes on a result of it, with its last error. */
ncclResult_t lp_fallback_result(const char* function, ncclResult_t rc);
/* What it says of a result. */
void lp_fallback_words(ncclResult_t rc, char* text, size_t size);

/* Makes its communicators for those of ours that have just been made. */
void lp_fallback_attach(const struct lp_core* core, const struct lp_init* inits, size_t n);
/* What our communicator is there; NULL sets *why and the last error. */
ncclComm_t lp_fallback_comm(const char* function, ncclComm_t ours, ncclResult_t* why);
/* ncclCommFinalize, Destroy or Abort of it, by name; gone: our handle is no more. */
ncclResult_t lp_fallback_end(const char* function, ncclComm_t ours, bool gone);

/* Operators are created in both. */
void lp_fallback_op(ncclComm_t comm, ncclRedOp_t ours, void* scalar, ncclDataType_t type, ncclScalarResidence_t residence);
void lp_fallback_op_end(ncclComm_t comm, ncclRedOp_t ours);
/* The number there of a call's operator, while the operator lives. */
ncclResult_t lp_fallback_op_of(const char* function, const struct lp_call* call, ncclRedOp_t* op);
/* Ends an operator, by its number there. */
void lp_fallback_op_free(ncclComm_t comm, ncclRedOp_t op);

/* Whether a call is for it: it has a stream or device memory, or LIGHTPATH_FALLBACK=all. */
bool lp_fallback_takes(const struct lp_call* call);
/* The same for one-sided calls: of a process that uses devices, where windows are device memory, all. */
bool lp_fallback_takes_onesided(const void* stream);
bool lp_fallback_device(const void* p);
/* Whether there is one in a process that uses devices. */
bool lp_fallback_cuda(void);
ncclResult_t lp_fallback_call(const char* function, const struct lp_call* call, const ncclCollConfig_t* config);
/* Makes the call there and now. */
ncclResult_t lp_fallback_forward(const char* function, const struct lp_call* call, ncclRedOp_t op, const ncclCollConfig_t* config);
/* What has happened to our communicator there. */
ncclResult_t lp_fallback_async_error(ncclComm_t ours);
/* Opens a group there inside one of ours, for calls that are not of the kind above. */
ncclResult_t lp_fallback_enter_group(void);
/* Ends the group that calls of this thread have opened there. */
ncclResult_t lp_fallback_group_end(void);

/* ---- interpose.c ---- */

/* LIGHTPATH_FALLBACK=interpose, with a library. */
bool lp_fallback_interposes(void);
/* ncclInvalidUsage where that library cannot be used so. */
ncclResult_t lp_interpose_check(void);
/* Has what can be interposed of communicators that have just been made interposed. */
void lp_interpose_attach(const struct lp_core* core, const struct lp_init* inits, size_t n);
/* A call on a stream or device memory, interposed or passed through, now or when the group of this thread ends. */
ncclResult_t lp_interpose_call(const char* function, const struct lp_call* call, const ncclCollConfig_t* config);
/* Runs what the group has queued, unless it has failed; returns its result so far, or a failure. */
ncclResult_t lp_interpose_group_end(ncclResult_t error);
/* Takes off the group what is queued for a communicator, NULL: all. */
void lp_interpose_forget(ncclComm_t comm);
/* Puts off the end of an operator that calls of the group still need; false where none does. */
bool lp_interpose_op_end(ncclComm_t comm, ncclRedOp_t op);

/* Handles of buffers and windows: ours are odd numbers, the other library's addresses of structures. */
static inline bool lp_is_registration(const void* handle) { return ((uintptr_t)handle & 1) != 0; }

#endif
