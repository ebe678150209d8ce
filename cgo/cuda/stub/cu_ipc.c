/* Memory of other processes, and the program's host memory that devices use. */
#include "stub.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Device memory ---- */

/* The contents of a CUipcMemHandle. */
struct handle {
  pid_t pid;
  int fd;
  CUdevice device;
  size_t size;
  ino_t ino;
  const char *at; /* in the process */
};

static void describe(struct block *b, void *arg) {
  struct handle *h = arg;
  struct stat st;
  if (b == NULL || b->fd < 0 || b->piece != NULL || h->at != b->at || fstat(b->fd, &st) != 0) return;
  *h = (struct handle){getpid(), b->fd, b->ctx->device, b->size, st.st_ino, b->at};
}

struct buf {
  CUdeviceptr at;
  size_t size;
  int fd;
};

static void export_buf(struct block *b, void *arg) {
  struct buf *r = arg;
  if (b != NULL && b->fd >= 0 && b->imported == 0 && r->at == (uintptr_t)b->at && r->size <= stub_room(b->size))
    r->fd = fcntl(b->fd, F_DUPFD_CLOEXEC, 0);
}

/* The memory's file, which RDMA ports map as a dma-buf: from the beginning of an allocation. */
STUB_API CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr at, size_t size, int type,
                                                unsigned long long flags) {
  struct buf r = {at, size, -1};
  BEGIN();
  if (type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || flags != 0 || at % 4096 != 0 || size % 4096 != 0)
    return CUDA_ERROR_INVALID_VALUE;
  stub_with_block(at, export_buf, &r);
  if (r.fd < 0) return CUDA_ERROR_INVALID_VALUE;
  *(int *)handle = r.fd;
  return CUDA_SUCCESS;
}

static int flushes;

/* For tests: how often writes of other devices have been flushed. */
STUB_API int stubFlushes(void) { return __atomic_load_n(&flushes, __ATOMIC_ACQUIRE); }

STUB_API CUresult cuFlushGPUDirectRDMAWrites(int target, int scope) {
  BEGIN();
  if (stub_current() == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  if (target != CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX || scope != CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER)
    return CUDA_ERROR_INVALID_VALUE;
  __atomic_add_fetch(&flushes, 1, __ATOMIC_ACQ_REL);
  return CUDA_SUCCESS;
}

STUB_API CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr at) {
  struct handle h = {.fd = -1, .at = (const char *)(uintptr_t)at};
  BEGIN();
  stub_with_block(at, describe, &h);
  if (h.fd < 0) return CUDA_ERROR_INVALID_VALUE;
  memset(handle, 0, sizeof *handle);
  memcpy(handle, &h, sizeof h);
  return CUDA_SUCCESS;
}

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

/* Memory that this context has opened already. */
struct opened {
  const struct handle *h;
  CUcontext ctx;
  struct block *found; /* that memory, or other memory of the process at this address */
};

static bool again(struct block *b, void *arg) {
  struct opened *o = arg;
  if (b->imported == 0 || b->piece != NULL || b->ctx != o->ctx) return false;
  if (b->imported != o->h->ino &&
      (b->owner != o->h->pid || b->theirs >= o->h->at + o->h->size || o->h->at >= b->theirs + b->size))
    return false;
  o->found = b;
  return true;
}

/* As with a driver, a process cannot open its own memory, and opening memory twice gives the same address. Memory
 * cannot be opened while earlier memory of its process is open that had the same address. */
STUB_API CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *at, CUipcMemHandle handle, unsigned flags) {
  CUcontext ctx = stub_current();
  struct handle h;
  struct stat st;
  struct block *b;
  struct opened before;
  char path[64];
  int fd;
  BEGIN();
  if (stub_capture_forbids()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  memcpy(&h, &handle, sizeof h);
  if (ctx == NULL || h.pid == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  if (h.device != ctx->device && !stub_peers()) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  if (flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
  snprintf(path, sizeof path, "/proc/%d/fd/%d", h.pid, h.fd);
  fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0 || fstat(fd, &st) != 0 || st.st_ino != h.ino || (size_t)st.st_size != stub_room(h.size) + 4096) {
    if (fd >= 0) close(fd);
    return CUDA_ERROR_INVALID_HANDLE;
  }
  pthread_mutex_lock(&opening);
  before = (struct opened){&h, ctx, NULL};
  stub_each_block(again, &before);
  if (before.found != NULL && before.found->imported != h.ino) {
    pthread_mutex_unlock(&opening);
    close(fd);
    return CUDA_ERROR_ALREADY_MAPPED;
  }
  if (before.found != NULL) {
    before.found->opened++;
    *at = (uintptr_t)before.found->at;
    pthread_mutex_unlock(&opening);
    close(fd);
    return CUDA_SUCCESS;
  }
  b = calloc(1, sizeof *b);
  b->size = h.size;
  stub_map_file(b, fd);
  close(fd);
  b->owner = h.pid;
  b->theirs = h.at;
  b->type = CU_MEMORYTYPE_DEVICE;
  b->ctx = ctx;
  b->fd = -1;
  b->imported = h.ino;
  b->home = h.device;
  b->key = h.ino << KEY_SHIFT;
  b->opened = 1;
  stub_add_block(b);
  *at = (uintptr_t)b->at;
  pthread_mutex_unlock(&opening);
  return CUDA_SUCCESS;
}

static bool is_imported(const struct block *b) { return b->imported != 0 && b->piece == NULL; }

static void close_once(struct block *b, void *left) {
  if (b != NULL && is_imported(b)) *(int *)left = --b->opened;
}

STUB_API CUresult cuIpcCloseMemHandle(CUdeviceptr at) {
  struct block *b = NULL;
  int left = -1;
  BEGIN();
  if (stub_capture_forbids()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  pthread_mutex_lock(&opening);
  stub_with_block(at, close_once, &left);
  if (left == 0) b = stub_take_block(at, is_imported);
  pthread_mutex_unlock(&opening);
  if (left > 0) return CUDA_SUCCESS;
  if (b == NULL) return CUDA_ERROR_INVALID_VALUE;
  munmap(b->alias, stub_room(b->size));
  munmap(b->at, stub_room(b->size));
  munmap(b->freed, 4096);
  free(b);
  return CUDA_SUCCESS;
}

/* ---- Host memory ---- */

/* Registered memory is two blocks, with an address for the host and another one for devices. So a mix-up is
 * detected. */

static bool is_registered(const struct block *b) { return b->device != NULL; }
static bool is_any(const struct block *b) { return b != NULL; }

struct range {
  char *at;
  size_t size;
  bool met;
};

static bool meets(struct block *b, void *arg) {
  struct range *r = arg;
  r->met = b->at < r->at + r->size && r->at < b->at + b->size;
  return r->met;
}

/* The key of host memory: its file and the offset in it, so that all processes that map it agree. */
static uint64_t file_key(const void *at) {
  uint64_t from, to, offset, ino, key = (uint64_t)getpid() << KEY_SHIFT ^ (uintptr_t)at;
  char line[512];
  FILE *maps = fopen("/proc/self/maps", "re");
  while (maps != NULL && fgets(line, sizeof line, maps) != NULL)
    if (sscanf(line, "%lx-%lx %*s %lx %*s %lu", &from, &to, &offset, &ino) == 4 && from <= (uintptr_t)at &&
        (uintptr_t)at < to && ino != 0)
      key = (ino << KEY_SHIFT) + offset + ((uintptr_t)at - from);
  if (maps != NULL) fclose(maps);
  return key;
}

STUB_API CUresult cuMemHostRegister_v2(void *at, size_t size, unsigned flags) {
  struct range range = {at, size, false};
  struct block *host, *twin;
  char *device;
  BEGIN();
  if (stub_current() == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  if (stub_capture_forbids()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if ((uintptr_t)at % 4096 != 0 || size == 0 || (flags & CU_MEMHOSTREGISTER_DEVICEMAP) == 0)
    return CUDA_ERROR_INVALID_VALUE;
  stub_each_block(meets, &range);
  if (range.met) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  device = mmap(NULL, stub_room(size), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  host = calloc(1, sizeof *host);
  twin = calloc(1, sizeof *twin);
  *host = (struct block){
      .at = at, .alias = at, .size = size, .type = CU_MEMORYTYPE_HOST, .ctx = stub_current(), .fd = -1};
  if (stub_clock()) host->key = file_key(at);
  *twin = *host;
  host->device = twin->at = device;
  stub_add_block(host);
  stub_add_block(twin);
  return CUDA_SUCCESS;
}

STUB_API CUresult cuMemHostUnregister(void *at) {
  struct block *host;
  BEGIN();
  if (stub_capture_forbids()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  host = stub_take_block((uintptr_t)at, is_registered);
  if (host == NULL) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  free(stub_take_block((uintptr_t)host->device, is_any));
  munmap(host->device, stub_room(host->size));
  free(host);
  return CUDA_SUCCESS;
}

STUB_API CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *at, unsigned flags) {
  struct block b;
  BEGIN();
  if (flags != 0 || !stub_find((uintptr_t)at, &b) || b.device == NULL) return CUDA_ERROR_INVALID_VALUE;
  *device = (uintptr_t)b.device;
  return CUDA_SUCCESS;
}
