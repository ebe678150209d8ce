/* What exists so that programs load, and says that it does nothing.
 *
 * A call that cannot do its work must not pretend: ncclInvalidUsage, a last error that says what to
 * do instead, and no effect. */
#include "fallback.h"

ncclResult_t lp_unsupported(const char* function, const char* instead) {
  return lp_fail(ncclInvalidUsage, "%s is not implemented by Lightpath %s; %s", function, LP_VERSION, instead);
}

#define UNSUPPORTED(NAME, PARAMS, INSTEAD) \
  LP_API(ncclResult_t, NAME, PARAMS) { return lp_group_note(lp_unsupported(#NAME, INSTEAD)); }

/* Of those, what the other library may do instead: on its communicator mine, where the function has
 * one, else with the same arguments. */
#define ELSEWHERE(NAME, PARAMS, ARGS, MINE, WINDOW, INSTEAD)                                  \
  LP_API(ncclResult_t, NAME, PARAMS) {                                                        \
    if (lp_fallback() && !lp_is_registration(WINDOW)) {                                       \
      ncclResult_t rc = lp_fallback_enter_group();                                            \
      ncclComm_t mine = MINE;                                                                 \
      __typeof__(NAME)* other = (__typeof__(NAME)*)lp_fallback_symbol(#NAME, &rc);            \
      return lp_group_note(rc != ncclSuccess ? rc : lp_fallback_result(#NAME, other ARGS));   \
    }                                                                                         \
    return lp_group_note(lp_unsupported(#NAME, INSTEAD));                                     \
  }
#define ON_COMM(NAME, PARAMS, ARGS, INSTEAD) \
  ELSEWHERE(NAME, PARAMS, ARGS, lp_fallback_comm(#NAME, comm, &rc), NULL, INSTEAD)
#define ON_WINDOW(NAME, PARAMS, ARGS, INSTEAD) ELSEWHERE(NAME, PARAMS, ARGS, NULL, window, INSTEAD)
#define WITHOUT_COMM(NAME, PARAMS, ARGS, INSTEAD) ELSEWHERE(NAME, PARAMS, ARGS, NULL, NULL, INSTEAD)

#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wunused-variable"

#define NO_KERNELS "kernels that communicate by themselves have no way over optical planes: use host-side collectives"

UNSUPPORTED(ncclSetEncryption, (const ncclEncryptionConfig_t* config), "connections are authenticated, not encrypted")

/* Deprecated; the log's variables are read when a communicator is made. */
LP_API(void, ncclResetDebugInit, (void)) {}
__attribute__((visibility("default"))) void ncclResetDebugInitInternal(void) {}

/* ---- The host half of the device interface ---- */

ON_COMM(ncclDevCommCreate, (ncclComm_t comm, ncclDevCommRequirements_t const* reqs, ncclDevComm_t* outDevComm),
            (mine, reqs, outDevComm),
            NO_KERNELS)
ON_COMM(ncclDevCommDestroy, (ncclComm_t comm, ncclDevComm_t const* devComm),
            (mine, devComm), NO_KERNELS)
ON_WINDOW(ncclGetLsaMultimemDevicePointer, (ncclWindow_t window, size_t offset, void** outPtr),
            (window, offset, outPtr), NO_KERNELS)
ON_WINDOW(ncclGetMultimemDevicePointer, (ncclWindow_t window, size_t offset, ncclMultimemHandle_t multimem, void** outPtr),
            (window, offset, multimem, outPtr), NO_KERNELS)
ON_WINDOW(ncclGetLsaDevicePointer, (ncclWindow_t window, size_t offset, int lsaRank, void** outPtr),
            (window, offset, lsaRank, outPtr), NO_KERNELS)
ON_WINDOW(ncclGetPeerDevicePointer, (ncclWindow_t window, size_t offset, int peer, void** outPtr),
            (window, offset, peer, outPtr), NO_KERNELS)
ON_WINDOW(ncclGetMultimemDeviceLeInfo, (ncclWindow_t window, size_t offset, ncclCftLeId* leId, size_t* leOffset),
            (window, offset, leId, leOffset), NO_KERNELS)
ON_WINDOW(ncclGetCftDeviceLeInfo, (ncclWindow_t window, size_t offset, int peerCft, ncclTeam_t cftTeam, ncclCftLeId* leId,
             size_t* leOffset),
            (window, offset, peerCft, cftTeam, leId, leOffset),
            NO_KERNELS)
ON_WINDOW(ncclGetPeerDeviceLeInfo, (ncclWindow_t window, size_t offset, int peerWorld, ncclCftLeId* leId, size_t* leOffset),
            (window, offset, peerWorld, leId, leOffset), NO_KERNELS)
WITHOUT_COMM(ncclLsaBarrierCreateRequirement, (ncclTeam_t team, int nBarriers, ncclLsaBarrierHandle_t* outHandle,
             ncclDevResourceRequirements_t* outReq),
            (team, nBarriers, outHandle, outReq),
            NO_KERNELS)
ON_COMM(ncclGinBarrierCreateRequirement, (ncclComm_t comm, ncclTeam_t team, int nBarriers, ncclGinBarrierHandle_t* outHandle,
             ncclDevResourceRequirements_t* outReq),
            (mine, team, nBarriers, outHandle, outReq),
            NO_KERNELS)
WITHOUT_COMM(ncclLLA2ACreateRequirement, (int nBlocks, int nSlots, ncclLLA2AHandle_t* outHandle, ncclDevResourceRequirements_t* outReq),
            (nBlocks, nSlots, outHandle, outReq),
            NO_KERNELS)
WITHOUT_COMM(ncclGinOutboxCreateRequirement, (int nBlocks, int size_log2, ncclGinOutboxHandle_t* outHandle, ncclDevResourceRequirements_t* outReq),
            (nBlocks, size_log2, outHandle, outReq),
            NO_KERNELS)
WITHOUT_COMM(ncclGinInboxA2ACreateRequirement, (ncclTeam_t peers, int nBlocks, int size_log2, ncclGinInboxA2AHandle_t* outHandle,
             ncclDevResourceRequirements_t* outReq),
            (peers, nBlocks, size_log2, outHandle, outReq),
            NO_KERNELS)

LP_API(int, ncclLLA2ACalcSlots, (int maxElts, int maxEltSize)) { return 0; }
