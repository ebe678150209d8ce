#include "gpu.h"

#include <stdint.h>

struct gpu gpu;

static const struct { const char *symbol; size_t at; } symbols[] = {
#define FUNCTION(name, symbol, params) {symbol, offsetof(struct gpu, name)},
    LP_CUDA_FUNCTIONS(FUNCTION) LP_CUDA_OPTIONAL(FUNCTION) LP_CUDA_MAPPED(FUNCTION) TEST_FUNCTIONS(FUNCTION)
#undef FUNCTION
};

void gpu_open(void) {
  void *so = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  size_t i;
  if (so == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    exit(1);
  }
  for (i = 0; i < sizeof symbols / sizeof *symbols; i++) {
    void *at = dlsym(so, symbols[i].symbol);
    CHECK(at != NULL || strcmp(symbols[i].symbol, "cuMemcpy2DAsync_v2") == 0); /* an old driver may lack it */
    *(void **)((char *)&gpu + symbols[i].at) = at;
  }
  *(void **)&gpu.Fail = dlsym(so, "stubFail");
  *(void **)&gpu.Hold = dlsym(so, "stubHold");
  *(void **)&gpu.Uses = dlsym(so, "stubUses");
  *(void **)&gpu.Imports = dlsym(so, "stubImports");
  IS(gpu.Init(0), CUDA_SUCCESS);
}

/* The stream of this thread's copies in a context. A driver may make streams, and load what it needs for the first
 * copy, only when the device is idle. So the thread makes them before it has work on the device. */
static CUstream copying(void) {
  enum { MOST = 16 };
  static __thread struct { CUcontext ctx; CUstream stream; } own[MOST];
  CUcontext ctx;
  void *there;
  char byte = 0;
  int i;
  IS(gpu.CtxGetCurrent(&ctx), CUDA_SUCCESS);
  for (i = 0; i < MOST && own[i].ctx != NULL; i++)
    if (own[i].ctx == ctx) return own[i].stream;
  CHECK(i < MOST);
  own[i].ctx = ctx;
  own[i].stream = gpu_stream(CU_STREAM_NON_BLOCKING);
  there = gpu_alloc(1);
  gpu_copy(there, &byte, 1);
  gpu_copy(&byte, there, 1);
  gpu_free(there);
  return own[i].stream;
}

void gpu_use(int device) {
  CUcontext ctx;
  IS(gpu.DevicePrimaryCtxRetain(&ctx, device), CUDA_SUCCESS);
  IS(gpu.CtxSetCurrent(ctx), CUDA_SUCCESS);
  (void)copying();
}

void *gpu_alloc(size_t size) {
  CUdeviceptr at = 0;
  IS(gpu.MemAlloc(&at, size > 0 ? size : 1), CUDA_SUCCESS);
  return (void *)(uintptr_t)at;
}

void gpu_free(void *at) { IS(gpu.MemFree((uintptr_t)at), CUDA_SUCCESS); }

CUstream gpu_stream(unsigned flags) {
  CUstream s;
  IS(gpu.StreamCreate(&s, flags), CUDA_SUCCESS);
  return s;
}

/* Uses a stream of its thread, so that it does not wait for other work. */
void gpu_copy(void *to, const void *from, size_t size) {
  CUstream s;
  unsigned type = 0, managed;
  int device;
  int attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  void *data[] = {&type, &managed, &device};
  if (size == 0) return;
  s = copying();
  IS(gpu.PointerGetAttributes(3, attributes, data, (uintptr_t)to), CUDA_SUCCESS);
  if (type == CU_MEMORYTYPE_DEVICE)
    IS(gpu.MemcpyHtoDAsync((uintptr_t)to, from, size, s), CUDA_SUCCESS);
  else
    IS(gpu.MemcpyDtoHAsync(to, (uintptr_t)from, size, s), CUDA_SUCCESS);
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
}

static pthread_barrier_t barrier;
void meet(void) { pthread_barrier_wait(&barrier); }

static ncclUniqueId id;
static void (*body)(struct rank *);

static void *begin(void *arg) {
  struct rank *r = arg;
  gpu_use(r->device);
  OK(ncclCommInitRank(&r->comm, r->world, id, r->rank));
  body(r);
  if (r->comm != NULL) OK(ncclCommDestroy(r->comm));
  return NULL;
}

void ranks(int n, void (*run)(struct rank *), void *arg) {
  pthread_t threads[16];
  struct rank all[16];
  int i, devices;
  IS(gpu.DeviceGetCount(&devices), CUDA_SUCCESS);
  OK(ncclGetUniqueId(&id));
  body = run;
  pthread_barrier_init(&barrier, NULL, (unsigned)n);
  for (i = 0; i < n; i++) {
    all[i] = (struct rank){i, n, i % devices, devices >= n, NULL, arg};
    CHECK(pthread_create(&threads[i], NULL, begin, &all[i]) == 0);
  }
  for (i = 0; i < n; i++) pthread_join(threads[i], NULL);
  pthread_barrier_destroy(&barrier);
}
