/* The core by itself, as the front sees it: argv[1] is its path. A table for the known interface only,
 * and a panic in it is an error and not the end of the program. */
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
  CHECK(core != NULL && core->abi == LP_CORE_ABI && core->size == sizeof *core);
  CHECK(table(LP_CORE_ABI) == core && core->version[0] != '\0');
  for (i = 0; i < 3; i++) {
    memset(err, '#', sizeof err);
    IS(core->check(NULL, err, sizeof err), ncclInternalError);
    CHECK(memchr(err, '\0', sizeof err) != NULL && strstr(err, "panic") != NULL);
  }
  /* Texts never pass the end of the buffer, and need none. */
  memset(err, '#', sizeof err);
  IS(core->destroy(12345, err, 8), ncclInvalidArgument);
  CHECK(err[7] == '\0' && err[8] == '#');
  IS(core->destroy(12345, NULL, 0), ncclInvalidArgument);
  return 0;
}
