/* Loading: argv[1] is a path, argv[2] "now" or "lazy". The library loads with either binding and starts no thread.
 * Calls that need no communicator work without the core. It finds its core from any directory. */
#include "check.h"

#include <dlfcn.h>
#include <unistd.h>

/* check.h calls this function, but this program is not linked with the library. */
static const char* (*last_error)(ncclComm_t);
const char* ncclGetLastError(ncclComm_t comm) { return last_error != NULL ? last_error(comm) : "(not loaded)"; }

static void* symbol(void* lib, const char* name) {
  void* s = dlsym(lib, name);
  if (s == NULL) fprintf(stderr, "%s\n", dlerror());
  CHECK(s != NULL);
  return s;
}

int main(int argc, char** argv) {
  int version = 0, ranks = 0;
  ncclResult_t (*get_version)(int*);
  ncclResult_t (*get_id)(ncclUniqueId*);
  ncclResult_t (*init)(ncclComm_t*, int, ncclUniqueId, int);
  ncclResult_t (*count)(ncclComm_t, int*);
  ncclResult_t (*destroy)(ncclComm_t);
  ncclUniqueId id;
  ncclComm_t comm;
  void* lib;
  CHECK(argc == 3);
  lib = dlopen(argv[1], strcmp(argv[2], "now") == 0 ? RTLD_NOW : RTLD_LAZY);
  if (lib == NULL) fprintf(stderr, "%s\n", dlerror());
  CHECK(lib != NULL);
  *(void**)&last_error = symbol(lib, "ncclGetLastError");
  *(void**)&get_version = symbol(lib, "pncclGetVersion");
  *(void**)&get_id = symbol(lib, "ncclGetUniqueId");
  *(void**)&init = symbol(lib, "ncclCommInitRank");
  *(void**)&count = symbol(lib, "ncclCommCount");
  *(void**)&destroy = symbol(lib, "ncclCommDestroy");
  OK(get_version(&version));
  CHECK(version == NCCL_VERSION_CODE);
  CHECK(count_entries("/proc/self/task") == 1);
  CHECK(!is_mapped("liblightpath"));

  CHECK(chdir("/") == 0);
  OK(get_id(&id));
  CHECK(is_mapped("liblightpath"));
  OK(init(&comm, 1, id, 0));
  OK(count(comm, &ranks));
  CHECK(ranks == 1);
  OK(destroy(comm));
  return 0;
}
