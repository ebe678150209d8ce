/* Loads the core, and handles fork.
 *
 * The core is a Go library. The first call that needs it loads it: a Go runtime starts threads, installs signal
 * handlers and does not survive fork. A forked child has the runtime's memory but none of its threads, and would
 * hang in its first call. So in such a child every call that needs the core fails at once. A child that was forked
 * before loads its own core. */
#include "front.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef LP_BUILD /* see build.mk */
#define LP_BUILD LP_VERSION
#endif

static pthread_once_t load_once = PTHREAD_ONCE_INIT;
static atomic_bool loading; /* set before the first thread of the core can exist */
static atomic_bool forked;
static const struct lp_core* core;
static char load_error[LP_ERR_BYTES];
static char beside[PATH_MAX]; /* the core's path, unless LIGHTPATH_CORE names another */

static void in_child(void) {
  lp_error_after_fork();
  lp_regions_after_fork();
  if (atomic_load(&loading)) atomic_store(&forked, true);
}

/* Runs when the library is loaded. It resolves the library's own path now: a relative path
 * (LD_PRELOAD=lib/libnccl.so.2) is valid only until the program changes its directory. */
__attribute__((constructor)) static void prepare(void) {
  static const char name[] = "liblightpath.so";
  Dl_info self;
  char* slash;
  pthread_atfork(NULL, NULL, in_child);
  if (dladdr(&load_once, &self) == 0 || realpath(self.dli_fname, beside) == NULL) beside[0] = '\0';
  slash = strrchr(beside, '/');
  if (slash != NULL && (size_t)(slash + 1 - beside) + sizeof name <= sizeof beside)
    memcpy(slash + 1, name, sizeof name);
  else
    beside[0] = '\0';
}

static void load(void) {
  const char* path = secure_getenv("LIGHTPATH_CORE");
  void* library;
  const struct lp_core* (*table)(uint32_t);
  const struct lp_core* t;
  atomic_store(&loading, true);
  if (path == NULL || path[0] == '\0') path = beside;
  if (path[0] == '\0') {
    snprintf(load_error, sizeof load_error, "cannot tell where liblightpath.so is; set LIGHTPATH_CORE to its path");
    return;
  }
  library = dlopen(path, RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
  if (library == NULL) {
    snprintf(
        load_error, sizeof load_error,
        "cannot load the core of Lightpath: %s (liblightpath.so belongs beside libnccl.so.2, or set LIGHTPATH_CORE)",
        dlerror());
    return;
  }
  *(void**)&table = dlsym(library, "lpCoreTable");
  t = table != NULL ? table(LP_CORE_ABI) : NULL;
  if (t == NULL || strcmp(t->version, LP_BUILD) != 0) {
    snprintf(load_error, sizeof load_error,
             "%.600s (Lightpath %.30s) does not fit this libnccl.so.2 (Lightpath %s): install both from one build",
             path, t != NULL ? t->version : "of another interface", LP_BUILD);
    return;
  }
  t->use_environ(lp_environ);
  lp_regions_tell(t);
  t->use_gates(lp_gates());
  core = t;
}

ncclResult_t lp_check_fork(void) {
  if (!atomic_load_explicit(&forked, memory_order_relaxed)) return ncclSuccess;
  return lp_fail(ncclInvalidUsage,
                 "this process was forked after its parent had used NCCL, which cannot work: fork before the "
                 "first NCCL call, or start the child with exec (multiprocessing method \"spawn\" or \"forkserver\")");
}

const struct lp_core* lp_core(ncclResult_t* why) {
  *why = lp_check_fork();
  if (*why != ncclSuccess) return NULL;
  pthread_once(&load_once, load);
  if (core == NULL) *why = lp_fail(ncclSystemError, "%s", load_error);
  return core;
}
