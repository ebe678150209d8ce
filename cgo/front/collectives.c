/* Collective and point-to-point calls: each puts its arguments into an lp_call, which runs now or joins the group. */
#include "other.h"

static ncclResult_t submit(const char* function, struct lp_call* call) {
  if (call->comm == 0) return LP_REFUSE("%s: comm is NULL", function);
  if (lp_route_other(call)) return lp_route_call(function, call, NULL);
  return lp_submit(call);
}

ncclResult_t lp_submit(struct lp_call* call) {
  ncclResult_t rc;
  if (lp_core(&rc) == NULL) return lp_group_note(rc);
  if (!lp_group_open()) {
    switch (lp_quick_run(call)) {
      case LP_QUICK_DONE: return ncclSuccess;
      case LP_QUICK_BEGUN: return LP_CORE(run_begun, call);
      default: return LP_CORE(run, call, 1);
    }
  }
  rc = LP_CORE(check, call);
  return rc == ncclSuccess ? lp_group_add_call(call) : lp_group_note(rc);
}

#define CALL(KIND, TYPE, OP, PEER, COUNT, SEND, RECV)                                         \
  &(struct lp_call) {                                                                         \
    .comm = lp_handle(comm), .kind = (KIND), .type = (int32_t)(TYPE), .op = (int32_t)(OP),    \
    .peer = (PEER), .count = (COUNT), .send = (SEND), .recv = (RECV), .stream = (void*)stream \
  }

/* Defines a collective and its form with a configuration. The parameters end before comm. */
#define COLLECTIVE(NAME, CALL_EXPR, ...)                                                                      \
  LP_API(ncclResult_t, NAME, (__VA_ARGS__, ncclComm_t comm, cudaStream_t stream)) {                           \
    return submit(#NAME, CALL_EXPR);                                                                          \
  }                                                                                                           \
  LP_API(ncclResult_t, NAME##Config,                                                                          \
         (__VA_ARGS__, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config)) {               \
    struct lp_call* call = CALL_EXPR;                                                                         \
    ncclResult_t rc;                                                                                          \
    if (config != NULL && lp_route_other(call)) return lp_route_call(#NAME "Config", call, config);     \
    rc = lp_config_read(#NAME "Config", config, call);                                                        \
    return rc == ncclSuccess ? submit(#NAME "Config", call) : lp_group_note(rc);                              \
  }

COLLECTIVE(ncclAllReduce, CALL(LP_ALLREDUCE, datatype, op, 0, count, sendbuff, recvbuff), const void* sendbuff,
           void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op)

COLLECTIVE(ncclBroadcast, CALL(LP_BROADCAST, datatype, ncclSum, root, count, sendbuff, recvbuff),
           const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root)

COLLECTIVE(ncclReduce, CALL(LP_REDUCE, datatype, op, root, count, sendbuff, recvbuff), const void* sendbuff,
           void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op, int root)

COLLECTIVE(ncclAllGather, CALL(LP_ALLGATHER, datatype, ncclSum, 0, sendcount, sendbuff, recvbuff),
           const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype)

COLLECTIVE(ncclReduceScatter, CALL(LP_REDUCESCATTER, datatype, op, 0, recvcount, sendbuff, recvbuff),
           const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype, ncclRedOp_t op)

COLLECTIVE(ncclAlltoAll, CALL(LP_ALLTOALL, datatype, ncclSum, 0, count, sendbuff, recvbuff), const void* sendbuff,
           void* recvbuff, size_t count, ncclDataType_t datatype)

COLLECTIVE(ncclGather, CALL(LP_GATHER, datatype, ncclSum, root, count, sendbuff, recvbuff), const void* sendbuff,
           void* recvbuff, size_t count, ncclDataType_t datatype, int root)

COLLECTIVE(ncclScatter, CALL(LP_SCATTER, datatype, ncclSum, root, count, sendbuff, recvbuff), const void* sendbuff,
           void* recvbuff, size_t count, ncclDataType_t datatype, int root)

/* The old form of Broadcast, always in place. */
LP_API(ncclResult_t, ncclBcast,
       (void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)) {
  return submit("ncclBcast", CALL(LP_BROADCAST, datatype, ncclSum, root, count, buff, buff));
}

LP_API(ncclResult_t, ncclSend,
       (const void* sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
        cudaStream_t stream)) {
  return submit("ncclSend", CALL(LP_SEND, datatype, ncclSum, peer, count, sendbuff, NULL));
}

LP_API(ncclResult_t, ncclRecv,
       (void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm, cudaStream_t stream)) {
  return submit("ncclRecv", CALL(LP_RECV, datatype, ncclSum, peer, count, NULL, recvbuff));
}
