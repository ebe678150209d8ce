/* Memory that ranks can share: ncclMemAlloc, and the registrations that belong to communicators.
 *
 * Where the thread has a context of a device, the memory is the device's, and the core's to allocate. Else:
 * An allocation is a mapping of its own, of a file in memory where the system has files left, so that
 * other processes of the host can map it too; the core knows each, with its file. Registrations are the
 * core's. The core is not needed to allocate: one that is loaded later learns what there is. */
#include "fallback.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Allocations of at least a huge page are aligned to one, and use them where the system allows. */
#define HUGE_PAGE ((size_t)2 << 20)

struct region {
  char* base;
  size_t size; /* of the mapping */
  int fd;      /* -1: private to this process */
};

/* Sorted by base. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct region* regions;
static size_t region_count, region_room;
static const struct lp_core* told; /* the core that knows of all regions, NULL while there is none */

/* Where base is, or would be. */
static size_t position(const char* base) {
  size_t lo = 0, hi = region_count;
  while (lo < hi) {
    size_t mid = (lo + hi) / 2;
    if (regions[mid].base < base)
      lo = mid + 1;
    else
      hi = mid;
  }
  return lo;
}

static bool remember(struct region r) {
  size_t at;
  if (region_count == region_room) {
    size_t room = region_room == 0 ? 64 : 2 * region_room;
    struct region* bigger = realloc(regions, room * sizeof *bigger);
    if (bigger == NULL) return false;
    regions = bigger;
    region_room = room;
  }
  at = position(r.base);
  memmove(&regions[at + 1], &regions[at], (region_count - at) * sizeof *regions);
  regions[at] = r;
  region_count++;
  if (told != NULL) told->memory_add(r.base, r.size, r.fd);
  return true;
}

void lp_memory_tell(const struct lp_core* core) {
  size_t i;
  pthread_mutex_lock(&mutex);
  for (i = 0; i < region_count; i++) core->memory_add(regions[i].base, regions[i].size, regions[i].fd);
  told = core;
  pthread_mutex_unlock(&mutex);
}

/* The child of a fork has what there was, but no core that knows of it. */
void lp_memory_after_fork(void) {
  pthread_mutex_init(&mutex, NULL);
  told = NULL;
}

static char* map(size_t size, int fd) {
  int flags = fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  size_t slack = size >= HUGE_PAGE ? HUGE_PAGE : 0;
  char *room = MAP_FAILED, *base;
  if (slack > 0) room = mmap(NULL, size + slack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) {
    base = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, fd, 0);
    return base == MAP_FAILED ? NULL : base;
  }
  base = (char*)(((uintptr_t)room + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
  if (mmap(base, size, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0) == MAP_FAILED) {
    munmap(room, size + slack);
    return NULL;
  }
  if (base > room) munmap(room, (size_t)(base - room));
  munmap(base + size, slack - (size_t)(base - room));
  (void)madvise(base, size, MADV_HUGEPAGE); /* small pages do too */
  return base;
}

static bool allocate(size_t size, struct region* r) {
  r->size = size;
  r->fd = memfd_create("nccl-memory", MFD_CLOEXEC);
  if (r->fd >= 0 && (ftruncate(r->fd, (off_t)size) != 0 || (r->base = map(size, r->fd)) == NULL)) {
    close(r->fd);
    r->fd = -1;
  }
  /* Without a file the memory is as good for everything but sharing. */
  if (r->fd < 0) r->base = map(size, -1);
  return r->base != NULL;
}

static void release(struct region r) {
  munmap(r.base, r.size);
  if (r.fd >= 0) close(r.fd);
}

/* Whether the program has loaded CUDA's driver: then the core, which knows it, is asked for device memory. */
static bool cuda_loaded(void) {
  static atomic_bool known;
  if (!atomic_load(&known) && dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD) != NULL) atomic_store(&known, true);
  return atomic_load(&known);
}

/* Device memory, where the thread has a context; *ptr is NULL without. */
static ncclResult_t allocate_on_device(void** ptr, size_t size) {
  char err[LP_ERR_BYTES] = "";
  const struct lp_core* core;
  ncclResult_t rc;
  if (size == 0 || size > PTRDIFF_MAX - HUGE_PAGE || !cuda_loaded()) return ncclSuccess;
  core = lp_core(&rc);
  return core == NULL ? rc : lp_result(core->device_alloc(size, ptr, err, sizeof err), err);
}

static ncclResult_t free_on_device(void* ptr, int32_t* known) {
  char err[LP_ERR_BYTES] = "";
  const struct lp_core* core;
  ncclResult_t rc;
  if (!cuda_loaded()) return ncclSuccess;
  core = lp_core(&rc);
  return core == NULL ? rc : lp_result(core->device_free(ptr, known, err, sizeof err), err);
}

LP_API(ncclResult_t, ncclMemAlloc, (void** ptr, size_t size)) {
  const size_t page = NCCL_WIN_REQUIRED_ALIGNMENT; /* so that any allocation can become a window */
  struct region r;
  ncclResult_t rc;
  bool kept;
  if (ptr == NULL) return lp_fail(ncclInvalidArgument, "ncclMemAlloc: ptr is NULL");
  *ptr = NULL;
  if (lp_fallback_cuda()) { /* such a program expects device memory */
    __typeof__(ncclMemAlloc)* alloc = (__typeof__(ncclMemAlloc)*)lp_fallback_symbol("ncclMemAlloc", &rc);
    return alloc == NULL ? rc : lp_fallback_result("ncclMemAlloc", alloc(ptr, size));
  }
  rc = allocate_on_device(ptr, size);
  if (size == 0 || rc != ncclSuccess || *ptr != NULL) return rc;
  if (size > PTRDIFF_MAX - HUGE_PAGE || !allocate((size + page - 1) / page * page, &r))
    return lp_fail(ncclSystemError, "ncclMemAlloc: out of memory for %zu bytes: %s", size, strerror(ENOMEM));
  pthread_mutex_lock(&mutex);
  kept = remember(r);
  pthread_mutex_unlock(&mutex);
  if (!kept) {
    release(r);
    return lp_fail(ncclSystemError, "ncclMemAlloc: out of memory for %zu bytes", size);
  }
  *ptr = r.base;
  return ncclSuccess;
}

LP_API(ncclResult_t, ncclMemFree, (void* ptr)) {
  char err[LP_ERR_BYTES] = "";
  ncclResult_t rc = ncclSuccess;
  struct region r;
  size_t at;
  int32_t on_device = 0;
  if (ptr == NULL) return ncclSuccess;
  if (lp_fallback_device(ptr)) {
    __typeof__(ncclMemFree)* other = (__typeof__(ncclMemFree)*)lp_fallback_symbol("ncclMemFree", &rc);
    return other == NULL ? rc : lp_fallback_result("ncclMemFree", other(ptr));
  }
  rc = free_on_device(ptr, &on_device);
  if (rc != ncclSuccess || on_device) return rc;
  pthread_mutex_lock(&mutex);
  at = position(ptr);
  if (at == region_count || regions[at].base != ptr)
    rc = lp_fail(ncclInvalidArgument, "ncclMemFree: ptr %p is not from ncclMemAlloc, or has been freed", ptr);
  else if (told != NULL)
    rc = lp_result(told->memory_remove(ptr, err, sizeof err), err);
  if (rc == ncclSuccess) {
    r = regions[at];
    region_count--;
    memmove(&regions[at], &regions[at + 1], (region_count - at) * sizeof *regions);
    release(r);
  }
  pthread_mutex_unlock(&mutex);
  return rc;
}

/* ---- Registrations ---- */

static ncclResult_t add(const char* function, ncclComm_t comm, void* buff, size_t size, bool window, int flags,
                        const void* out, uint64_t* handle) {
  char err[LP_ERR_BYTES] = "";
  const struct lp_core* core;
  ncclResult_t rc;
  if (comm == NULL) return lp_fail(ncclInvalidArgument, "%s: comm is NULL", function);
  if (out == NULL) return lp_fail(ncclInvalidArgument, "%s: the handle to write is NULL", function);
  if (buff == NULL || size == 0)
    return lp_fail(ncclInvalidArgument, "%s: buff is %p of %zu bytes", function, buff, size);
  core = lp_core(&rc);
  if (core == NULL) return rc;
  return lp_result(core->reg(lp_handle(comm), buff, size, window, flags, handle, err, sizeof err), err);
}

static ncclResult_t find(const char* function, ncclComm_t comm, const void* handle, bool window, bool end, void** buff) {
  char err[LP_ERR_BYTES] = "";
  const struct lp_core* core;
  ncclResult_t rc;
  if (comm == NULL) return lp_fail(ncclInvalidArgument, "%s: comm is NULL", function);
  core = lp_core(&rc);
  if (core == NULL) return rc;
  return lp_result(core->reg_find(lp_handle(comm), (uint64_t)(uintptr_t)handle, window, end, buff, err, sizeof err), err);
}

/* Device memory is registered with the other library. */
#define OTHER(NAME, COMM, ...)                                                                         \
  do {                                                                                                 \
    ncclResult_t rc_ = ncclSuccess;                                                                    \
    ncclComm_t other_ = lp_fallback_comm(#NAME, COMM, &rc_);                                           \
    __typeof__(NAME)* call_ = (__typeof__(NAME)*)lp_fallback_symbol(#NAME, &rc_);                      \
    return other_ == NULL || call_ == NULL ? rc_ : lp_fallback_result(#NAME, call_(other_, __VA_ARGS__)); \
  } while (0)

LP_API(ncclResult_t, ncclCommRegister, (const ncclComm_t comm, void* buff, size_t size, void** handle)) {
  uint64_t h;
  ncclResult_t rc;
  if (lp_fallback_device(buff)) OTHER(ncclCommRegister, comm, buff, size, handle);
  rc = add("ncclCommRegister", comm, buff, size, false, 0, handle, &h);
  if (rc == ncclSuccess) *handle = (void*)(uintptr_t)h;
  return rc;
}

LP_API(ncclResult_t, ncclCommDeregister, (const ncclComm_t comm, void* handle)) {
  void* buff;
  if (handle != NULL && !lp_is_registration(handle) && lp_fallback()) OTHER(ncclCommDeregister, comm, handle);
  return find("ncclCommDeregister", comm, handle, false, true, &buff);
}

LP_API(ncclResult_t, ncclCommWindowRegister,
       (ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win, int winFlags)) {
  const int known = NCCL_WIN_COLL_SYMMETRIC | NCCL_WIN_STRICT_ORDERING;
  uint64_t h;
  ncclResult_t rc;
  if (lp_fallback_device(buff)) OTHER(ncclCommWindowRegister, comm, buff, size, win, winFlags);
  if ((winFlags & ~known) != 0)
    return lp_fail(ncclInvalidArgument, "ncclCommWindowRegister: winFlags 0x%x: host memory has no 0x%x", winFlags,
                   winFlags & ~known);
  if ((uintptr_t)buff % NCCL_WIN_REQUIRED_ALIGNMENT != 0)
    return lp_fail(ncclInvalidArgument, "ncclCommWindowRegister: buff %p is not aligned to %d bytes", buff,
                   NCCL_WIN_REQUIRED_ALIGNMENT);
  rc = add("ncclCommWindowRegister", comm, buff, size, true, winFlags, win, &h);
  if (rc == ncclSuccess) *win = (ncclWindow_t)(uintptr_t)h;
  return rc;
}

/* NULL was a window's value before windows were: giving it back succeeds, as free does. */
LP_API(ncclResult_t, ncclCommWindowDeregister, (ncclComm_t comm, ncclWindow_t win)) {
  void* buff;
  if (win != NULL && !lp_is_registration(win) && lp_fallback()) OTHER(ncclCommWindowDeregister, comm, win);
  return win == NULL ? ncclSuccess : find("ncclCommWindowDeregister", comm, win, true, true, &buff);
}

LP_API(ncclResult_t, ncclWinGetUserPtr, (ncclComm_t comm, ncclWindow_t win, void** outUserPtr)) {
  if (outUserPtr == NULL) return lp_fail(ncclInvalidArgument, "ncclWinGetUserPtr: outUserPtr is NULL");
  *outUserPtr = NULL;
  if (win != NULL && !lp_is_registration(win) && lp_fallback()) OTHER(ncclWinGetUserPtr, comm, win, outUserPtr);
  return find("ncclWinGetUserPtr", comm, win, true, false, outUserPtr);
}

LP_API(ncclResult_t, ncclCommMemStats, (ncclComm_t comm, ncclCommMemStat_t stat, uint64_t* value)) {
  char err[LP_ERR_BYTES] = "";
  const struct lp_core* core;
  ncclResult_t rc;
  if (comm == NULL) return lp_fail(ncclInvalidArgument, "ncclCommMemStats: comm is NULL");
  if (value == NULL) return lp_fail(ncclInvalidArgument, "ncclCommMemStats: value is NULL");
  core = lp_core(&rc);
  return core == NULL ? rc : lp_result(core->mem_stats(lp_handle(comm), (int32_t)stat, value, err, sizeof err), err);
}
