/* Finds the libcuda.so.1 that the program has loaded. It loads none: a program without it has no device pointers, and
 * loading it would take a second and some memory of every device. */
#include "library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct lpc_library library;
static const struct lpc_library *loaded;
static char failure[160];

static const struct { const char *symbol; size_t at; } symbols[] = {
#define FUNCTION(name, symbol, params) {symbol, offsetof(struct lpc_library, name)},
  LP_CUDA_FUNCTIONS(FUNCTION)
#undef FUNCTION
};

static const struct { const char *symbol; size_t at; } optional[] = {
#define FUNCTION(name, symbol, params) {symbol, offsetof(struct lpc_library, name)},
  LP_CUDA_OPTIONAL(FUNCTION)
#undef FUNCTION
};

/* What few programs need. */
static const struct { const char *symbol; size_t at; } others[] = {
#define FUNCTION(name, symbol, params) {symbol, offsetof(struct lpc_library, name)},
  LP_CUDA_MAPPED(FUNCTION)
  LP_CUDA_REMOTE(FUNCTION)
#undef FUNCTION
};

static void load(void) {
  void *so = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
  size_t i;
  if (so == NULL) return;
  for (i = 0; i < sizeof symbols / sizeof *symbols; i++) {
    void *at = dlsym(so, symbols[i].symbol);
    if (at == NULL) {
      int version = 0;
      CUresult (*ask)(int *) = (CUresult(*)(int *))dlsym(so, "cuDriverGetVersion");
      if (ask != NULL) (void)ask(&version);
      snprintf(failure, sizeof failure,
               "the CUDA driver (for CUDA %d.%d) has no %s: one for CUDA 12.0 or later is needed", version / 1000,
               version % 1000 / 10, symbols[i].symbol);
      return;
    }
    *(void **)((char *)&library + symbols[i].at) = at;
  }
  for (i = 0; i < sizeof optional / sizeof *optional; i++) {
    void *at = dlsym(so, optional[i].symbol);
    if (at == NULL && library.lacks == NULL) library.lacks = optional[i].symbol;
    *(void **)((char *)&library + optional[i].at) = at;
  }
  for (i = 0; i < sizeof others / sizeof *others; i++)
    *(void **)((char *)&library + others[i].at) = dlsym(so, others[i].symbol);
  loaded = &library;
}

const struct lpc_library *lpc_load(const char **why) {
  const struct lpc_library *found = __atomic_load_n(&loaded, __ATOMIC_ACQUIRE);
  *why = NULL;
  if (found != NULL) return found;
  pthread_mutex_lock(&mutex);
  if (loaded == NULL && failure[0] == '\0') load();
  found = loaded;
  if (failure[0] != '\0') *why = failure;
  pthread_mutex_unlock(&mutex);
  return found;
}

int lpc_runtime_device(int *device) {
  static const char *const names[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"};
  size_t i;
  for (i = 0; i < sizeof names / sizeof *names; i++) {
    void *so = dlopen(names[i], RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
    int (*ask)(int *) = so != NULL ? (int (*)(int *))dlsym(so, "cudaGetDevice") : NULL;
    int found = ask != NULL && ask(device) == 0;
    if (so != NULL) dlclose(so);
    if (found) return 1;
  }
  return 0;
}
