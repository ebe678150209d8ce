/* Loading the core, and what fork does to it.
 *
 * The core is a Go library. It is loaded by the first call that needs it, because a Go runtime in a
 * process starts threads, takes signal handlers and does not survive fork: a child has its memory but
 * none of its threads, and would hang in the first call. So in such a child every call that needs
 * the core fails at once. A child that was forked before loads its own. */
#include "front.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_once_t load_once = PTHREAD_ONCE_INIT;
static atomic_bool loading; /* set before the first thread of the core can exist */
static atomic_bool forked;
static const struct lp_core* core;
static char load_error[LP_ERR_BYTES];

static void in_child(void) {
  lp_error_after_fork();
  if (atomic_load(&loading)) atomic_store(&forked, true);
}

__attribute__((constructor)) static void watch_fork(void) { pthread_atfork(NULL, NULL, in_child); }

/* Writes the core's path: LIGHTPATH_CORE, else the file beside this library. */
static bool core_path(char* path, size_t size) {
  const char* given = secure_getenv("LIGHTPATH_CORE");
  Dl_info self;
  const char* slash;
  if (given != NULL && given[0] != '\0') return (size_t)snprintf(path, size, "%s", given) < size;
  if (dladdr(&load_once, &self) == 0 || self.dli_fname == NULL) return false;
  slash = strrchr(self.dli_fname, '/');
  if (slash == NULL) return (size_t)snprintf(path, size, "liblightpath.so") < size;
  return (size_t)snprintf(path, size, "%.*s/liblightpath.so", (int)(slash - self.dli_fname),
                          self.dli_fname) < size;
}

static void load(void) {
  char path[4096];
  void* library;
  const struct lp_core* (*table)(uint32_t);
  const struct lp_core* t;
  atomic_store(&loading, true);
  if (!core_path(path, sizeof path)) {
    snprintf(load_error, sizeof load_error, "cannot tell where liblightpath.so is; set LIGHTPATH_CORE to its path");
    return;
  }
  library = dlopen(path, RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
  if (library == NULL) {
    snprintf(load_error, sizeof load_error,
             "cannot load the core of Lightpath: %s (liblightpath.so belongs beside libnccl.so.2, or set LIGHTPATH_CORE)",
             dlerror());
    return;
  }
  *(void**)&table = dlsym(library, "lpCoreTable");
  t = table != NULL ? table(LP_CORE_ABI) : NULL;
  if (t == NULL || t->abi != LP_CORE_ABI || t->size < sizeof *t) {
    snprintf(load_error, sizeof load_error,
             "%.600s does not fit this libnccl.so.2 (Lightpath %s, core interface %u): install both from one build",
             path, LP_VERSION, LP_CORE_ABI);
    return;
  }
  core = t;
}

bool lp_forked(void) { return atomic_load_explicit(&forked, memory_order_relaxed); }

ncclResult_t lp_fail_forked(void) {
  return lp_fail(ncclInvalidUsage,
                 "this process was forked after its parent had used NCCL, which cannot work: fork before the "
                 "first NCCL call, or start the child with exec (multiprocessing method \"spawn\" or \"forkserver\")");
}

const struct lp_core* lp_core(ncclResult_t* why) {
  if (lp_forked()) {
    *why = lp_fail_forked();
    return NULL;
  }
  pthread_once(&load_once, load);
  if (core == NULL) *why = lp_fail(ncclSystemError, "%s", load_error);
  return core;
}
