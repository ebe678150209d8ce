/* The part of CUDA's driver interface that Lightpath uses, declared here so that no CUDA toolkit is needed to
 * build. Names, values and versions of symbols are those of cuda.h. The stub (stub/) uses this header, too. */
#ifndef LP_CUDA_DRIVER_H
#define LP_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUuserObject_st *CUuserObject;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef uint64_t cuuint64_t;
typedef uint32_t cuuint32_t;
typedef void (*CUhostFn)(void *data);

enum {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_INITIALIZED = 3,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_INVALID_IMAGE = 200,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_ALREADY_MAPPED = 208,
  CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
  CUDA_ERROR_PEER_ACCESS_UNSUPPORTED = 217,
  CUDA_ERROR_INVALID_PTX = 218,
  CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222,
  CUDA_ERROR_INVALID_HANDLE = 400,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_ILLEGAL_ADDRESS = 700,
  CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
  CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704,
  CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
  CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
  CUDA_ERROR_NOT_PERMITTED = 800,
  CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
  CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
  CUDA_ERROR_STREAM_CAPTURE_MERGE = 903,
  CUDA_ERROR_STREAM_CAPTURE_UNJOINED = 904,
  CUDA_ERROR_STREAM_CAPTURE_ISOLATION = 905,
  CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
  CUDA_ERROR_CAPTURED_EVENT = 907,
  CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908
};

/* CUpointer_attribute */
enum {
  CU_POINTER_ATTRIBUTE_CONTEXT = 1,
  CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
  CU_POINTER_ATTRIBUTE_BUFFER_ID = 7,
  CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,
  CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
  CU_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11,
  CU_POINTER_ATTRIBUTE_RANGE_SIZE = 12
};
/* CUmemorytype */
enum { CU_MEMORYTYPE_HOST = 1, CU_MEMORYTYPE_DEVICE = 2, CU_MEMORYTYPE_UNIFIED = 4 };

/* CUDA_MEMCPY2D_v2 */
typedef struct {
  size_t src_x, src_y;
  int src_type;
  const void *src_host;
  CUdeviceptr src;
  void *src_array;
  size_t src_pitch;
  size_t dst_x, dst_y;
  int dst_type;
  void *dst_host;
  CUdeviceptr dst;
  void *dst_array;
  size_t dst_pitch;
  size_t width, height;
} CUmemcpy2D;

enum { CU_MEMHOSTALLOC_PORTABLE = 1 };
enum { CU_MEMHOSTREGISTER_PORTABLE = 1, CU_MEMHOSTREGISTER_DEVICEMAP = 2 };
enum { CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS = 1 };
/* CUstreamBatchMemOpType */
enum { CU_STREAM_MEM_OP_WAIT_VALUE_32 = 1, CU_STREAM_MEM_OP_WRITE_VALUE_32 = 2 };
enum { CU_STREAM_DEFAULT = 0, CU_STREAM_NON_BLOCKING = 1 };
/* Streams of the calling thread's context: the default one, and the thread's own. */
#define CU_STREAM_LEGACY ((CUstream)1)
#define CU_STREAM_PER_THREAD ((CUstream)2)
enum { CU_EVENT_DISABLE_TIMING = 2 };
/* CUstreamWaitValue_flags */
enum { CU_STREAM_WAIT_VALUE_GEQ = 0, CU_STREAM_WAIT_VALUE_EQ = 1 };
/* CUstreamCaptureStatus */
enum {
  CU_STREAM_CAPTURE_STATUS_NONE = 0,
  CU_STREAM_CAPTURE_STATUS_ACTIVE = 1,
  CU_STREAM_CAPTURE_STATUS_INVALIDATED = 2
};
/* CUstreamCaptureMode */
enum { CU_STREAM_CAPTURE_MODE_GLOBAL = 0, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1, CU_STREAM_CAPTURE_MODE_RELAXED = 2 };
/* CUdevice_attribute */
enum {
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
  CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS = 117,
  CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING = 118,
  CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED = 124
};
enum { CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST = 1 };
enum { CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX = 0 };
/* CUGPUDirectRDMAWritesOrdering, and CUflushGPUDirectRDMAWritesScope */
enum { CU_GPU_DIRECT_RDMA_WRITES_ORDERING_NONE = 0, CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER = 100 };
enum { CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER = 100 };
enum { CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD = 1 };
/* CUjit_option */
enum { CU_JIT_ERROR_LOG_BUFFER = 5, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6 };
enum { CU_USER_OBJECT_NO_DESTRUCTOR_SYNC = 1, CU_GRAPH_USER_OBJECT_MOVE = 1 };

/* Memory that a program maps by itself: pieces of physical memory at addresses that it has reserved. */
typedef unsigned long long CUmemGenericAllocationHandle;
enum { CU_MEM_ALLOCATION_TYPE_PINNED = 1, CU_MEM_LOCATION_TYPE_DEVICE = 1 };
enum { CU_MEM_HANDLE_TYPE_NONE = 0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR = 1 };
enum { CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3 };
typedef struct { int type, id; } CUmemLocation;
typedef struct {
  CUmemLocation location;
  int flags;
} CUmemAccessDesc;
typedef struct {
  int type, handle_types;
  CUmemLocation location;
  void *windows;
  unsigned char flags[8];
} CUmemAllocationProp;

typedef struct { char bytes[16]; } CUuuid;
typedef struct { char reserved[64]; } CUipcMemHandle;

typedef union {
  int operation; /* CUstreamBatchMemOpType */
  struct {       /* of waits and writes alike */
    int operation;
    CUdeviceptr address;
    union { cuuint32_t value; cuuint64_t value64; };
    unsigned flags;
    CUdeviceptr alias; /* the driver's own */
  } word;
  cuuint64_t pad[6];
} CUstreamBatchMemOpParams;

/* The entry points that Lightpath calls: name, name of the symbol, parameters. */
#define LP_CUDA_FUNCTIONS(F) \
  F(DriverGetVersion, "cuDriverGetVersion", (int *version)) \
  F(GetErrorName, "cuGetErrorName", (CUresult error, const char **name)) \
  F(GetErrorString, "cuGetErrorString", (CUresult error, const char **text)) \
  F(CtxGetCurrent, "cuCtxGetCurrent", (CUcontext *ctx)) \
  F(CtxGetDevice, "cuCtxGetDevice", (CUdevice *device)) \
  F(CtxPushCurrent, "cuCtxPushCurrent_v2", (CUcontext ctx)) \
  F(CtxPopCurrent, "cuCtxPopCurrent_v2", (CUcontext *ctx)) \
  F(CtxGetId, "cuCtxGetId", (CUcontext ctx, unsigned long long *id)) \
  F(DeviceGetAttribute, "cuDeviceGetAttribute", (int *value, int attribute, CUdevice device)) \
  F(ModuleLoadDataEx, "cuModuleLoadDataEx", \
    (CUmodule *module, const void *image, unsigned n, int *options, void **values)) \
  F(ModuleUnload, "cuModuleUnload", (CUmodule module)) \
  F(ModuleGetFunction, "cuModuleGetFunction", (CUfunction *function, CUmodule module, const char *name)) \
  F(LaunchKernel, "cuLaunchKernel", \
    (CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, \
     unsigned shared, CUstream stream, void **params, void **extra)) \
  F(PointerGetAttributes, "cuPointerGetAttributes", (unsigned n, int *attributes, void **data, CUdeviceptr ptr)) \
  F(MemHostAlloc, "cuMemHostAlloc", (void **at, size_t size, unsigned flags)) \
  F(MemFreeHost, "cuMemFreeHost", (void *at)) \
  F(MemAlloc, "cuMemAlloc_v2", (CUdeviceptr *at, size_t size)) \
  F(MemFree, "cuMemFree_v2", (CUdeviceptr at)) \
  F(StreamCreate, "cuStreamCreate", (CUstream *stream, unsigned flags)) \
  F(StreamDestroy, "cuStreamDestroy_v2", (CUstream stream)) \
  F(Memcpy2DAsync, "cuMemcpy2DAsync_v2", (const CUmemcpy2D *copy, CUstream stream)) \
  F(MemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2", (void *dst, CUdeviceptr src, size_t size, CUstream stream)) \
  F(MemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2", (CUdeviceptr dst, const void *src, size_t size, CUstream stream)) \
  F(MemcpyAsync, "cuMemcpyAsync", (CUdeviceptr dst, CUdeviceptr src, size_t size, CUstream stream)) \
  F(StreamGetCtx, "cuStreamGetCtx", (CUstream stream, CUcontext *ctx)) \
  F(StreamWaitEvent, "cuStreamWaitEvent", (CUstream stream, CUevent event, unsigned flags)) \
  F(StreamWaitValue32, "cuStreamWaitValue32_v2", (CUstream stream, CUdeviceptr at, cuuint32_t value, unsigned flags)) \
  F(StreamWriteValue32, "cuStreamWriteValue32_v2", \
    (CUstream stream, CUdeviceptr at, cuuint32_t value, unsigned flags)) \
  F(StreamGetCaptureInfo, "cuStreamGetCaptureInfo_v2", \
    (CUstream stream, int *status, cuuint64_t *id, CUgraph *graph, const CUgraphNode **deps, size_t *n)) \
  F(ThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode", (int *mode)) \
  F(LaunchHostFunc, "cuLaunchHostFunc", (CUstream stream, CUhostFn fn, void *data)) \
  F(EventCreate, "cuEventCreate", (CUevent *event, unsigned flags)) \
  F(EventRecord, "cuEventRecord", (CUevent event, CUstream stream)) \
  F(EventQuery, "cuEventQuery", (CUevent event)) \
  F(UserObjectCreate, "cuUserObjectCreate", \
    (CUuserObject *object, void *data, CUhostFn destroy, unsigned references, unsigned flags)) \
  F(GraphRetainUserObject, "cuGraphRetainUserObject", (CUgraph graph, CUuserObject object, unsigned n, unsigned flags))

/* Entry points for ranks that reach each other's devices. Without all of them, this path is not available. */
#define LP_CUDA_OPTIONAL(F) \
  F(CtxEnablePeerAccess, "cuCtxEnablePeerAccess", (CUcontext peer, unsigned flags)) \
  F(DeviceCanAccessPeer, "cuDeviceCanAccessPeer", (int *can, CUdevice device, CUdevice peer)) \
  F(DevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (CUcontext * ctx, CUdevice device)) \
  F(DeviceTotalMem, "cuDeviceTotalMem_v2", (size_t * bytes, CUdevice device)) \
  F(DeviceGetUuid, "cuDeviceGetUuid_v2", (CUuuid * uuid, CUdevice device)) \
  F(MemGetAddressRange, "cuMemGetAddressRange_v2", (CUdeviceptr * base, size_t * size, CUdeviceptr at)) \
  F(IpcGetMemHandle, "cuIpcGetMemHandle", (CUipcMemHandle * handle, CUdeviceptr at)) \
  F(IpcOpenMemHandle, "cuIpcOpenMemHandle_v2", (CUdeviceptr * at, CUipcMemHandle handle, unsigned flags)) \
  F(IpcCloseMemHandle, "cuIpcCloseMemHandle", (CUdeviceptr at)) \
  F(MemHostRegister, "cuMemHostRegister_v2", (void *at, size_t size, unsigned flags)) \
  F(MemHostUnregister, "cuMemHostUnregister", (void *at)) \
  F(MemHostGetDevicePointer, "cuMemHostGetDevicePointer_v2", (CUdeviceptr * device, void *at, unsigned flags)) \
  F(StreamBatchMemOp, "cuStreamBatchMemOp_v2", \
    (CUstream stream, unsigned n, CUstreamBatchMemOpParams *ops, unsigned flags))

/* Entry points for memory that programs map. */
#define LP_CUDA_MAPPED(F) \
  F(MemAddressReserve, "cuMemAddressReserve", \
    (CUdeviceptr * at, size_t size, size_t align, CUdeviceptr wanted, unsigned long long flags)) \
  F(MemAddressFree, "cuMemAddressFree", (CUdeviceptr at, size_t size)) \
  F(MemMap, "cuMemMap", \
    (CUdeviceptr at, size_t size, size_t offset, CUmemGenericAllocationHandle piece, unsigned long long flags)) \
  F(MemUnmap, "cuMemUnmap", (CUdeviceptr at, size_t size)) \
  F(MemSetAccess, "cuMemSetAccess", (CUdeviceptr at, size_t size, const CUmemAccessDesc *access, size_t n)) \
  F(MemGetAccess, "cuMemGetAccess", (unsigned long long *access, const CUmemLocation *of, CUdeviceptr at)) \
  F(MemRelease, "cuMemRelease", (CUmemGenericAllocationHandle piece)) \
  F(MemRetainAllocationHandle, "cuMemRetainAllocationHandle", (CUmemGenericAllocationHandle * piece, void *at)) \
  F(MemExportToShareableHandle, "cuMemExportToShareableHandle", \
    (void *handle, CUmemGenericAllocationHandle piece, int type, unsigned long long flags)) \
  F(MemImportFromShareableHandle, "cuMemImportFromShareableHandle", \
    (CUmemGenericAllocationHandle * piece, void *handle, int type))

/* Entry points that a driver may lack: for RDMA ports that reach devices, and numbers of streams. */
#define LP_CUDA_REMOTE(F) \
  F(StreamGetId, "cuStreamGetId", (CUstream stream, unsigned long long *id)) \
  F(MemGetHandleForAddressRange, "cuMemGetHandleForAddressRange", \
    (void *handle, CUdeviceptr at, size_t size, int type, unsigned long long flags)) \
  F(FlushGPUDirectRDMAWrites, "cuFlushGPUDirectRDMAWrites", (int target, int scope))

#endif
