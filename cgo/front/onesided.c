/* One-sided calls: they write to windows of peers, which make no call. */
#include "other.h"

/* There is one signal and one context, as in NCCL. */
static ncclResult_t check_zeros(const char* function, int sigIdx, int ctx, unsigned int flags) {
  if (sigIdx != 0 || ctx != 0 || flags != 0)
    return LP_REFUSE("%s: sigIdx is %d, ctx %d, flags 0x%x, and can only be 0", function, sigIdx, ctx, flags);
  return ncclSuccess;
}

LP_API(ncclResult_t, ncclPutSignal,
       (const void* localbuff, size_t count, ncclDataType_t datatype, int peer, ncclWindow_t peerWin,
        size_t peerWinOffset, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm, cudaStream_t stream)) {
  struct lp_call call = {.comm = lp_handle(comm), .kind = LP_PUT_SIGNAL, .type = (int32_t)datatype, .peer = peer,
                         .count = count, .send = localbuff, .stream = stream,
                         .window = (uint64_t)(uintptr_t)peerWin, .offset = peerWinOffset};
  ncclResult_t rc;
  if (comm == NULL) return LP_REFUSE("ncclPutSignal: comm is NULL");
  if (lp_route_other_onesided(stream)) {
    if (lp_is_registration(peerWin))
      return lp_group_note(
          lp_fail(ncclInvalidUsage,
                  "ncclPutSignal: peerWin is host memory, but one-sided calls of this process are those of "
                  "LIGHTPATH_NCCL_FALLBACK_LIB"));
    LP_FORWARD_IN_GROUP(ncclPutSignal, LP_MINE(ncclPutSignal, comm), localbuff, count, datatype, peer, peerWin,
                        peerWinOffset, sigIdx, ctx, flags, mine, stream);
  }
  if (peerWin == NULL) return LP_REFUSE("ncclPutSignal: peerWin is NULL");
  rc = check_zeros("ncclPutSignal", sigIdx, ctx, flags);
  return rc == ncclSuccess ? lp_submit(&call) : rc;
}

LP_API(ncclResult_t, ncclSignal,
       (int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm, cudaStream_t stream)) {
  struct lp_call call = {.comm = lp_handle(comm), .kind = LP_SIGNAL, .peer = peer, .stream = stream};
  ncclResult_t rc;
  if (comm == NULL) return LP_REFUSE("ncclSignal: comm is NULL");
  if (lp_route_other_onesided(stream))
    LP_FORWARD_IN_GROUP(ncclSignal, LP_MINE(ncclSignal, comm), peer, sigIdx, ctx, flags, mine, stream);
  rc = check_zeros("ncclSignal", sigIdx, ctx, flags);
  return rc == ncclSuccess ? lp_submit(&call) : rc;
}

static struct lp_call wait_for(ncclComm_t comm, const ncclWaitSignalDesc_t* d, cudaStream_t stream) {
  return (struct lp_call){.comm = lp_handle(comm),
                          .kind = LP_WAIT_SIGNAL,
                          .peer = d->peer,
                          .count = (uint64_t)(int64_t)d->opCnt,
                          .stream = stream};
}

/* Checks all waits first, so that a wrong descriptor leaves the signals of the others alone. */
static ncclResult_t check_waits(int n, const ncclWaitSignalDesc_t* descs, ncclComm_t comm, cudaStream_t stream) {
  ncclResult_t rc = ncclSuccess;
  int i;
  for (i = 0; i < n && rc == ncclSuccess; i++) {
    struct lp_call call = wait_for(comm, &descs[i], stream);
    rc = check_zeros("ncclWaitSignal", descs[i].sigIdx, descs[i].ctx, 0);
    if (rc == ncclSuccess) rc = LP_CORE(check, &call);
  }
  return rc;
}

/* All waits run as one group. */
LP_API(ncclResult_t, ncclWaitSignal,
       (int nDesc, ncclWaitSignalDesc_t* signalDescs, ncclComm_t comm, cudaStream_t stream)) {
  ncclResult_t rc, end;
  int i;
  if (comm == NULL) return LP_REFUSE("ncclWaitSignal: comm is NULL");
  if (lp_route_other_onesided(stream))
    LP_FORWARD_IN_GROUP(ncclWaitSignal, LP_MINE(ncclWaitSignal, comm), nDesc, signalDescs, mine, stream);
  if (nDesc < 1 || signalDescs == NULL)
    return LP_REFUSE("ncclWaitSignal: nDesc is %d, or signalDescs is NULL", nDesc);
  rc = check_waits(nDesc, signalDescs, comm, stream);
  if (rc != ncclSuccess) return lp_group_note(rc);
  rc = pncclGroupStart();
  for (i = 0; i < nDesc && rc == ncclSuccess; i++) {
    struct lp_call call = wait_for(comm, &signalDescs[i], stream);
    rc = lp_group_add_call(&call);
  }
  end = pncclGroupEnd();
  return rc == ncclSuccess ? end : rc;
}
