/* Functions that exist so that programs load. Each returns ncclInvalidUsage, has no effect, and sets a last error
 * that says what to do instead. */
#include "other.h"

static ncclResult_t unsupported(const char* function, const char* instead) {
  return lp_fail(ncclInvalidUsage, "%s is not implemented by Lightpath %s; %s", function, LP_VERSION, instead);
}

#define UNSUPPORTED(NAME, PARAMS, INSTEAD) \
  LP_API(ncclResult_t, NAME, PARAMS) { return lp_group_note(unsupported(#NAME, INSTEAD)); }

/* The same, but the other library makes the call if there is one: on its communicator, if the function has one. */
#define ELSEWHERE(NAME, PARAMS, ARGS, MINE, WINDOW, INSTEAD)                                  \
  LP_API(ncclResult_t, NAME, PARAMS) {                                                        \
    if (lp_other() && !lp_is_registration(WINDOW)) LP_FORWARD_IN_GROUP(NAME, MINE, EXPAND ARGS); \
    return lp_group_note(unsupported(#NAME, INSTEAD));                                     \
  }
#define EXPAND(...) __VA_ARGS__
#define ON_COMM(NAME, PARAMS, ARGS, INSTEAD) ELSEWHERE(NAME, PARAMS, ARGS, LP_MINE(NAME, comm), NULL, INSTEAD)
#define ON_WINDOW(NAME, PARAMS, ARGS, INSTEAD) ELSEWHERE(NAME, PARAMS, ARGS, NULL, window, INSTEAD)
#define WITHOUT_COMM(NAME, PARAMS, ARGS, INSTEAD) ELSEWHERE(NAME, PARAMS, ARGS, NULL, NULL, INSTEAD)

#pragma GCC diagnostic ignored "-Wunused-parameter"

#define NO_KERNELS "kernels that communicate by themselves cannot use optical planes: use host-side collectives"

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
ON_WINDOW(ncclGetMultimemDevicePointer,
          (ncclWindow_t window, size_t offset, ncclMultimemHandle_t multimem, void** outPtr),
          (window, offset, multimem, outPtr), NO_KERNELS)
ON_WINDOW(ncclGetLsaDevicePointer, (ncclWindow_t window, size_t offset, int lsaRank, void** outPtr),
            (window, offset, lsaRank, outPtr), NO_KERNELS)
ON_WINDOW(ncclGetPeerDevicePointer, (ncclWindow_t window, size_t offset, int peer, void** outPtr),
            (window, offset, peer, outPtr), NO_KERNELS)
ON_WINDOW(ncclGetMultimemDeviceLeInfo, (ncclWindow_t window, size_t offset, ncclCftLeId* leId, size_t* leOffset),
            (window, offset, leId, leOffset), NO_KERNELS)
ON_WINDOW(ncclGetCftDeviceLeInfo,
          (ncclWindow_t window, size_t offset, int peerCft, ncclTeam_t cftTeam, ncclCftLeId* leId, size_t* leOffset),
          (window, offset, peerCft, cftTeam, leId, leOffset), NO_KERNELS)
ON_WINDOW(ncclGetPeerDeviceLeInfo,
          (ncclWindow_t window, size_t offset, int peerWorld, ncclCftLeId* leId, size_t* leOffset),
          (window, offset, peerWorld, leId, leOffset), NO_KERNELS)
WITHOUT_COMM(ncclLsaBarrierCreateRequirement, (ncclTeam_t team, int nBarriers, ncclLsaBarrierHandle_t* outHandle,
             ncclDevResourceRequirements_t* outReq),
            (team, nBarriers, outHandle, outReq),
            NO_KERNELS)
ON_COMM(ncclGinBarrierCreateRequirement,
        (ncclComm_t comm, ncclTeam_t team, int nBarriers, ncclGinBarrierHandle_t* outHandle,
         ncclDevResourceRequirements_t* outReq),
        (mine, team, nBarriers, outHandle, outReq), NO_KERNELS)
WITHOUT_COMM(ncclLLA2ACreateRequirement,
             (int nBlocks, int nSlots, ncclLLA2AHandle_t* outHandle, ncclDevResourceRequirements_t* outReq),
             (nBlocks, nSlots, outHandle, outReq), NO_KERNELS)
WITHOUT_COMM(ncclGinOutboxCreateRequirement,
             (int nBlocks, int size_log2, ncclGinOutboxHandle_t* outHandle, ncclDevResourceRequirements_t* outReq),
             (nBlocks, size_log2, outHandle, outReq), NO_KERNELS)
WITHOUT_COMM(ncclGinInboxA2ACreateRequirement,
             (ncclTeam_t peers, int nBlocks, int size_log2, ncclGinInboxA2AHandle_t* outHandle,
              ncclDevResourceRequirements_t* outReq),
             (peers, nBlocks, size_log2, outHandle, outReq), NO_KERNELS)

LP_API(int, ncclLLA2ACalcSlots, (int maxElts, int maxEltSize)) { return 0; }
