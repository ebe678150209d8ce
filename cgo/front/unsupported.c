/* What exists so that programs load, and says that it does nothing.
 *
 * A call that cannot do its work must not pretend: ncclInvalidUsage, a last error that says what to
 * do instead, and no effect. */
#include "front.h"

ncclResult_t lp_unsupported(const char* function, const char* instead) {
  return lp_fail(ncclInvalidUsage, "%s is not implemented by Lightpath %s; %s", function, LP_VERSION, instead);
}

#define UNSUPPORTED(NAME, PARAMS, INSTEAD) \
  LP_API(ncclResult_t, NAME, PARAMS) { return lp_group_note(lp_unsupported(#NAME, INSTEAD)); }

#pragma GCC diagnostic ignored "-Wunused-parameter"

#define HOST_CALLS "use ncclSend and ncclRecv"
#define NO_KERNELS "kernels that communicate by themselves have no way over optical planes: use host-side collectives"

UNSUPPORTED(ncclCommMemStats, (ncclComm_t comm, ncclCommMemStat_t stat, uint64_t* value),
            "communicators hold no device memory")
UNSUPPORTED(ncclSetEncryption, (const ncclEncryptionConfig_t* config), "connections are authenticated, not encrypted")

UNSUPPORTED(ncclPutSignal,
            (const void* localbuff, size_t count, ncclDataType_t datatype, int peer, ncclWindow_t peerWin,
             size_t peerWinOffset, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm, cudaStream_t stream),
            HOST_CALLS)
UNSUPPORTED(ncclSignal,
            (int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm, cudaStream_t stream), HOST_CALLS)
UNSUPPORTED(ncclWaitSignal, (int nDesc, ncclWaitSignalDesc_t* signalDescs, ncclComm_t comm, cudaStream_t stream),
            HOST_CALLS)

/* Deprecated; the log's variables are read when a communicator is made. */
LP_API(void, ncclResetDebugInit, (void)) {}
__attribute__((visibility("default"))) void ncclResetDebugInitInternal(void) {}

/* ---- The host half of the device interface ---- */

UNSUPPORTED(ncclCommQueryProperties, (ncclComm_t comm, ncclCommProperties_t* props),
            "ncclCommCount, ncclCommUserRank and ncclCommCuDevice answer one by one")
UNSUPPORTED(ncclDevCommCreate, (ncclComm_t comm, ncclDevCommRequirements_t const* reqs, ncclDevComm_t* outDevComm),
            NO_KERNELS)
UNSUPPORTED(ncclDevCommDestroy, (ncclComm_t comm, ncclDevComm_t const* devComm), NO_KERNELS)
UNSUPPORTED(ncclGetLsaMultimemDevicePointer, (ncclWindow_t window, size_t offset, void** outPtr), NO_KERNELS)
UNSUPPORTED(ncclGetMultimemDevicePointer,
            (ncclWindow_t window, size_t offset, ncclMultimemHandle_t multimem, void** outPtr), NO_KERNELS)
UNSUPPORTED(ncclGetLsaDevicePointer, (ncclWindow_t window, size_t offset, int lsaRank, void** outPtr), NO_KERNELS)
UNSUPPORTED(ncclGetPeerDevicePointer, (ncclWindow_t window, size_t offset, int peer, void** outPtr), NO_KERNELS)
UNSUPPORTED(ncclGetMultimemDeviceLeInfo,
            (ncclWindow_t window, size_t offset, ncclCftLeId* leId, size_t* leOffset), NO_KERNELS)
UNSUPPORTED(ncclGetCftDeviceLeInfo,
            (ncclWindow_t window, size_t offset, int peerCft, ncclTeam_t cftTeam, ncclCftLeId* leId,
             size_t* leOffset),
            NO_KERNELS)
UNSUPPORTED(ncclGetPeerDeviceLeInfo,
            (ncclWindow_t window, size_t offset, int peerWorld, ncclCftLeId* leId, size_t* leOffset), NO_KERNELS)
UNSUPPORTED(ncclLsaBarrierCreateRequirement,
            (ncclTeam_t team, int nBarriers, ncclLsaBarrierHandle_t* outHandle,
             ncclDevResourceRequirements_t* outReq),
            NO_KERNELS)
UNSUPPORTED(ncclGinBarrierCreateRequirement,
            (ncclComm_t comm, ncclTeam_t team, int nBarriers, ncclGinBarrierHandle_t* outHandle,
             ncclDevResourceRequirements_t* outReq),
            NO_KERNELS)
UNSUPPORTED(ncclLLA2ACreateRequirement,
            (int nBlocks, int nSlots, ncclLLA2AHandle_t* outHandle, ncclDevResourceRequirements_t* outReq),
            NO_KERNELS)
UNSUPPORTED(ncclGinOutboxCreateRequirement,
            (int nBlocks, int size_log2, ncclGinOutboxHandle_t* outHandle, ncclDevResourceRequirements_t* outReq),
            NO_KERNELS)
UNSUPPORTED(ncclGinInboxA2ACreateRequirement,
            (ncclTeam_t peers, int nBlocks, int size_log2, ncclGinInboxA2AHandle_t* outHandle,
             ncclDevResourceRequirements_t* outReq),
            NO_KERNELS)

LP_API(int, ncclLLA2ACalcSlots, (int maxElts, int maxEltSize)) { return 0; }
