/* The kernels of a context: from one module of machine code, or from a module of text for each element type. They are
 * loaded at their first use. */
#include "library.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TYPES = 12, OPERATORS = 4, VECTOR = 16 };

static const char *const type_names[TYPES] = {"int8", "uint8", "int32",  "uint32",   "int64",  "uint64",
                                              "half", "float", "double", "bfloat16", "f8e4m3", "f8e5m2"};
static const unsigned type_sizes[TYPES] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
static const char *const operator_names[OPERATORS] = {"sum", "prod", "max", "min"};

/* A context that has had a kernel. It is never freed, and found by its id, which no later context has. */
struct context {
  struct context *next;
  unsigned long long id;
  unsigned blocks; /* the most that run at once */
  bool copied, launched; /* lpc_first_use */
  CUfunction functions[TYPES][OPERATORS];
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards changes of contexts */
static struct context *contexts;

/* The log of the driver's compiler on this thread. */
static __thread char compiler_log[1024];

int lpc_take_log(char *log, size_t size) {
  if (compiler_log[0] == '\0') return 0;
  snprintf(log, size, "%s", compiler_log);
  compiler_log[0] = '\0';
  return 1;
}

static struct context *find(unsigned long long id) {
  struct context *x = __atomic_load_n(&contexts, __ATOMIC_ACQUIRE);
  while (x != NULL && x->id != id) x = x->next;
  return x;
}

/* Handles of contexts in which communicators were made, with their ids. A driver may give a later context the same
 * handle, with another id. A communicator of that context notes it. */
struct handle {
  struct handle *next;
  uintptr_t ctx;
  unsigned long long id;
};

static struct handle *handles;
static __thread uintptr_t known; /* lpc_know_context */

void lpc_know_context(uintptr_t ctx) { known = ctx; }

void lpc_note_context(uintptr_t ctx, unsigned long long id) {
  struct handle *h;
  pthread_mutex_lock(&mutex);
  for (h = handles; h != NULL && h->ctx != ctx; h = h->next) {
  }
  if (h == NULL && (h = calloc(1, sizeof *h)) != NULL) {
    h->ctx = ctx;
    h->next = handles;
    __atomic_store_n(&handles, h, __ATOMIC_RELEASE);
  }
  if (h != NULL) __atomic_store_n(&h->id, id, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&mutex);
}

static CUresult current(unsigned long long *id, const char **step) {
  CUcontext ctx = NULL;
  CUresult rc = lpc.CtxGetCurrent(&ctx);
  *step = "cuCtxGetId";
  return rc != CUDA_SUCCESS ? rc : lpc.CtxGetId(ctx, id);
}

static CUresult add(unsigned long long id, struct context **added, const char **step) {
  int device, processors;
  struct context *x;
  CUresult rc;
  *step = "cuCtxGetDevice";
  if ((rc = lpc.CtxGetDevice(&device)) != CUDA_SUCCESS) return rc;
  *step = "cuDeviceGetAttribute";
  rc = lpc.DeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
  if (rc != CUDA_SUCCESS) return rc;
  if ((x = calloc(1, sizeof *x)) == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  x->id = id;
  x->blocks = (unsigned)processors * LP_REDUCE_BLOCKS;
  x->next = contexts;
  __atomic_store_n(&contexts, x, __ATOMIC_RELEASE);
  *added = x;
  return CUDA_SUCCESS;
}

static CUresult architecture_of(int *architecture) {
  int major = 0, minor = 0;
  CUdevice device;
  CUresult rc = lpc.CtxGetDevice(&device);
  if (rc == CUDA_SUCCESS) rc = lpc.DeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
  if (rc == CUDA_SUCCESS) rc = lpc.DeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
  *architecture = 10 * major + minor;
  return rc;
}

CUresult lpc_missing_kernels(unsigned *types, int *architecture, const char **step) {
  unsigned long long id;
  struct context *x;
  CUresult rc = current(&id, step);
  int type;
  if (rc != CUDA_SUCCESS) return rc;
  *types = (1u << TYPES) - 1;
  x = find(id);
  for (type = 0; x != NULL && type < TYPES; type++)
    if (__atomic_load_n(&x->functions[type][OPERATORS - 1], __ATOMIC_ACQUIRE) != NULL) *types &= ~(1u << type);
  if (*types == 0) return CUDA_SUCCESS;
  *step = "cuDeviceGetAttribute";
  return architecture_of(architecture);
}

static CUresult find_functions(CUmodule module, unsigned types, CUfunction (*functions)[OPERATORS]) {
  CUresult rc = CUDA_SUCCESS;
  char name[64];
  int type, op;
  for (type = 0; type < TYPES; type++)
    for (op = 0; rc == CUDA_SUCCESS && types >> type & 1 && op < OPERATORS; op++) {
      snprintf(name, sizeof name, "lightpath_reduce_%s_%s", type_names[type], operator_names[op]);
      rc = lpc.ModuleGetFunction(&functions[type][op], module, name);
    }
  return rc;
}

static CUresult load(struct context *x, unsigned types, const void *image, const char **step) {
  int options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void *values[] = {compiler_log, (void *)(uintptr_t)(sizeof compiler_log - 1)};
  CUfunction functions[TYPES][OPERATORS] = {{NULL}};
  CUmodule module;
  CUresult rc;
  int type, op;
  *step = "cuModuleLoadDataEx";
  compiler_log[0] = '\0';
  rc = lpc.ModuleLoadDataEx(&module, image, 2, options, values);
  if (rc != CUDA_SUCCESS) return rc;
  compiler_log[0] = '\0';
  *step = "cuModuleGetFunction";
  rc = find_functions(module, types, functions);
  if (rc != CUDA_SUCCESS) {
    (void)lpc.ModuleUnload(module);
    return rc;
  }
  for (type = 0; type < TYPES; type++)
    for (op = 0; types >> type & 1 && op < OPERATORS; op++)
      __atomic_store_n(&x->functions[type][op], functions[type][op], __ATOMIC_RELEASE);
  return CUDA_SUCCESS;
}

CUresult lpc_load_kernels(unsigned types, const void *image, const char **step) {
  unsigned long long id;
  struct context *x;
  CUresult rc = current(&id, step);
  if (rc != CUDA_SUCCESS) return rc;
  pthread_mutex_lock(&mutex);
  x = find(id);
  if (x == NULL) rc = add(id, &x, step);
  if (rc == CUDA_SUCCESS) rc = load(x, types, image, step);
  pthread_mutex_unlock(&mutex);
  return rc;
}

/* Copies of each kind in memory of the device, and to and from the host. */
static CUresult copy_first(CUdeviceptr at, void *host, CUstream s, const char **step) {
  const CUmemcpy2D rows = {.src_type = CU_MEMORYTYPE_UNIFIED, .src = at, .src_pitch = 2 * VECTOR,
                           .dst_type = CU_MEMORYTYPE_UNIFIED, .dst = at + VECTOR, .dst_pitch = 2 * VECTOR,
                           .width = VECTOR, .height = 2};
  CUresult rc;
  *step = "cuMemcpyAsync";
  if ((rc = lpc.MemcpyHtoDAsync(at, host, VECTOR, s)) != CUDA_SUCCESS) return rc;
  if ((rc = lpc.MemcpyDtoHAsync(host, at, VECTOR, s)) != CUDA_SUCCESS) return rc;
  if ((rc = lpc.MemcpyAsync(at, at + VECTOR, VECTOR, s)) != CUDA_SUCCESS) return rc;
  return lpc.Memcpy2DAsync(&rows, s);
}

static CUresult launch_first(struct context *x, CUstream s, const char **step) {
  struct lp_reduction nothing = {.divisor = 1};
  void *arguments[] = {&nothing};
  CUresult rc = CUDA_SUCCESS;
  int type, op;
  *step = "cuLaunchKernel";
  for (type = 0; type < TYPES; type++)
    for (op = 0; rc == CUDA_SUCCESS && op < OPERATORS; op++)
      rc = lpc.LaunchKernel(x->functions[type][op], 1, 1, 1, LP_REDUCE_THREADS, 1, 1, 0, s, arguments, NULL);
  return rc;
}

/* Its stream and its little memory are never freed: freeing would wait for the device, too. */
CUresult lpc_first_use(bool kernels, const char **step) {
  unsigned long long id;
  struct context *x;
  CUdeviceptr at = 0;
  CUstream s = NULL;
  void *host = NULL;
  CUresult rc = current(&id, step);
  if (rc != CUDA_SUCCESS || lpc.lacks[LPC_PEERS] != NULL) return rc;
  pthread_mutex_lock(&mutex);
  if ((x = find(id)) == NULL) rc = add(id, &x, step);
  if (rc != CUDA_SUCCESS || (x->copied && (x->launched || !kernels))) {
    pthread_mutex_unlock(&mutex);
    return rc;
  }
  *step = "cuStreamCreate";
  rc = lpc.StreamCreate(&s, CU_STREAM_NON_BLOCKING);
  if (rc == CUDA_SUCCESS && !x->copied) {
    *step = "cuMemAlloc", rc = lpc.MemAlloc(&at, 4 * VECTOR);
    if (rc == CUDA_SUCCESS) *step = "cuMemHostAlloc", rc = lpc.MemHostAlloc(&host, VECTOR, CU_MEMHOSTALLOC_PORTABLE);
    if (rc == CUDA_SUCCESS) rc = copy_first(at, host, s, step);
    x->copied = rc == CUDA_SUCCESS;
  }
  if (rc == CUDA_SUCCESS && kernels && !x->launched) {
    rc = launch_first(x, s, step);
    x->launched = rc == CUDA_SUCCESS;
  }
  pthread_mutex_unlock(&mutex);
  return rc;
}

/* Gives each job the blocks that it can use, or its share of the blocks that run at once. Returns their number. */
static unsigned divide(struct lp_reduction *r, unsigned size, unsigned most) {
  unsigned long long need[LP_REDUCE_COPIES + 1], bytes[LP_REDUCE_COPIES + 1], needed = 0, all = 0, blocks = 0;
  unsigned j;
  for (j = 0; j <= r->copies; j++) {
    bytes[j] = r->job[j].count * (j == 0 ? r->n + r->targets + 1 : 2);
    need[j] = r->job[j].count == 0 ? 0 : r->job[j].count / (LP_REDUCE_THREADS * VECTOR / size) + 1;
    needed += need[j];
    all += bytes[j];
  }
  for (j = 0; j <= r->copies; j++) {
    unsigned long long share = need[j];
    r->first[j] = (unsigned short)blocks;
    if (needed > most && share > 0) {
      share = (unsigned long long)((double)bytes[j] / (double)all * most);
      share = share < 1 ? 1 : share > need[j] ? need[j] : share;
    }
    blocks += share;
  }
  r->first[j] = (unsigned short)blocks;
  return blocks > 0 ? (unsigned)blocks : 1;
}

/* current without a call of the driver, if the thread has entered a context whose handle was noted. */
static CUresult entered(unsigned long long *id, const char **step) {
  struct handle *h = known != 0 ? __atomic_load_n(&handles, __ATOMIC_ACQUIRE) : NULL;
  while (h != NULL && h->ctx != known) h = h->next;
  if (h == NULL) return current(id, step);
  *id = __atomic_load_n(&h->id, __ATOMIC_ACQUIRE);
  return CUDA_SUCCESS;
}

CUresult lpc_reduce(int type, int op, struct lp_reduction *r, uintptr_t stream, const char **step) {
  unsigned long long id;
  void *arguments[] = {r};
  struct context *x;
  CUfunction f;
  CUresult rc = entered(&id, step);
  if (rc != CUDA_SUCCESS) return rc;
  x = find(id);
  f = x != NULL ? __atomic_load_n(&x->functions[type][op], __ATOMIC_ACQUIRE) : NULL;
  if (f == NULL) return LPC_NOT_LOADED;
  *step = "cuLaunchKernel";
  return lpc.LaunchKernel(f, divide(r, type_sizes[type], x->blocks), 1, 1, LP_REDUCE_THREADS, 1, 1, 0, (CUstream)stream,
                         arguments, NULL);
}
