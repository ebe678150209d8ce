/* The allocations of ncclMemAlloc in host memory.
 *
 * Each is a mapping of its own, of a memory file if the system has descriptors left, so that other processes of the
 * host can map it too. The core learns of each region with its file. The core is not needed to allocate: one that
 * is loaded later is told of all regions. */
#include "front.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Allocations of at least a huge page are aligned to one, and have them if the system allows. */
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
static const struct lp_core* told; /* the core that knows all regions, NULL while none is loaded */

/* The index of base, or where it belongs. */
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

static bool add(struct region r) {
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

void lp_regions_tell(const struct lp_core* core) {
  size_t i;
  pthread_mutex_lock(&mutex);
  for (i = 0; i < region_count; i++) core->memory_add(regions[i].base, regions[i].size, regions[i].fd);
  told = core;
  pthread_mutex_unlock(&mutex);
}

/* A child of fork has its parent's regions, but no core that knows them. */
void lp_regions_after_fork(void) {
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

static void release(struct region r) {
  munmap(r.base, r.size);
  if (r.fd >= 0) close(r.fd);
}

void* lp_region_alloc(size_t size) {
  const size_t page = NCCL_WIN_REQUIRED_ALIGNMENT; /* any allocation can become a window */
  struct region r = {.fd = -1};
  bool added;
  if (size > PTRDIFF_MAX - HUGE_PAGE) return NULL;
  r.size = (size + page - 1) / page * page;
  r.fd = memfd_create("nccl-memory", MFD_CLOEXEC);
  if (r.fd >= 0 && (ftruncate(r.fd, (off_t)r.size) != 0 || (r.base = map(r.size, r.fd)) == NULL)) {
    close(r.fd);
    r.fd = -1;
  }
  /* Memory without a file serves for everything except sharing. */
  if (r.fd < 0) r.base = map(r.size, -1);
  if (r.base == NULL) return NULL;
  pthread_mutex_lock(&mutex);
  added = add(r);
  pthread_mutex_unlock(&mutex);
  if (added) return r.base;
  release(r);
  return NULL;
}

ncclResult_t lp_region_free(void* base) {
  char err[LP_ERR_BYTES] = "";
  ncclResult_t rc = ncclSuccess;
  size_t at;
  pthread_mutex_lock(&mutex);
  at = position(base);
  if (at == region_count || regions[at].base != base)
    rc = lp_fail(ncclInvalidArgument, "ncclMemFree: ptr %p is not from ncclMemAlloc, or has been freed", base);
  else if (told != NULL)
    rc = lp_result(told->memory_remove(base, err, sizeof err), err);
  if (rc == ncclSuccess) {
    struct region r = regions[at];
    region_count--;
    memmove(&regions[at], &regions[at + 1], (region_count - at) * sizeof *regions);
    release(r);
  }
  pthread_mutex_unlock(&mutex);
  return rc;
}
