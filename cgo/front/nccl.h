/* The NCCL 2.32.3 application interface as Lightpath implements it.
 *
 * libnccl.so.2 of Lightpath stands where NVIDIA's stands: the names, values and layouts below are that
 * library's, so a program compiled against either header runs with either library. `make abi-check`
 * compares this file with NVIDIA's. What a call does beyond the interface is in docs/abi.md.
 *
 * cuda_runtime.h is used where it is installed; without it (or with LP_NCCL_NO_CUDA defined)
 * cudaStream_t and cudaEvent_t are opaque pointers, which is all that this interface needs. */
#ifndef NCCL_H_
#define NCCL_H_

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#if !defined(LP_NCCL_NO_CUDA) && defined(__has_include)
#if __has_include(<cuda_runtime.h>)
#include <cuda_runtime.h>
#define LP_NCCL_HAVE_CUDA 1
#endif
#endif
#ifndef LP_NCCL_HAVE_CUDA
typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define NCCL_MAJOR 2
#define NCCL_MINOR 32
#define NCCL_PATCH 3
#define NCCL_SUFFIX ""
#define NCCL_VERSION_CODE 23203
/* Up to 2.8 a version had one decimal digit less. */
#define NCCL_VERSION(X, Y, Z) \
  (((X) <= 2 && (Y) <= 8) ? (X) * 1000 + (Y) * 100 + (Z) : (X) * 10000 + (Y) * 100 + (Z))

/* ---- Handles ---- */

/* A communicator. Opaque: Lightpath never dereferences one, it is a number in pointer's clothing. */
typedef struct ncclComm* ncclComm_t;
/* A registered window of memory. */
typedef struct ncclWindow_vidmem* ncclWindow_t;
/* A parameter, see ncclParamBind. */
typedef struct ncclParamHandle* ncclParamHandle_t;
#define NCCL_COMM_NULL NULL

/* Names a communicator that is being made. Passed by value; any transport may carry its bytes. */
#define NCCL_UNIQUE_ID_BYTES 128
typedef struct {
  char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

/* ---- Results ---- */

typedef enum {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,     /* the operating system or the network refused */
  ncclInternalError = 3,   /* a defect of the library */
  ncclInvalidArgument = 4, /* the call had no effect */
  ncclInvalidUsage = 5,    /* not now, or not implemented */
  ncclRemoteError = 6,     /* another rank is gone */
  ncclInProgress = 7,
  ncclTimeout = 8,
  ncclNumResults = 9
} ncclResult_t;

/* ---- Types and operators of elements ---- */

typedef enum {
  ncclInt8 = 0,
  ncclChar = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclInt = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclHalf = 6,
  ncclFloat32 = 7,
  ncclFloat = 7,
  ncclFloat64 = 8,
  ncclDouble = 8,
  ncclBfloat16 = 9,
  ncclFloat8e4m3 = 10,
  ncclFloat8e5m2 = 11,
  ncclNumTypes = 12
} ncclDataType_t;

typedef enum { ncclNumOps_dummy = 5 } ncclRedOp_dummy_t;
typedef enum {
  ncclSum = 0,
  ncclProd = 1,
  ncclMax = 2,
  ncclMin = 3,
  ncclAvg = 4,
  ncclNumOps = 5, /* operators of the user start here */
  ncclMaxRedOp = 0x7fffffff >> (32 - 8 * sizeof(ncclRedOp_dummy_t))
} ncclRedOp_t;

/* Where the scalar of an operator lies, and when it is read. */
typedef enum {
  ncclScalarDevice = 0,       /* device memory, read by the collective */
  ncclScalarHostImmediate = 1 /* host memory, read before the call returns */
} ncclScalarResidence_t;

/* ---- Configuration ----
 * Structures that grow at their end only. Start from the initializer: size and version tell the
 * library which fields the caller knew. */

#define NCCL_API_MAGIC 0xcafebeef
#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_CONFIG_UNDEF_PTR NULL
#define NCCL_UNDEF_FLOAT -1.0f

#define NCCL_SPLIT_NOCOLOR -1
#define NCCL_SHRINK_DEFAULT 0x00
#define NCCL_SHRINK_ABORT 0x01
#define NCCL_REVOKE_DEFAULT 0x00
#define NCCL_SUSPEND_MEM 0x01
#define NCCL_CTA_POLICY_DEFAULT 0x00
#define NCCL_CTA_POLICY_EFFICIENCY 0x01
#define NCCL_CTA_POLICY_ZERO 0x02
#define NCCL_WIN_DEFAULT 0x00
#define NCCL_WIN_COLL_SYMMETRIC 0x01
#define NCCL_WIN_STRICT_ORDERING 0x02
#define NCCL_WIN_GIN_ONLY 0x04
#define NCCL_WIN_CFT_COUNTED 0x08
#define NCCL_WIN_REQUIRED_ALIGNMENT 4096

typedef enum {
  ncclHostCftDefault = NCCL_CONFIG_UNDEF_INT,
  ncclHostCftEnable = 1,
  ncclHostCftDisable = 2,
  ncclHostCftFallback = 3
} ncclHostCftMode_t;

typedef enum {
  ncclNvlsHostModeDefault = NCCL_CONFIG_UNDEF_INT,
  ncclNvlsHostModeEnable = 0,
  ncclNvlsHostModeDisableTransport = 1 << 0,
  ncclNvlsHostModeDisableSymmetricMultimem = 1 << 1,
  ncclNvlsHostModeDisable = INT_MAX
} ncclNvlsHostMode_t;

/* Of a communicator. Lightpath reads blocking and commName and checks the ranges of the rest. */
typedef struct ncclConfig_v23100 {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int blocking;
  int cgaClusterSize;
  int minCTAs;
  int maxCTAs;
  const char* netName;
  int splitShare;
  int trafficClass;
  const char* commName;
  int collnetEnable;
  int CTAPolicy;
  int shrinkShare;
  int nvlsCTAs;
  int nChannelsPerNetPeer;
  int nvlinkCentricSched;
  int graphUsageMode;
  int numRmaCtx;
  int maxP2pPeers;
  int graphStreamOrdering;
  int launchOrderImplicit;
  int numRmaSig;
  int rmaEagerInit;
  int hostCftMode;
  int nvlsHostMode;
} ncclConfig_t;

#define LP_NCCL_UNDEF4 \
  NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT
#define NCCL_CONFIG_INITIALIZER                                                                     \
  {                                                                                                 \
    sizeof(ncclConfig_t), NCCL_API_MAGIC, NCCL_VERSION_CODE, LP_NCCL_UNDEF4, NCCL_CONFIG_UNDEF_PTR, \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_PTR, LP_NCCL_UNDEF4,        \
        LP_NCCL_UNDEF4, LP_NCCL_UNDEF4, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,               \
        NCCL_CONFIG_UNDEF_INT                                                                       \
  }

/* One option of a vendor's library; a list of them hangs on a collective's configuration. Options
 * of other vendors are ignored. */
typedef struct ncclConfigExt {
  struct ncclConfigExt* next;
  struct {
    int vendorId;
    int optionId;
  } key;
  union {
    int i;
    const char* s;
    void* raw;
  } val;
} ncclConfigExt_t;

/* Of one collective call; the same on every rank. */
typedef struct ncclCollConfig_v23200 {
  size_t size;
  unsigned int magic;
  unsigned int version;
  ncclConfigExt_t* ext;
  int minCTAs;
  int maxCTAs;
  int nvlsCTAs;
  int cgaClusterSize;
  const char* algSelection;
  int forceAlgSelection;
  int CTAPolicy;
  uint64_t userProfilerTag;
  cudaEvent_t launchCompletionEvent;
} ncclCollConfig_t;

#define NCCL_COLLCONFIG_INITIALIZER                                                            \
  {                                                                                            \
    sizeof(ncclCollConfig_t), NCCL_API_MAGIC, NCCL_VERSION_CODE, NCCL_CONFIG_UNDEF_PTR,        \
        LP_NCCL_UNDEF4, NCCL_CONFIG_UNDEF_PTR, 1, NCCL_CONFIG_UNDEF_INT, 0, NCCL_CONFIG_UNDEF_PTR \
  }

/* What a simulated group would cost. */
typedef struct ncclSimInfo_v22200 {
  size_t size;
  unsigned int magic;
  unsigned int version;
  float estimatedTime;
} ncclSimInfo_t;

#define NCCL_SIM_INFO_INITIALIZER \
  { sizeof(ncclSimInfo_t), 0x74685283, NCCL_VERSION_CODE, NCCL_UNDEF_FLOAT }

typedef enum {
  NCCL_ENCRYPTION_MODE_NONE = 0,
  NCCL_ENCRYPTION_MODE_PSK = 1
} ncclEncryptionMode_t;

typedef struct ncclEncryptionConfig_v23200 {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int mode;
  const char* psk;
} ncclEncryptionConfig_t;

#define NCCL_ENCRYPTION_CONFIG_INITIALIZER                                                            \
  {                                                                                                   \
    sizeof(ncclEncryptionConfig_t), NCCL_API_MAGIC, NCCL_VERSION_CODE, NCCL_ENCRYPTION_MODE_NONE,     \
        NCCL_CONFIG_UNDEF_PTR                                                                         \
  }

typedef enum {
  ncclStatGpuMemSuspend = 0,
  ncclStatGpuMemSuspended = 1,
  ncclStatGpuMemPersist = 2,
  ncclStatGpuMemTotal = 3
} ncclCommMemStat_t;

/* How many signals to wait for, from whom. */
typedef struct {
  int opCnt;
  int peer;
  int sigIdx;
  int ctx;
} ncclWaitSignalDesc_t;

/* ---- Library ----
 * The version is the NCCL version whose interface this is (NCCL_VERSION_CODE of this header unless
 * LIGHTPATH_NCCL_VERSION says otherwise). An unknown result gets a string too, never NULL.
 * The last error is the newest message of this process; comm is ignored and may be NULL. The text
 * stays valid on the calling thread until that thread asks again. */
ncclResult_t ncclGetVersion(int* version);
const char* ncclGetErrorString(ncclResult_t result);
const char* ncclGetLastError(ncclComm_t comm);
void ncclResetDebugInit(void);
ncclResult_t ncclSetEncryption(const ncclEncryptionConfig_t* config);

/* ---- Making communicators ----
 * One rank makes the id and gives its bytes to the others; every rank then joins under its number.
 * Joining waits for all ranks. One thread that makes several ranks does so inside a group. */
ncclResult_t ncclGetUniqueId(ncclUniqueId* uniqueId);
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank);
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank,
    ncclConfig_t* config);
ncclResult_t ncclCommInitRankScalable(ncclComm_t* newcomm, int nranks, int myrank, int nId,
    ncclUniqueId* commIds, ncclConfig_t* config);
ncclResult_t ncclCommInitAll(ncclComm_t* comm, int ndev, const int* devlist);

/* ---- Life of a communicator ----
 * Finalize waits for the other ranks, Destroy frees, Abort ends what is under way and frees.
 * A freed handle is an invalid argument everywhere. */
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommRevoke(ncclComm_t comm, int revokeFlags);
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm,
    ncclConfig_t* config);
ncclResult_t ncclCommShrink(ncclComm_t comm, int* excludeRanksList, int excludeRanksCount,
    ncclComm_t* newcomm, ncclConfig_t* config, int shrinkFlags);
ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId* uniqueId);
ncclResult_t ncclCommGrow(ncclComm_t comm, int nRanks, const ncclUniqueId* uniqueId, int rank,
    ncclComm_t* newcomm, ncclConfig_t* config);
ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags);
ncclResult_t ncclCommResume(ncclComm_t comm);
ncclResult_t ncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, uint64_t* value);

/* ---- Questions to a communicator ---- */
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError);
ncclResult_t ncclCommCount(const ncclComm_t comm, int* count);
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device);
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank);

/* ---- Memory ----
 * Any memory can be used in calls. Memory from ncclMemAlloc is device memory where the calling thread has a
 * context of a device; else host memory, which other processes of the host can map. It is page-aligned, and not freed
 * while registered. Registrations and windows are local
 * and end with their communicator. */
ncclResult_t ncclMemAlloc(void** ptr, size_t size);
ncclResult_t ncclMemFree(void* ptr);
ncclResult_t ncclCommRegister(const ncclComm_t comm, void* buff, size_t size, void** handle);
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle);
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win,
    int winFlags);
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win);
ncclResult_t ncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t win, void** outUserPtr);

/* ---- Operators of the user ---- */
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t datatype,
    ncclScalarResidence_t residence, ncclComm_t comm);
ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm);

/* ---- Collectives ----
 * Counts are elements: of the whole buffer for AllReduce, Broadcast and Reduce, of one rank's block for
 * the others. In place: send equals recv (AllReduce, Broadcast, Reduce); send is block `rank` of recv
 * (AllGather; Gather at the root); recv is block `rank` of send (ReduceScatter; Scatter at the root). */
ncclResult_t ncclBcast(void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
    cudaStream_t stream);
ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
    ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclBroadcast(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
    int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
    ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
    ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
    ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
    ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclGather(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
    int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclScatter(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
    int root, ncclComm_t comm, cudaStream_t stream);

/* The same with a configuration of the call; NULL means none. */
ncclResult_t ncclAllReduceConfig(const void* sendbuff, void* recvbuff, size_t count,
    ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream,
    const ncclCollConfig_t* config);
ncclResult_t ncclBroadcastConfig(const void* sendbuff, void* recvbuff, size_t count,
    ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream,
    const ncclCollConfig_t* config);
ncclResult_t ncclReduceConfig(const void* sendbuff, void* recvbuff, size_t count,
    ncclDataType_t datatype, ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream,
    const ncclCollConfig_t* config);
ncclResult_t ncclAllGatherConfig(const void* sendbuff, void* recvbuff, size_t sendcount,
    ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config);
ncclResult_t ncclReduceScatterConfig(const void* sendbuff, void* recvbuff, size_t recvcount,
    ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream,
    const ncclCollConfig_t* config);
ncclResult_t ncclAlltoAllConfig(const void* sendbuff, void* recvbuff, size_t count,
    ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config);
ncclResult_t ncclGatherConfig(const void* sendbuff, void* recvbuff, size_t count,
    ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream,
    const ncclCollConfig_t* config);
ncclResult_t ncclScatterConfig(const void* sendbuff, void* recvbuff, size_t count,
    ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream,
    const ncclCollConfig_t* config);

/* ---- Point to point ---- */
ncclResult_t ncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer,
    ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
    cudaStream_t stream);
ncclResult_t ncclPutSignal(const void* localbuff, size_t count, ncclDataType_t datatype, int peer,
    ncclWindow_t peerWin, size_t peerWinOffset, int sigIdx, int ctx, unsigned int flags,
    ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclSignal(int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm,
    cudaStream_t stream);
ncclResult_t ncclWaitSignal(int nDesc, ncclWaitSignalDesc_t* signalDescs, ncclComm_t comm,
    cudaStream_t stream);

/* ---- Groups ----
 * Groups belong to the calling thread and nest; calls made inside are run by the outermost end.
 * Making communicators and using them do not mix in one group. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t* simInfo);

/* ---- Parameters ----
 * Parameters are the environment variables that the library reads, by name. Strings and tables belong
 * to the library and stay valid on the calling thread until it asks the same function again. */
ncclResult_t ncclParamBind(ncclParamHandle_t* out, const char* key);
ncclResult_t ncclParamGetI8(ncclParamHandle_t h, int8_t* out);
ncclResult_t ncclParamGetI16(ncclParamHandle_t h, int16_t* out);
ncclResult_t ncclParamGetI32(ncclParamHandle_t h, int32_t* out);
ncclResult_t ncclParamGetI64(ncclParamHandle_t h, int64_t* out);
ncclResult_t ncclParamGetU8(ncclParamHandle_t h, uint8_t* out);
ncclResult_t ncclParamGetU16(ncclParamHandle_t h, uint16_t* out);
ncclResult_t ncclParamGetU32(ncclParamHandle_t h, uint32_t* out);
ncclResult_t ncclParamGetU64(ncclParamHandle_t h, uint64_t* out);
ncclResult_t ncclParamGetStr(ncclParamHandle_t h, const char** out);
ncclResult_t ncclParamGet(ncclParamHandle_t h, void* out, int maxLen, int* len);
ncclResult_t ncclParamGetParameter(const char* key, const char** value, int* valueLen);
ncclResult_t ncclParamGetAllParameterKeys(const char*** table, int* tableLen);
void ncclParamDumpAll(void);

/* ---- Profiling twins ----
 * Every function also exists as pncclX. ncclX is a weak symbol, so a tool may define its own and call
 * the twin. */
#define LP_NCCL_TWIN(name) extern __typeof__(nccl##name) pnccl##name
LP_NCCL_TWIN(GetVersion); LP_NCCL_TWIN(GetErrorString); LP_NCCL_TWIN(GetLastError);
LP_NCCL_TWIN(ResetDebugInit); LP_NCCL_TWIN(SetEncryption); LP_NCCL_TWIN(GetUniqueId);
LP_NCCL_TWIN(CommInitRank); LP_NCCL_TWIN(CommInitRankConfig); LP_NCCL_TWIN(CommInitRankScalable);
LP_NCCL_TWIN(CommInitAll); LP_NCCL_TWIN(CommFinalize); LP_NCCL_TWIN(CommDestroy);
LP_NCCL_TWIN(CommAbort); LP_NCCL_TWIN(CommRevoke); LP_NCCL_TWIN(CommSplit);
LP_NCCL_TWIN(CommShrink); LP_NCCL_TWIN(CommGetUniqueId); LP_NCCL_TWIN(CommGrow);
LP_NCCL_TWIN(CommSuspend); LP_NCCL_TWIN(CommResume); LP_NCCL_TWIN(CommMemStats);
LP_NCCL_TWIN(CommGetAsyncError); LP_NCCL_TWIN(CommCount); LP_NCCL_TWIN(CommCuDevice);
LP_NCCL_TWIN(CommUserRank); LP_NCCL_TWIN(MemAlloc); LP_NCCL_TWIN(MemFree);
LP_NCCL_TWIN(CommRegister); LP_NCCL_TWIN(CommDeregister); LP_NCCL_TWIN(CommWindowRegister);
LP_NCCL_TWIN(CommWindowDeregister); LP_NCCL_TWIN(WinGetUserPtr); LP_NCCL_TWIN(RedOpCreatePreMulSum);
LP_NCCL_TWIN(RedOpDestroy); LP_NCCL_TWIN(Bcast); LP_NCCL_TWIN(AllReduce); LP_NCCL_TWIN(Broadcast);
LP_NCCL_TWIN(Reduce); LP_NCCL_TWIN(AllGather); LP_NCCL_TWIN(ReduceScatter); LP_NCCL_TWIN(AlltoAll);
LP_NCCL_TWIN(Gather); LP_NCCL_TWIN(Scatter); LP_NCCL_TWIN(AllReduceConfig);
LP_NCCL_TWIN(BroadcastConfig); LP_NCCL_TWIN(ReduceConfig); LP_NCCL_TWIN(AllGatherConfig);
LP_NCCL_TWIN(ReduceScatterConfig); LP_NCCL_TWIN(AlltoAllConfig); LP_NCCL_TWIN(GatherConfig);
LP_NCCL_TWIN(ScatterConfig); LP_NCCL_TWIN(Send); LP_NCCL_TWIN(Recv); LP_NCCL_TWIN(PutSignal);
LP_NCCL_TWIN(Signal); LP_NCCL_TWIN(WaitSignal); LP_NCCL_TWIN(GroupStart); LP_NCCL_TWIN(GroupEnd);
LP_NCCL_TWIN(GroupSimulateEnd); LP_NCCL_TWIN(ParamBind); LP_NCCL_TWIN(ParamGetI8);
LP_NCCL_TWIN(ParamGetI16); LP_NCCL_TWIN(ParamGetI32); LP_NCCL_TWIN(ParamGetI64);
LP_NCCL_TWIN(ParamGetU8); LP_NCCL_TWIN(ParamGetU16); LP_NCCL_TWIN(ParamGetU32);
LP_NCCL_TWIN(ParamGetU64); LP_NCCL_TWIN(ParamGetStr); LP_NCCL_TWIN(ParamGet);
LP_NCCL_TWIN(ParamGetParameter); LP_NCCL_TWIN(ParamGetAllParameterKeys); LP_NCCL_TWIN(ParamDumpAll);
#undef LP_NCCL_TWIN

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif
