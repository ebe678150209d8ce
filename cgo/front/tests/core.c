/* Tests the core without the front: argv[1] is its path. It gives its table of functions only for the version of
 * the interface that it knows, and a panic in it becomes an error of the call. */
#include "check.h"

#include <dlfcn.h>

#include "../../core/lp_core.h"

int main(int argc, char** argv) {
  const struct lp_core* (*table)(uint32_t);
  const struct lp_core* core;
  char err[64];
  void* lib;
  int i;
  CHECK(argc == 2);
  lib = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (lib == NULL) fprintf(stderr, "%s\n", dlerror());
  CHECK(lib != NULL);
  *(void**)&table = dlsym(lib, "lpCoreTable");
  CHECK(table != NULL);
  CHECK(table(LP_CORE_ABI + 1) == NULL);
  core = table(LP_CORE_ABI);
  CHECK(core != NULL && table(LP_CORE_ABI) == core && core->version[0] != '\0');
  for (i = 0; i < 3; i++) {
    memset(err, '#', sizeof err);
    IS(core->check(NULL, err, sizeof err), ncclInternalError);
    CHECK(memchr(err, '\0', sizeof err) != NULL && strstr(err, "panic") != NULL);
  }
  /* A text never passes the end of its buffer, and the buffer may be NULL. */
  memset(err, '#', sizeof err);
  IS(core->act(12345, LP_DESTROY, err, 8), ncclInvalidArgument);
  CHECK(err[7] == '\0' && err[8] == '#');
  IS(core->act(12345, LP_DESTROY, NULL, 0), ncclInvalidArgument);
  return 0;
}
