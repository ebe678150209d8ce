/* One-sided calls: into windows of other ranks, which take no part. */
#include "fallback.h"

/* There is one signal and one context, as in NCCL so far. */
static ncclResult_t zeros(const char* function, int sigIdx, int ctx, unsigned int flags) {
  if (sigIdx != 0 || ctx != 0 || flags != 0)
    return lp_fail(ncclInvalidArgument, "%s: sigIdx is %d, ctx %d, flags 0x%x, and can only be 0", function, sigIdx, ctx,
                   flags);
  return ncclSuccess;
}

#define OTHER(NAME, ...)                                                                          \
  do {                                                                                            \
    ncclResult_t rc_ = ncclSuccess;                                                               \
    ncclComm_t mine = lp_fallback_comm(#NAME, comm, &rc_);                                        \
    __typeof__(NAME)* other_ = (__typeof__(NAME)*)lp_fallback_symbol(#NAME, &rc_);                \
    if (rc_ == ncclSuccess) rc_ = lp_fallback_enter_group();                                      \
    return lp_group_note(rc_ != ncclSuccess ? rc_ : lp_fallback_result(#NAME, other_(__VA_ARGS__))); \
  } while (0)

LP_API(ncclResult_t, ncclPutSignal,
       (const void* localbuff, size_t count, ncclDataType_t datatype, int peer, ncclWindow_t peerWin, size_t peerWinOffset,
        int sigIdx, int ctx, unsigned int flags, ncclComm_t comm, cudaStream_t stream)) {
  struct lp_call call = {.comm = lp_handle(comm), .kind = LP_PUT_SIGNAL, .type = (int32_t)datatype, .peer = peer,
                         .count = count, .send = localbuff, .stream = stream,
                         .window = (uint64_t)(uintptr_t)peerWin, .offset = peerWinOffset};
  ncclResult_t rc;
  if (comm == NULL) return lp_fail(ncclInvalidArgument, "ncclPutSignal: comm is NULL");
  if (lp_fallback_takes_onesided(stream)) {
    if (lp_is_registration(peerWin))
      return lp_group_note(lp_fail(ncclInvalidUsage,
                                   "ncclPutSignal: peerWin is host memory, but one-sided calls of this process are those of "
                                   "LIGHTPATH_NCCL_FALLBACK_LIB"));
    OTHER(ncclPutSignal, localbuff, count, datatype, peer, peerWin, peerWinOffset, sigIdx, ctx, flags, mine, stream);
  }
  if (peerWin == NULL) return lp_fail(ncclInvalidArgument, "ncclPutSignal: peerWin is NULL");
  rc = zeros("ncclPutSignal", sigIdx, ctx, flags);
  return rc == ncclSuccess ? lp_submit(&call) : rc;
}

LP_API(ncclResult_t, ncclSignal, (int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm, cudaStream_t stream)) {
  struct lp_call call = {.comm = lp_handle(comm), .kind = LP_SIGNAL, .peer = peer, .stream = stream};
  ncclResult_t rc;
  if (comm == NULL) return lp_fail(ncclInvalidArgument, "ncclSignal: comm is NULL");
  if (lp_fallback_takes_onesided(stream)) OTHER(ncclSignal, peer, sigIdx, ctx, flags, mine, stream);
  rc = zeros("ncclSignal", sigIdx, ctx, flags);
  return rc == ncclSuccess ? lp_submit(&call) : rc;
}

/* All waits are one group, so that a wrong descriptor leaves the signals of the others alone. */
LP_API(ncclResult_t, ncclWaitSignal, (int nDesc, ncclWaitSignalDesc_t* signalDescs, ncclComm_t comm, cudaStream_t stream)) {
  char err[LP_ERR_BYTES] = "";
  const struct lp_core* core;
  ncclResult_t rc;
  int i, pass;
  if (comm == NULL) return lp_fail(ncclInvalidArgument, "ncclWaitSignal: comm is NULL");
  if (lp_fallback_takes_onesided(stream)) OTHER(ncclWaitSignal, nDesc, signalDescs, mine, stream);
  if (nDesc < 1 || signalDescs == NULL)
    return lp_fail(ncclInvalidArgument, "ncclWaitSignal: nDesc is %d, or signalDescs is NULL", nDesc);
  core = lp_core(&rc);
  if (core == NULL) return lp_group_note(rc);
  rc = ncclSuccess;
  for (pass = 0; pass < 2 && rc == ncclSuccess; pass++) {
    if (pass == 1) rc = pncclGroupStart();
    for (i = 0; i < nDesc && rc == ncclSuccess; i++) {
      const ncclWaitSignalDesc_t* d = &signalDescs[i];
      struct lp_call call = {.comm = lp_handle(comm), .kind = LP_WAIT_SIGNAL, .peer = d->peer,
                             .count = (uint64_t)(int64_t)d->opCnt, .stream = stream};
      rc = zeros("ncclWaitSignal", d->sigIdx, d->ctx, 0);
      if (rc == ncclSuccess)
        rc = pass == 0 ? lp_result(core->check(&call, err, sizeof err), err) : lp_group_add_call(&call);
    }
    if (pass == 1) {
      ncclResult_t end = pncclGroupEnd();
      if (rc == ncclSuccess) rc = end;
    }
  }
  return pass < 2 ? lp_group_note(rc) : rc;
}
