/* Finds the libcuda.so.1 that the program has loaded. It loads none: a program without it has no device pointers, and
 * loading it would take a second and some memory of every device. */
#include "library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
struct lpc_library lpc;
static bool loaded; /* atomic: lpc does not change any more */
static char failure[160];

static const struct {
  const char *symbol;
  size_t at;
  int need;
} functions[] = {
#define FUNCTION(name, symbol, need) {symbol, offsetof(struct lpc_library, name), need},
#define FOR_EVERYTHING(name, symbol, params) FUNCTION(name, symbol, LPC_EVERYTHING)
#define FOR_PEERS(name, symbol, params) FUNCTION(name, symbol, LPC_PEERS)
#define FOR_MAPPED(name, symbol, params) FUNCTION(name, symbol, LPC_MAPPED)
#define FOR_FEW(name, symbol, params) FUNCTION(name, symbol, LPC_FEW)
  LP_CUDA_FUNCTIONS(FOR_EVERYTHING)
  LP_CUDA_OPTIONAL(FOR_PEERS)
  LP_CUDA_MAPPED(FOR_MAPPED)
  LP_CUDA_REMOTE(FOR_FEW)
};

static bool load(void) {
  void *so = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
  int version = 0;
  size_t i;
  if (so == NULL) return false;
  for (i = 0; i < sizeof functions / sizeof *functions; i++) {
    const char **lacks = &lpc.lacks[functions[i].need];
    void *at = dlsym(so, functions[i].symbol);
    *(void **)((char *)&lpc + functions[i].at) = at;
    if (at == NULL && *lacks == NULL) *lacks = functions[i].symbol;
  }
  if (lpc.lacks[LPC_EVERYTHING] == NULL) return true;
  if (lpc.DriverGetVersion != NULL) (void)lpc.DriverGetVersion(&version);
  snprintf(failure, sizeof failure, "the CUDA driver (for CUDA %d.%d) has no %s: one for CUDA 12.0 or later is needed",
           version / 1000, version % 1000 / 10, lpc.lacks[LPC_EVERYTHING]);
  return false;
}

bool lpc_load(const char **why) {
  bool found = __atomic_load_n(&loaded, __ATOMIC_ACQUIRE);
  *why = NULL;
  if (found) return true;
  pthread_mutex_lock(&mutex);
  found = loaded || (failure[0] == '\0' && load());
  __atomic_store_n(&loaded, found, __ATOMIC_RELEASE);
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
