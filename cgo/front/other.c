/* The other libnccl, if LIGHTPATH_NCCL_FALLBACK_LIB names one: loading it, and its answers. It is loaded so that it
 * sees its own symbols, and only we see them. */
#include "other.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static void* library; /* NULL if there is none */
static char path[4096];
static char load_error[LP_ERR_BYTES]; /* why the one that was asked for is not loaded */
static bool takes_all;                /* LIGHTPATH_FALLBACK=all */
static bool interposes;               /* LIGHTPATH_FALLBACK=interpose */

/* Whether a library is Lightpath, this copy or another: its calls would come back here. */
static bool is_lightpath(void* candidate) {
  void* symbol = dlsym(candidate, "pncclGetLastError");
  char beside[sizeof path + 32];
  Dl_info info;
  char* slash;
  if (symbol == (void*)pncclGetLastError) return true;
  if (symbol == NULL || dladdr(symbol, &info) == 0) return false;
  snprintf(beside, sizeof beside, "%s", info.dli_fname);
  slash = strrchr(beside, '/');
  snprintf(slash != NULL ? slash + 1 : beside, 32, "liblightpath.so");
  return access(beside, F_OK) == 0;
}

static void load(void) {
  const char *file = lp_env("LIGHTPATH_NCCL_FALLBACK_LIB"), *policy = lp_env("LIGHTPATH_FALLBACK");
  void* candidate;
  if (file == NULL || file[0] == '\0') return;
  if (policy != NULL && policy[0] != '\0' && strcmp(policy, "auto") != 0) {
    takes_all = strcmp(policy, "all") == 0;
    interposes = strcmp(policy, "interpose") == 0;
    if (!takes_all && !interposes) return; /* not set, or a value that init refuses */
  }
  snprintf(path, sizeof path, "%s", file);
  candidate = dlopen(path, RTLD_LAZY | RTLD_LOCAL | RTLD_DEEPBIND);
  if (candidate == NULL) {
    snprintf(load_error, sizeof load_error, "LIGHTPATH_NCCL_FALLBACK_LIB: cannot load %s", dlerror());
  } else if (is_lightpath(candidate)) {
    snprintf(load_error, sizeof load_error, "LIGHTPATH_NCCL_FALLBACK_LIB: %.800s is Lightpath itself", path);
  } else {
    library = candidate;
  }
}

bool lp_other(void) {
  pthread_once(&once, load);
  return library != NULL;
}

bool lp_other_takes_all(void) { return lp_other() && takes_all; }
bool lp_other_interposes(void) { return lp_other() && interposes; }

ncclResult_t lp_other_check(void) {
  pthread_once(&once, load);
  return load_error[0] == '\0' ? ncclSuccess : lp_fail(ncclInvalidUsage, "%s", load_error);
}

void* lp_other_symbol(const char* name, ncclResult_t* why) {
  void* symbol = lp_other() ? dlsym(library, name) : NULL;
  if (symbol == NULL)
    *why = lp_fail(ncclInvalidUsage, "%s: the library of LIGHTPATH_NCCL_FALLBACK_LIB, %s, lacks it", name, path);
  return symbol;
}

void lp_other_text(ncclResult_t rc, char* text, size_t size) {
  __typeof__(ncclGetLastError)* last;
  const char* said = NULL;
  *(void**)&last = dlsym(library, "ncclGetLastError");
  if (last != NULL) said = last(NULL);
  snprintf(text, size, "%s", said != NULL && said[0] != '\0' ? said : pncclGetErrorString(rc));
}

ncclResult_t lp_other_result(const char* function, ncclResult_t rc) {
  char text[600];
  if (rc == ncclSuccess || rc == ncclInProgress) return rc;
  lp_other_text(rc, text, sizeof text);
  return lp_fail(rc, "%s, done by %s: %s", function, path, text);
}

const char* lp_other_path(void) { return path; }

/* The driver's cuPointerGetAttribute. NULL if this process has not loaded the driver. */
typedef int pointer_attribute(void* data, int attribute, uint64_t pointer);

static pointer_attribute* driver(void) {
  static _Atomic(pointer_attribute*) known;
  pointer_attribute* ask = atomic_load(&known);
  void* cuda;
  if (ask != NULL) return ask;
  cuda = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (cuda == NULL) return NULL;
  *(void**)&ask = dlsym(cuda, "cuPointerGetAttribute");
  atomic_store(&known, ask);
  return ask;
}

bool lp_cuda(void) { return driver() != NULL; }
bool lp_other_cuda(void) { return lp_other() && lp_cuda(); }

bool lp_other_device(const void* p) {
  enum { MEMORY_TYPE = 2, DEVICE = 2 }; /* CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_MEMORYTYPE_DEVICE */
  pointer_attribute* ask = p != NULL && lp_other() ? driver() : NULL;
  unsigned int type = 0;
  return ask != NULL && ask(&type, MEMORY_TYPE, (uint64_t)(uintptr_t)p) == 0 && type == DEVICE;
}
