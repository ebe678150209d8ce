/* The library that makes the calls: LIGHTPATH_ITERATION_LIBRARY, else the libnccl.so.2 beside this one. */
#include "record.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static void* library;
static char path[4096];

static void say(const char* what, const char* why) {
  fprintf(stderr, "lightpath iteration record: %s: %s\n", what, why);
}

static void load(void) {
  const char* given = getenv("LIGHTPATH_ITERATION_LIBRARY");
  Dl_info self = {0}, its;
  char* slash;
  dladdr(&once, &self);
  if (given != NULL && given[0] != '\0') {
    snprintf(path, sizeof path, "%s", given);
  } else if (self.dli_fname != NULL) {
    snprintf(path, sizeof path, "%s", self.dli_fname);
    slash = strrchr(path, '/');
    snprintf(slash != NULL ? slash + 1 : path, 16, "libnccl.so.2");
  }
  /* Its own calls reach its own functions. Programs also reach its functions that are unknown here. */
  library = dlopen(path, RTLD_LAZY | RTLD_GLOBAL | RTLD_DEEPBIND);
  if (library == NULL) {
    say("cannot load the library that makes the calls", dlerror());
  } else if (dladdr(dlsym(library, "ncclGroupStart"), &its) != 0 && its.dli_fbase == self.dli_fbase) {
    say(path, "is the recorder itself; name the library that makes the calls");
    library = NULL;
  }
}

/* Stand for functions that are not there. */
static ncclResult_t missing(void) { return ncclInvalidUsage; }
static const char* no_text(void) { return "the library that makes the calls is not there, or lacks a function"; }

void* lp_real(const char* name) {
  void* symbol;
  pthread_once(&once, load);
  symbol = library != NULL ? dlsym(library, name) : NULL;
  if (symbol != NULL) return symbol;
  if (library != NULL) say(name, "the library that makes the calls lacks it");
  if (strcmp(name, "ncclGetErrorString") == 0 || strcmp(name, "ncclGetLastError") == 0) return (void*)no_text;
  return (void*)missing;
}

const char* lp_real_path(void) { return path; }
