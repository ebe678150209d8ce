/* Calls of the other library. */
#include "other.h"

/* Set while the calling thread has a group open in the other library. */
static __thread bool group_open;

ncclResult_t lp_other_enter_group(void) {
  ncclResult_t rc = ncclSuccess;
  __typeof__(ncclGroupStart)* open;
  if (!lp_group_open() || group_open) return ncclSuccess;
  open = LP_OTHER(ncclGroupStart, &rc);
  if (open != NULL) rc = lp_other_result("ncclGroupStart", open());
  group_open = rc == ncclSuccess;
  return rc;
}

ncclResult_t lp_other_group_end(ncclSimInfo_t* predicted) {
  if (!group_open) return ncclSuccess;
  group_open = false;
  if (predicted != NULL) LP_FORWARD(ncclGroupSimulateEnd, predicted);
  LP_FORWARD(ncclGroupEnd);
}

/* LP_FORWARD with the caller's configuration, if there is one. */
#define FORWARD(NAME, ...)                                                      \
  do {                                                                          \
    if (config != NULL) LP_FORWARD(NAME##Config, __VA_ARGS__, config);          \
    LP_FORWARD(NAME, __VA_ARGS__);                                              \
  } while (0)

static ncclResult_t forward(const struct lp_call* call, ncclComm_t comm, ncclRedOp_t op,
                            const ncclCollConfig_t* config) {
  const size_t count = (size_t)call->count;
  const ncclDataType_t type = (ncclDataType_t)call->type;
  const cudaStream_t stream = (cudaStream_t)call->stream;
  switch (call->kind) {
    case LP_ALLREDUCE: FORWARD(ncclAllReduce, call->send, call->recv, count, type, op, comm, stream);
    case LP_BROADCAST: FORWARD(ncclBroadcast, call->send, call->recv, count, type, call->peer, comm, stream);
    case LP_REDUCE: FORWARD(ncclReduce, call->send, call->recv, count, type, op, call->peer, comm, stream);
    case LP_ALLGATHER: FORWARD(ncclAllGather, call->send, call->recv, count, type, comm, stream);
    case LP_REDUCESCATTER: FORWARD(ncclReduceScatter, call->send, call->recv, count, type, op, comm, stream);
    case LP_ALLTOALL: FORWARD(ncclAlltoAll, call->send, call->recv, count, type, comm, stream);
    case LP_GATHER: FORWARD(ncclGather, call->send, call->recv, count, type, call->peer, comm, stream);
    case LP_SCATTER: FORWARD(ncclScatter, call->send, call->recv, count, type, call->peer, comm, stream);
    case LP_SEND: LP_FORWARD(ncclSend, call->send, count, type, call->peer, comm, stream);
    case LP_RECV: LP_FORWARD(ncclRecv, call->recv, count, type, call->peer, comm, stream);
    default: return ncclInternalError; /* onesided.c forwards one-sided calls */
  }
}

ncclResult_t lp_other_forward(const char* function, const struct lp_call* call, ncclRedOp_t op,
                              const ncclCollConfig_t* config) {
  ncclResult_t rc = ncclSuccess;
  ncclComm_t other = lp_other_comm(function, lp_comm(call->comm), &rc);
  return other == NULL ? rc : forward(call, other, op, config);
}
