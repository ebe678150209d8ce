/* NVIDIA's library as the other library, on a machine with or without devices: real PATH, with
 * LIGHTPATH_NCCL_FALLBACK_LIB=PATH. Its calls without a device work. Its calls that need a device return its error.
 * Lightpath's calls work afterwards. */
#include "check.h"

#include <dlfcn.h>

/* Its texts of results are the same as Lightpath's, except for where to report a defect. */
static void words(void* real) {
  __typeof__(ncclGetErrorString)* text;
  int r;
  *(void**)&text = dlsym(real, "ncclGetErrorString");
  CHECK(text != NULL);
  for (r = 0; r <= ncclNumResults; r++) {
    const char *theirs = text((ncclResult_t)r), *ours = ncclGetErrorString((ncclResult_t)r);
    size_t same =
        r == ncclInternalError ? strlen("internal error - please report this issue to the ") : strlen(theirs) + 1;
    if (strncmp(theirs, ours, same) != 0) {
      fprintf(stderr, "result %d: \"%s\", and theirs is \"%s\"\n", r, ours, theirs);
      exit(1);
    }
  }
}

static void alone(void* real) {
  __typeof__(ncclGetVersion)* version;
  __typeof__(ncclGetUniqueId)* draw;
  ncclUniqueId id;
  int theirs, ours;
  *(void**)&version = dlsym(real, "ncclGetVersion");
  *(void**)&draw = dlsym(real, "ncclGetUniqueId");
  CHECK(version != NULL && draw != NULL);
  OK(version(&theirs));
  OK(ncclGetVersion(&ours));
  CHECK(theirs == ours);
  OK(draw(&id));
}

static void behind(void) {
  cudaStream_t stream = (cudaStream_t)(void*)&stream;
  ncclComm_t comm;
  float x = 3;
  OK(ncclCommInitAll(&comm, 1, NULL));
  OK(ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, comm, NULL));
  CHECK(x == 3);
  if (ncclDevCommCreate(comm, NULL, NULL) == ncclInvalidUsage &&
      strstr(ncclGetLastError(NULL), "has no such communicator") != NULL)
    FAILS(ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, comm, stream), ncclInvalidUsage,
          "has no such communicator: ncclCommInit");
  OK(ncclCommDestroy(comm));
}

int main(int argc, char** argv) {
  void* real = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND) : NULL;
  if (real == NULL) {
    fprintf(stderr, "%s\n", argc > 1 ? dlerror() : "real PATH");
    return 1;
  }
  words(real);
  alone(real);
  behind();
  return 0;
}
