/* Memory that programs map: physical pieces at reserved addresses. Other processes import pieces by descriptors. */
#include "stub.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { GRANULARITY = 1 << 16 }; /* a device has 2 MiB; tests would need much memory */

/* A handle is the address of a piece. */
struct piece {
  int fd;
  int references; /* handles and mappings */
  size_t size;
  CUdevice device;
  bool exportable;
  pid_t owner; /* of an imported piece, else 0 */
  ino_t ino;
};

/* Reserved addresses, with others by which the stub accesses them. */
struct reservation {
  struct reservation *next;
  char *at, *alias;
  size_t size;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct reservation *reservations;

static void release(struct piece *p) {
  if (__atomic_sub_fetch(&p->references, 1, __ATOMIC_ACQ_REL) > 0) return;
  close(p->fd);
  free(p);
}

/* The reservation that holds a range. The caller holds the mutex. */
static struct reservation *holding(CUdeviceptr at, size_t size) {
  struct reservation *r;
  for (r = reservations; r != NULL; r = r->next)
    if (at >= (uintptr_t)r->at && size <= r->size && at - (uintptr_t)r->at <= r->size - size) return r;
  return NULL;
}

STUB_API CUresult cuMemGetAllocationGranularity(size_t *size, const CUmemAllocationProp *prop, int option) {
  BEGIN();
  (void)prop, (void)option;
  *size = GRANULARITY;
  return CUDA_SUCCESS;
}

STUB_API CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
                              unsigned long long flags) {
  struct piece *p;
  BEGIN();
  if (size == 0 || size % GRANULARITY != 0 || flags != 0 || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
      prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
    return CUDA_ERROR_INVALID_VALUE;
  p = calloc(1, sizeof *p);
  *p = (struct piece){.references = 1, .size = size, .device = prop->location.id,
                      .exportable = (prop->handle_types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0};
  p->fd = stub_new_file(size, &p->ino);
  if (p->fd < 0) {
    free(p);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *handle = (uintptr_t)p;
  return CUDA_SUCCESS;
}

STUB_API CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  BEGIN();
  release((struct piece *)(uintptr_t)handle);
  return CUDA_SUCCESS;
}

STUB_API CUresult cuMemAddressReserve(CUdeviceptr *at, size_t size, size_t align, CUdeviceptr wanted,
                                      unsigned long long flags) {
  struct reservation *r;
  BEGIN();
  if (size == 0 || size % GRANULARITY != 0 || align != 0 || wanted != 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  r = calloc(1, sizeof *r);
  r->size = size;
  r->at = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  r->alias = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  pthread_mutex_lock(&mutex);
  r->next = reservations;
  reservations = r;
  pthread_mutex_unlock(&mutex);
  *at = (uintptr_t)r->at;
  return CUDA_SUCCESS;
}

struct range {
  CUdeviceptr at;
  size_t size;
  unsigned granted; /* devices that get access */
  size_t found;     /* bytes of mapped memory in the range */
};

static bool in_range(struct block *b, void *arg) {
  struct range *r = arg;
  if (b->piece == NULL || (uintptr_t)b->at < r->at || (uintptr_t)b->at + b->size > r->at + r->size) return false;
  b->granted |= r->granted;
  r->found += b->size;
  return false;
}

STUB_API CUresult cuMemAddressFree(CUdeviceptr at, size_t size) {
  struct range range = {.at = at, .size = size};
  struct reservation **p, *r;
  BEGIN();
  stub_each_block(in_range, &range);
  if (range.found > 0) return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&mutex);
  for (p = &reservations; *p != NULL && ((uintptr_t)(*p)->at != at || (*p)->size != size); p = &(*p)->next) {
  }
  if ((r = *p) != NULL) *p = r->next;
  pthread_mutex_unlock(&mutex);
  if (r == NULL) return CUDA_ERROR_INVALID_VALUE;
  munmap(r->at, size);
  munmap(r->alias, size);
  free(r);
  return CUDA_SUCCESS;
}

/* The memory has no access rights yet. */
STUB_API CUresult cuMemMap(CUdeviceptr at, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                           unsigned long long flags) {
  struct piece *p = (struct piece *)(uintptr_t)handle;
  struct range range = {.at = at, .size = size};
  struct reservation *r;
  struct block *b;
  BEGIN();
  stub_each_block(in_range, &range);
  pthread_mutex_lock(&mutex);
  r = holding(at, size);
  pthread_mutex_unlock(&mutex);
  if (r == NULL || offset != 0 || flags != 0 || size != p->size || range.found > 0) return CUDA_ERROR_INVALID_VALUE;
  if (stub_current() == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  b = calloc(1, sizeof *b);
  *b = (struct block){.size = size, .at = (char *)(uintptr_t)at, .alias = r->alias + (at - (uintptr_t)r->at),
                      .type = CU_MEMORYTYPE_DEVICE, .ctx = stub_current(), .piece = p, .fd = -1,
                      .key = p->ino << KEY_SHIFT, .owner = p->owner, .imported = p->owner != 0 ? p->ino : 0};
  __atomic_add_fetch(&p->references, 1, __ATOMIC_ACQ_REL);
  stub_map_file(b, p->fd);
  if (p->owner == 0) {
    __atomic_store_n(b->freed, 0, __ATOMIC_RELEASE);
    b->freed[1] = (uint32_t)p->device;
  }
  b->home = (CUdevice)b->freed[1];
  stub_add_block(b);
  return CUDA_SUCCESS;
}

static bool is_mapped(const struct block *b) { return b->piece != NULL; }

/* Removes the pieces of a range. As with a driver, it does not wait for work that uses them. */
STUB_API CUresult cuMemUnmap(CUdeviceptr at, size_t size) {
  struct range range = {.at = at, .size = size};
  struct block *b;
  BEGIN();
  stub_each_block(in_range, &range);
  if (range.found != size) return CUDA_ERROR_INVALID_VALUE;
  for (; size > 0; at += b->size, size -= b->size, release(b->piece), free(b)) {
    b = stub_take_block(at, is_mapped);
    if (b->imported == 0) __atomic_store_n(b->freed, 1, __ATOMIC_RELEASE);
    munmap(b->freed, 4096);
    (void)mmap(b->at, b->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    (void)mmap(b->alias, b->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  }
  return CUDA_SUCCESS;
}

STUB_API CUresult cuMemSetAccess(CUdeviceptr at, size_t size, const CUmemAccessDesc *access, size_t n) {
  struct range range = {.at = at, .size = size};
  size_t i;
  BEGIN();
  for (i = 0; i < n; i++) {
    if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
      return CUDA_ERROR_INVALID_VALUE;
    range.granted |= 1u << access[i].location.id;
  }
  stub_each_block(in_range, &range);
  return range.found == size ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

STUB_API CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *of, CUdeviceptr at) {
  struct block b;
  BEGIN();
  if (of->type != CU_MEM_LOCATION_TYPE_DEVICE || !stub_find(at, &b) || b.piece == NULL) return CUDA_ERROR_INVALID_VALUE;
  *flags = b.granted >> of->id & 1 ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : 0;
  return CUDA_SUCCESS;
}

static void retain(struct block *b, void *found) {
  if (b == NULL || b->piece == NULL) return;
  __atomic_add_fetch(&b->piece->references, 1, __ATOMIC_ACQ_REL);
  *(struct piece **)found = b->piece;
}

STUB_API CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *at) {
  struct piece *p = NULL;
  BEGIN();
  stub_with_block((uintptr_t)at, retain, &p);
  *handle = (uintptr_t)p;
  return p != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

STUB_API CUresult cuMemExportToShareableHandle(void *shared, CUmemGenericAllocationHandle handle, int type,
                                               unsigned long long flags) {
  struct piece *p = (struct piece *)(uintptr_t)handle;
  BEGIN();
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags != 0 || !p->exportable) return CUDA_ERROR_INVALID_VALUE;
  *(int *)shared = fcntl(p->fd, F_DUPFD_CLOEXEC, 0);
  return *(int *)shared >= 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* The caller keeps the descriptor. Which process the memory is of does not matter: it only needs to be another one. */
STUB_API CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shared, int type) {
  struct piece *p;
  struct stat st;
  int fd = (int)(intptr_t)shared;
  BEGIN();
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || fstat(fd, &st) != 0 || st.st_size <= 4096)
    return CUDA_ERROR_INVALID_VALUE;
  p = calloc(1, sizeof *p);
  *p = (struct piece){.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0), .references = 1, .size = (size_t)st.st_size - 4096,
                      .owner = -1, .ino = st.st_ino};
  *handle = (uintptr_t)p;
  return CUDA_SUCCESS;
}
