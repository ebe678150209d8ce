#include "program.h"

#include <dlfcn.h>

#define FUNCTIONS(F)                                                                                                \
  F(Init, "cuInit", (unsigned flags))                                                                               \
  F(DevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (CUcontext * ctx, CUdevice device))                         \
  F(CtxSetCurrent, "cuCtxSetCurrent", (CUcontext ctx))                                                              \
  F(MemAlloc, "cuMemAlloc_v2", (CUdeviceptr * at, size_t size))                                                     \
  F(MemFree, "cuMemFree_v2", (CUdeviceptr at))                                                                      \
  F(MemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2", (void *dst, CUdeviceptr src, size_t size, CUstream stream))            \
  F(MemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2", (CUdeviceptr dst, const void *src, size_t size, CUstream stream))      \
  F(StreamCreate, "cuStreamCreate", (CUstream * stream, unsigned flags))                                            \
  F(StreamDestroy, "cuStreamDestroy_v2", (CUstream stream))                                                         \
  F(StreamSynchronize, "cuStreamSynchronize", (CUstream stream))                                                    \
  F(LaunchHostFunc, "cuLaunchHostFunc", (CUstream stream, CUhostFn fn, void *data))                                 \
  F(EventCreate, "cuEventCreate", (CUevent * event, unsigned flags))                                                \
  F(EventRecord, "cuEventRecord", (CUevent event, CUstream stream))                                                 \
  F(EventElapsedTime, "cuEventElapsedTime", (float *ms, CUevent from, CUevent to))                                  \
  F(StreamBeginCapture, "cuStreamBeginCapture_v2", (CUstream stream, int mode))                                     \
  F(StreamEndCapture, "cuStreamEndCapture", (CUstream stream, CUgraph * graph))                                     \
  F(GraphInstantiate, "cuGraphInstantiateWithFlags", (CUgraphExec * exec, CUgraph graph, unsigned long long flags)) \
  F(GraphLaunch, "cuGraphLaunch", (CUgraphExec exec, CUstream stream))

#define FUNCTION(name, symbol, params) static CUresult(*name) params;
FUNCTIONS(FUNCTION)
#undef FUNCTION
static void (*fail)(const char *function, CUresult error, int after);
static int (*flushes)(void);

const char *program_open(const char *file) {
  void *so = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (so == NULL) return dlerror();
#define FUNCTION(name, symbol, params) \
  if ((*(void **)&name = dlsym(so, symbol)) == NULL) return dlerror();
  FUNCTIONS(FUNCTION)
#undef FUNCTION
  *(void **)&fail = dlsym(so, "stubFail");
  *(void **)&flushes = dlsym(so, "stubFlushes");
  return Init(0) == CUDA_SUCCESS ? NULL : "cuInit fails";
}

CUresult program_use(int device) {
  CUcontext ctx;
  CUresult rc = DevicePrimaryCtxRetain(&ctx, device);
  return rc != CUDA_SUCCESS ? rc : CtxSetCurrent(ctx);
}

CUresult program_alloc(CUdeviceptr *at, size_t size) { return MemAlloc(at, size); }
CUresult program_free(CUdeviceptr at) { return MemFree(at); }
CUresult program_stream(CUstream *stream) { return StreamCreate(stream, CU_STREAM_NON_BLOCKING); }
CUresult program_sync(uintptr_t stream) { return StreamSynchronize((CUstream)stream); }

CUresult program_timer(uintptr_t timer[2]) {
  CUresult rc = EventCreate((CUevent *)&timer[0], 0);
  return rc != CUDA_SUCCESS ? rc : EventCreate((CUevent *)&timer[1], 0);
}

CUresult program_start(const uintptr_t timer[2], uintptr_t stream) {
  return EventRecord((CUevent)timer[0], (CUstream)stream);
}

CUresult program_stop(const uintptr_t timer[2], uintptr_t stream) {
  return EventRecord((CUevent)timer[1], (CUstream)stream);
}

CUresult program_span(const uintptr_t timer[2], uintptr_t stream, float *ms) {
  CUresult rc = StreamSynchronize((CUstream)stream);
  return rc != CUDA_SUCCESS ? rc : EventElapsedTime(ms, (CUevent)timer[0], (CUevent)timer[1]);
}

static void advance(void *word) { __atomic_fetch_add((uint32_t *)word, 1, __ATOMIC_RELEASE); }

CUresult program_advance(uintptr_t stream, void *word) { return LaunchHostFunc((CUstream)stream, advance, word); }

CUresult program_copy(CUdeviceptr at, void *host, size_t size, int in) {
  CUstream own; /* a stream of the current context */
  CUresult rc = program_stream(&own);
  if (rc == CUDA_SUCCESS) rc = in ? MemcpyHtoDAsync(at, host, size, own) : MemcpyDtoHAsync(host, at, size, own);
  if (rc == CUDA_SUCCESS) rc = StreamSynchronize(own);
  return rc != CUDA_SUCCESS ? rc : StreamDestroy(own);
}

CUresult program_begin(uintptr_t stream) { return StreamBeginCapture((CUstream)stream, CU_STREAM_CAPTURE_MODE_GLOBAL); }

CUresult program_end(uintptr_t stream, uintptr_t *graph) {
  CUgraph g;
  CUresult rc = StreamEndCapture((CUstream)stream, &g);
  return rc != CUDA_SUCCESS ? rc : GraphInstantiate((CUgraphExec *)graph, g, 0);
}

CUresult program_replay(uintptr_t graph, uintptr_t stream) { return GraphLaunch((CUgraphExec)graph, (CUstream)stream); }

int program_flushes(void) { return flushes != NULL ? flushes() : 0; }

void program_fail(const char *function, int error, int after) {
  if (fail != NULL) fail(function, error, after);
}
