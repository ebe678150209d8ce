/* Begins each function of the interface: takes its context's lock, waits under it for the device
 * (docs/design/gpu-model.md), and returns the errors that tests inject. */
#include <stdlib.h>
#include <string.h>

#include "stub.h"

/* Calls that may wait for the device. */
static const char *const waiting[] = {
    "cuStreamCreate",  "cuEventCreate",      "cuEventDestroy_v2",   "cuModuleLoadDataEx",  "cuModuleUnload",
    "cuLaunchKernel",  "cuMemcpy",           "cuMemAlloc_v2",       "cuMemFree_v2",        "cuMemHostAlloc",
    "cuMemFreeHost",   "cuMemHostRegister_v2", "cuMemHostUnregister", "cuIpcOpenMemHandle_v2", "cuIpcCloseMemHandle",
    "cuMemMap",        "cuMemUnmap",         "cuMemSetAccess",      "cuMemImportFromShareableHandle",
};

/* Calls without the lock, by the beginning of their names. */
static const char *const free_calls[] = {"cuInit", "cuCtx", "cuDevice", "cuDriver", "cuGetError", "cuThread",
                                         "cuStreamSynchronize", "cuStreamDestroy"};

static bool locks, drains[sizeof waiting / sizeof *waiting];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool lists(const char *list, const char *name) {
  size_t n = strcspn(name, "_"); /* names without versions */
  for (; list != NULL && *list != '\0'; list += strcspn(list, ","), list += *list == ',')
    if (strcspn(list, ",") == n && strncmp(list, name, n) == 0) return true;
  return false;
}

static void configure(void) {
  const char *names = getenv("STUB_CUDA_DRAIN"), *queues = getenv("STUB_CUDA_QUEUES");
  size_t i;
  locks = (names != NULL && *names != '\0') || (queues != NULL && *queues != '\0');
  for (i = 0; names != NULL && i < sizeof waiting / sizeof *waiting; i++)
    drains[i] = strcmp(names, "all") == 0 || lists(names, waiting[i]);
}

static bool waits(const char *function) {
  size_t i;
  for (i = 0; i < sizeof waiting / sizeof *waiting; i++)
    if (strcmp(function, waiting[i]) == 0) return drains[i];
  return false;
}

/* Launches and copies only wait the first time. */
static bool always_waits(const char *function) { return strcmp(function, "cuLaunchKernel") != 0 && waits(function); }

static bool is_free(const char *function) {
  size_t i;
  for (i = 0; i < sizeof free_calls / sizeof *free_calls; i++)
    if (strncmp(function, free_calls[i], strlen(free_calls[i])) == 0) return true;
  return false;
}

/* ---- Errors ---- */

static char failing[64];
static CUresult fail_with;
static int fail_after;
static bool initialized;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards these */

/* For tests: makes a function fail with error after so many successes. NULL ends that. */
STUB_API void stubFail(const char *function, CUresult error, int after) {
  pthread_mutex_lock(&mutex);
  failing[0] = '\0';
  if (function != NULL) strncpy(failing, function, sizeof failing - 1);
  fail_with = error;
  fail_after = after;
  pthread_mutex_unlock(&mutex);
}

/* Most calls return the error of a context that has failed. */
static CUresult sticky(const char *function) {
  static const char *const prefixes[] = {"cuStream", "cuEvent", "cuMem", "cuLaunch", "cuModule", "cuGraph"};
  size_t i;
  for (i = 0; stub_current() != NULL && i < sizeof prefixes / sizeof *prefixes; i++)
    if (strncmp(function, prefixes[i], strlen(prefixes[i])) == 0) return stub_failed(stub_current());
  return CUDA_SUCCESS;
}

static CUresult error_of(const char *function) {
  CUresult rc = sticky(function);
  pthread_mutex_lock(&mutex);
  if (stub_called_back())
    rc = CUDA_ERROR_NOT_PERMITTED;
  else if (!initialized && strcmp(function, "cuInit") != 0 && strcmp(function, "cuDriverGetVersion") != 0)
    rc = CUDA_ERROR_NOT_INITIALIZED;
  else if (strcmp(function, failing) == 0 && fail_after-- <= 0)
    rc = fail_with;
  pthread_mutex_unlock(&mutex);
  return rc;
}

/* ---- Functions of the interface ---- */

CUresult stub_begin(const char *function, CUcontext *held) {
  CUcontext ctx = stub_current();
  CUresult rc;
  pthread_once(&once, configure);
  stub_count_call(function);
  if (locks && ctx != NULL && !stub_called_back() && !is_free(function)) {
    pthread_mutex_lock(&ctx->lock);
    *held = ctx;
  }
  rc = error_of(function);
  if (rc == CUDA_SUCCESS && *held != NULL && always_waits(function)) stub_drain_context(ctx);
  return rc;
}

void stub_unlock(CUcontext *held) {
  if (*held != NULL) pthread_mutex_unlock(&(*held)->lock);
}

void stub_first(const char *function, CUcontext ctx, bool *had) {
  pthread_once(&once, configure);
  if (!waits(function) || __atomic_exchange_n(had, true, __ATOMIC_ACQ_REL)) return;
  stub_drain_context(ctx);
}

void stub_drain_unlocked(CUstream s) {
  if (locks) pthread_mutex_unlock(&s->ctx->lock);
  stub_drain(s);
  if (locks) pthread_mutex_lock(&s->ctx->lock);
}

STUB_API CUresult cuInit(unsigned flags) {
  (void)flags;
  BEGIN();
  if (stub_devices() == 0) return CUDA_ERROR_NO_DEVICE;
  pthread_mutex_lock(&mutex);
  initialized = true;
  pthread_mutex_unlock(&mutex);
  return CUDA_SUCCESS;
}
