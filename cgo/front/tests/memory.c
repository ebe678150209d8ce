/* Memory of ncclMemAlloc, and registrations. */
#include "check.h"

#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

/* Opens the file that is mapped at an address as another process would; -1 without a file. */
static int open_behind(const void* p) {
  char line[4096];
  int fd = -1;
  FILE* maps = fopen("/proc/self/maps", "re");
  CHECK(maps != NULL);
  while (fgets(line, sizeof line, maps) != NULL) {
    unsigned long lo, hi;
    char path[64];
    if (sscanf(line, "%lx-%lx", &lo, &hi) != 2 || (uintptr_t)p < lo || (uintptr_t)p >= hi) continue;
    if (strstr(line, "/memfd:nccl-memory") == NULL) break;
    snprintf(path, sizeof path, "/proc/self/map_files/%lx-%lx", lo, hi);
    fd = open(path, O_RDWR | O_CLOEXEC);
    break;
  }
  fclose(maps);
  return fd;
}

static void shared(void) {
  int* p;
  int *again, fd;
  OK(ncclMemAlloc((void**)&p, 3 << 20));
  CHECK((uintptr_t)p % ((uintptr_t)2 << 20) == 0);
  p[1000] = 42;
  fd = open_behind(p);
  if (fd >= 0) { /* only root may read map_files */
    again = mmap(NULL, 3 << 20, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(again != MAP_FAILED && again[1000] == 42);
    munmap(again, 3 << 20);
    close(fd);
  }
  OK(ncclMemFree(p));
}

/* After ncclMemFree the file, the mapping and the addresses are released. */
static void leaks(void) {
  int files = count_entries("/proc/self/fd"), i;
  for (i = 0; i < 2000; i++) {
    void *a, *b;
    OK(ncclMemAlloc(&a, (size_t)1 + (size_t)i * 997));
    OK(ncclMemAlloc(&b, 1));
    memset(a, 1, 1);
    OK(ncclMemFree(a));
    OK(ncclMemFree(b));
  }
  CHECK(count_entries("/proc/self/fd") == files);
  CHECK(!is_mapped("memfd:nccl-memory"));
}

static void registered(void) {
  ncclComm_t a, b;
  ncclWindow_t win = NULL;
  void *before, *p, *h, *out;
  uint64_t bytes;
  float one = 1;
  OK(ncclMemAlloc(&before, 100)); /* before the core is loaded */
  OK(ncclCommInitAll(&a, 1, NULL));
  OK(ncclCommInitAll(&b, 1, NULL));
  OK(ncclMemAlloc(&p, 10000));
  OK(ncclCommRegister(a, before, 100, &h));
  FAILS(ncclMemFree(before), ncclInvalidUsage, "registered 1 times");
  FAILS(ncclCommDeregister(b, h), ncclInvalidArgument, "another communicator");
  FAILS(ncclWinGetUserPtr(a, (ncclWindow_t)h, &out), ncclInvalidArgument, "not a window");
  OK(ncclCommDeregister(a, h));
  FAILS(ncclCommDeregister(a, h), ncclInvalidArgument, "not registered");
  OK(ncclMemFree(before));
  FAILS(ncclMemFree(before), ncclInvalidArgument, "not from ncclMemAlloc");
  FAILS(ncclMemFree((char*)p + 8), ncclInvalidArgument, "not from ncclMemAlloc");
  FAILS(ncclMemFree(&one), ncclInvalidArgument, "not from ncclMemAlloc");

  FAILS(ncclCommWindowRegister(a, (char*)p + 8, 8, &win, 0), ncclInvalidArgument, "aligned");
  FAILS(ncclCommWindowRegister(a, p, 0, &win, 0), ncclInvalidArgument, "0 bytes");
  FAILS(ncclCommWindowRegister(a, p, 8, &win, 0x100), ncclInvalidArgument, "0x100");
  OK(ncclCommWindowRegister(a, p, 8192, &win, NCCL_WIN_COLL_SYMMETRIC));
  OK(ncclWinGetUserPtr(a, win, &out));
  CHECK(win != NULL && out == p);
  FAILS(ncclCommDeregister(a, win), ncclInvalidArgument, "not a handle");
  FAILS(ncclWinGetUserPtr(b, win, &out), ncclInvalidArgument, "another communicator");
  FAILS(ncclMemFree(p), ncclInvalidUsage, "registered");
  OK(ncclCommWindowDeregister(a, NULL));
  OK(ncclCommDestroy(a)); /* ends its registrations too */
  OK(ncclMemFree(p));
  OK(ncclCommMemStats(b, ncclStatGpuMemTotal, &bytes));
  FAILS(ncclCommMemStats(b, (ncclCommMemStat_t)17, &bytes), ncclInvalidArgument, "17");
  FAILS(ncclCommMemStats(b, ncclStatGpuMemTotal, NULL), ncclInvalidArgument, "value is NULL");
  /* Memory from any allocator may be registered. */
  OK(ncclCommRegister(b, &one, sizeof one, &h));
  OK(ncclAllReduce(&one, &one, 1, ncclFloat, ncclSum, b, NULL));
  OK(ncclCommDestroy(b));
}

int main(void) {
  shared();
  leaks();
  registered();
  return 0;
}
