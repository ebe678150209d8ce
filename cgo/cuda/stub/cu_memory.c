/* Allocations, and copies of memory. */
#include "stub.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* Addresses of freed device memory. As with a driver, the next allocation of the size gets the last ones. */
static struct spare {
  struct spare *next;
  char *at;
  size_t room;
} *spares;

static char *take_spare(size_t room) {
  struct spare **p, *s;
  char *at = NULL;
  pthread_mutex_lock(&mutex);
  for (p = &spares; *p != NULL && (*p)->room != room; p = &(*p)->next) {
  }
  if ((s = *p) != NULL) *p = s->next, at = s->at;
  pthread_mutex_unlock(&mutex);
  free(s);
  return at;
}

static void keep_spare(char *at, size_t room) {
  struct spare *s = malloc(sizeof *s);
  (void)mmap(at, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  *s = (struct spare){.at = at, .room = room};
  pthread_mutex_lock(&mutex);
  s->next = spares;
  spares = s;
  pthread_mutex_unlock(&mutex);
}

static CUresult add(void **at, size_t size, int type, bool managed) {
  size_t room = stub_room(size);
  bool shared = type == CU_MEMORYTYPE_DEVICE && !managed;
  struct block *b;
  ino_t number;
  int fd;
  if (size == 0) return CUDA_ERROR_INVALID_VALUE;
  if (stub_current() == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  if (stub_capture_forbids()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (size > (size_t)1 << 36 || (fd = stub_new_file(size, &number)) < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  b = calloc(1, sizeof *b);
  b->size = size;
  if (shared) b->at = take_spare(room);
  stub_map_file(b, fd);
  b->fd = fd;
  if (!shared) {
    munmap(b->at, room);
    munmap(b->freed, 4096);
    b->at = b->alias, b->freed = NULL, b->fd = -1;
    close(fd);
  }
  b->type = type;
  b->managed = managed;
  b->ctx = stub_current();
  b->home = b->ctx->device;
  b->key = number << KEY_SHIFT;
  if (!stub_skips(room)) memset(b->alias, 0xA5, room); /* no program may rely on zeros */
  stub_add_block(b);
  *at = b->at;
  return CUDA_SUCCESS;
}

static bool of_device(const struct block *b) {
  return b->type == CU_MEMORYTYPE_DEVICE && b->imported == 0 && b->piece == NULL;
}
static bool of_host(const struct block *b) { return b->type == CU_MEMORYTYPE_HOST && b->device == NULL; }

static CUresult drop(CUdeviceptr at, bool (*fits)(const struct block *b)) {
  struct block *b;
  size_t room;
  if (stub_capture_forbids()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  b = stub_take_block(at, fits);
  if (b == NULL) return CUDA_ERROR_INVALID_VALUE;
  room = stub_room(b->size);
  munmap(b->alias, room);
  if (b->at != b->alias) keep_spare(b->at, room);
  if (b->freed != NULL) {
    __atomic_store_n(b->freed, 1, __ATOMIC_RELEASE);
    munmap(b->freed, 4096);
  }
  if (b->fd >= 0) close(b->fd);
  free(b);
  return CUDA_SUCCESS;
}

static void forget_file(struct block *b, void *arg) {
  (void)arg;
  close(b->fd);
  b->fd = -1;
}

/* Adds a block of device memory at *at. */
static CUresult add_device(CUdeviceptr *at, size_t size, bool managed) {
  void *p = NULL;
  CUresult rc = add(&p, size, CU_MEMORYTYPE_DEVICE, managed);
  *at = (uintptr_t)p;
  return rc;
}

STUB_API CUresult cuMemAlloc_v2(CUdeviceptr *at, size_t size) {
  BEGIN();
  return add_device(at, size, false);
}

STUB_API CUresult cuMemAllocManaged(CUdeviceptr *at, size_t size, unsigned flags) {
  (void)flags;
  BEGIN();
  return add_device(at, size, true);
}

/* Memory of a pool that cannot be exported, as the default one of a device. */
STUB_API CUresult cuMemAllocAsync(CUdeviceptr *at, size_t size, CUstream stream) {
  CUresult rc;
  BEGIN();
  if (stub_stream(stream) == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  rc = add_device(at, size, false);
  if (rc == CUDA_SUCCESS) stub_with_block(*at, forget_file, NULL);
  return rc;
}

STUB_API CUresult cuMemFreeAsync(CUdeviceptr at, CUstream stream) {
  BEGIN();
  if (stub_stream(stream) == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  stub_drain(stub_stream(stream));
  return drop(at, of_device);
}

/* As with a driver, when all earlier work of the device is done. */
STUB_API CUresult cuMemFree_v2(CUdeviceptr at) {
  struct block b;
  BEGIN();
  if (stub_capture_forbids()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stub_find(at, &b) && of_device(&b)) stub_drain_context(b.ctx);
  return drop(at, of_device);
}

STUB_API CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr at) {
  struct block b;
  BEGIN();
  if (!stub_find(at, &b)) return CUDA_ERROR_NOT_FOUND;
  *base = (uintptr_t)b.at;
  *size = b.size;
  return CUDA_SUCCESS;
}

STUB_API CUresult cuMemHostAlloc(void **at, size_t size, unsigned flags) {
  (void)flags;
  BEGIN();
  return add(at, size, CU_MEMORYTYPE_HOST, false);
}

STUB_API CUresult cuMemFreeHost(void *at) {
  BEGIN();
  return drop((uintptr_t)at, of_host);
}

/* As with a driver, unknown memory gives zeros and is no error. */
STUB_API CUresult cuPointerGetAttributes(unsigned n, int *attributes, void **data, CUdeviceptr ptr) {
  struct block b = {0};
  bool known;
  unsigned i;
  BEGIN();
  known = stub_find(ptr, &b);
  for (i = 0; i < n; i++) {
    switch (attributes[i]) {
      case CU_POINTER_ATTRIBUTE_CONTEXT: *(CUcontext *)data[i] = b.ctx; break;
      case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: *(unsigned *)data[i] = (unsigned)b.type; break;
      case CU_POINTER_ATTRIBUTE_BUFFER_ID: *(uint64_t *)data[i] = b.id; break;
      case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *(CUdeviceptr *)data[i] = (uintptr_t)b.at; break;
      case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *(size_t *)data[i] = b.size; break;
      case CU_POINTER_ATTRIBUTE_IS_MANAGED: *(unsigned *)data[i] = b.managed; break;
      case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data[i] = !known ? -2 : b.piece != NULL ? b.home : b.ctx->device;
        break;
      default: return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

STUB_API CUresult cuPointerGetAttribute(void *data, int attribute, CUdeviceptr ptr) {
  struct block b;
  BEGIN();
  if (!stub_find(ptr, &b) || attribute != CU_POINTER_ATTRIBUTE_MEMORY_TYPE) return CUDA_ERROR_INVALID_VALUE;
  *(unsigned *)data = (unsigned)b.type;
  return CUDA_SUCCESS;
}

static bool known(CUdeviceptr at) {
  struct block b;
  return stub_find(at, &b);
}

/* Memory that is not page-locked is copied while the caller waits, which a driver may do. */
static CUresult submit_copy(struct op op, CUstream stream, enum copy_kind kind) {
  CUcontext ctx = stub_current();
  CUresult rc;
  if (op.dst == NULL || op.src == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (ctx != NULL) stub_first("cuMemcpy", ctx, &ctx->copied[kind]);
  rc = stub_submit(stream, op);
  if (rc == CUDA_SUCCESS && (!known(op.dst_at) || !known(op.src_at)) && stub_stream(stream)->capture == NULL)
    stub_drain_unlocked(stub_stream(stream));
  return rc;
}

static CUresult copy(CUdeviceptr dst, CUdeviceptr src, size_t size, CUstream stream, enum copy_kind kind) {
  struct op op = {.kind = COPY, .dst = stub_reach(dst, size), .src = stub_reach(src, size), .size = size, .rows = 1,
                  .dst_at = dst, .src_at = src};
  return submit_copy(op, stream, kind);
}

STUB_API CUresult cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t size, CUstream stream) {
  BEGIN();
  return copy((uintptr_t)dst, src, size, stream, COPY_OUT);
}

STUB_API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t size, CUstream stream) {
  BEGIN();
  return copy(dst, (uintptr_t)src, size, stream, COPY_IN);
}

STUB_API CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t size, CUstream stream) {
  BEGIN();
  return copy(dst, src, size, stream, COPY_ANY);
}

STUB_API CUresult cuMemcpy2DAsync_v2(const CUmemcpy2D *c, CUstream stream) {
  struct op op = {
      .kind = COPY, .size = c->width, .rows = c->height, .dst_pitch = c->dst_pitch, .src_pitch = c->src_pitch};
  BEGIN();
  if (c->width == 0 || c->height == 0) return CUDA_SUCCESS;
  if (c->src_type != CU_MEMORYTYPE_UNIFIED || c->dst_type != CU_MEMORYTYPE_UNIFIED || c->width > c->src_pitch ||
      c->width > c->dst_pitch)
    return CUDA_ERROR_INVALID_VALUE;
  op.src = stub_reach(c->src, (c->height - 1) * c->src_pitch + c->width);
  op.dst = stub_reach(c->dst, (c->height - 1) * c->dst_pitch + c->width);
  op.dst_at = c->dst, op.src_at = c->src;
  return submit_copy(op, stream, COPY_ROWS);
}
