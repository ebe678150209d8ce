/* Memory. Device memory is a memory file, mapped twice: the address that programs get allows no access, and the
 * stub uses the other one. */
#include "stub.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct block *blocks;

static struct block *find(CUdeviceptr at) {
  struct block *b;
  for (b = blocks; b != NULL; b = b->next)
    if (at >= (uintptr_t)b->at && at < (uintptr_t)b->at + b->size) return b;
  return NULL;
}

void stub_add_block(struct block *b) {
  static uint64_t ids;
  pthread_mutex_lock(&mutex);
  b->id = ++ids;
  b->next = blocks;
  blocks = b;
  pthread_mutex_unlock(&mutex);
}

struct block *stub_take_block(CUdeviceptr at, bool (*fits)(const struct block *b)) {
  struct block **p, *b;
  pthread_mutex_lock(&mutex);
  for (p = &blocks; *p != NULL && ((uintptr_t)(*p)->at != at || !fits(*p)); p = &(*p)->next) {
  }
  b = *p;
  if (b != NULL) *p = b->next;
  pthread_mutex_unlock(&mutex);
  return b;
}

void stub_with_block(CUdeviceptr at, void (*f)(struct block *b, void *arg), void *arg) {
  pthread_mutex_lock(&mutex);
  f(find(at), arg);
  pthread_mutex_unlock(&mutex);
}

void stub_each_block(bool (*f)(struct block *b, void *arg), void *arg) {
  struct block *b;
  pthread_mutex_lock(&mutex);
  for (b = blocks; b != NULL && !f(b, arg); b = b->next) {
  }
  pthread_mutex_unlock(&mutex);
}

void *stub_reach(CUdeviceptr at, size_t size) {
  struct block *b;
  void *reached = (void *)(uintptr_t)at;
  pthread_mutex_lock(&mutex);
  b = find(at);
  if (b != NULL) {
    size_t offset = at - (uintptr_t)b->at;
    reached = size <= b->size - offset ? b->alias + offset : NULL;
  }
  pthread_mutex_unlock(&mutex);
  return reached;
}

/* stub_reach, for tests that act as kernels. */
STUB_API void *stubReach(CUdeviceptr at, size_t size) { return stub_reach(at, size); }

static CUresult add(void **at, size_t size, int type, bool managed) {
  const size_t page = 4096;
  size_t room = (size + page - 1) / page * page;
  struct stat st;
  struct block *b;
  int fd;
  if (size == 0) return CUDA_ERROR_INVALID_VALUE;
  if (stub_current() == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  if (stub_capture_forbids()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (size > (size_t)1 << 36 || (fd = memfd_create("stub-cuda", MFD_CLOEXEC)) < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  if (ftruncate(fd, (off_t)room) != 0 || fstat(fd, &st) != 0) {
    close(fd);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  b = calloc(1, sizeof *b);
  b->alias = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  b->at = type == CU_MEMORYTYPE_DEVICE && !managed ? mmap(NULL, room, PROT_NONE, MAP_SHARED, fd, 0) : b->alias;
  b->fd = type == CU_MEMORYTYPE_DEVICE && !managed ? fd : -1;
  if (b->fd < 0) close(fd);
  b->size = size;
  b->type = type;
  b->managed = managed;
  b->ctx = stub_current();
  b->home = b->ctx->device;
  b->key = st.st_ino << KEY_SHIFT;
  if (!stub_skips(room)) memset(b->alias, 0xA5, room); /* no program may rely on zeros */
  stub_add_block(b);
  *at = b->at;
  return CUDA_SUCCESS;
}

static bool of_device(const struct block *b) { return b->type == CU_MEMORYTYPE_DEVICE && b->imported == 0; }
static bool of_host(const struct block *b) { return b->type == CU_MEMORYTYPE_HOST && b->device == NULL; }

static CUresult drop(CUdeviceptr at, bool (*fits)(const struct block *b)) {
  struct block *b;
  size_t room;
  if (stub_capture_forbids()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  b = stub_take_block(at, fits);
  if (b == NULL) return CUDA_ERROR_INVALID_VALUE;
  room = (b->size + 4095) / 4096 * 4096;
  munmap(b->alias, room);
  if (b->at != b->alias) munmap(b->at, room);
  if (b->fd >= 0) close(b->fd);
  free(b);
  return CUDA_SUCCESS;
}

STUB_API CUresult cuMemAlloc_v2(CUdeviceptr *at, size_t size) {
  void *p = NULL;
  CUresult rc;
  BEGIN();
  rc = add(&p, size, CU_MEMORYTYPE_DEVICE, false);
  *at = (uintptr_t)p;
  return rc;
}

STUB_API CUresult cuMemAllocManaged(CUdeviceptr *at, size_t size, unsigned flags) {
  void *p = NULL;
  CUresult rc;
  (void)flags;
  BEGIN();
  rc = add(&p, size, CU_MEMORYTYPE_DEVICE, true);
  *at = (uintptr_t)p;
  return rc;
}

static void context_of(struct block *b, void *ctx) { *(CUcontext *)ctx = b != NULL && of_device(b) ? b->ctx : NULL; }

/* As with a driver, when all earlier work of the device is done. */
STUB_API CUresult cuMemFree_v2(CUdeviceptr at) {
  CUcontext ctx;
  BEGIN();
  if (stub_capture_forbids()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  stub_with_block(at, context_of, &ctx);
  if (ctx != NULL) stub_drain_context(ctx);
  return drop(at, of_device);
}

STUB_API CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr at) {
  struct block *b;
  BEGIN();
  pthread_mutex_lock(&mutex);
  b = find(at);
  if (b != NULL) *base = (uintptr_t)b->at, *size = b->size;
  pthread_mutex_unlock(&mutex);
  return b != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
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
  struct block *b;
  unsigned i;
  BEGIN();
  pthread_mutex_lock(&mutex);
  b = find(ptr);
  for (i = 0; i < n; i++) {
    switch (attributes[i]) {
      case CU_POINTER_ATTRIBUTE_CONTEXT: *(CUcontext *)data[i] = b != NULL ? b->ctx : NULL; break;
      case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: *(unsigned *)data[i] = b != NULL ? (unsigned)b->type : 0; break;
      case CU_POINTER_ATTRIBUTE_BUFFER_ID: *(uint64_t *)data[i] = b != NULL ? b->id : 0; break;
      case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *(CUdeviceptr *)data[i] = b != NULL ? (uintptr_t)b->at : 0; break;
      case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *(size_t *)data[i] = b != NULL ? b->size : 0; break;
      case CU_POINTER_ATTRIBUTE_IS_MANAGED: *(unsigned *)data[i] = b != NULL && b->managed; break;
      case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)data[i] = b != NULL ? b->ctx->device : -2; break;
      default: pthread_mutex_unlock(&mutex); return CUDA_ERROR_INVALID_VALUE;
    }
  }
  pthread_mutex_unlock(&mutex);
  return CUDA_SUCCESS;
}

STUB_API CUresult cuPointerGetAttribute(void *data, int attribute, CUdeviceptr ptr) {
  struct block *b;
  BEGIN();
  pthread_mutex_lock(&mutex);
  b = find(ptr);
  pthread_mutex_unlock(&mutex);
  if (b == NULL || attribute != CU_POINTER_ATTRIBUTE_MEMORY_TYPE) return CUDA_ERROR_INVALID_VALUE;
  *(unsigned *)data = (unsigned)b->type;
  return CUDA_SUCCESS;
}

int stub_home(CUdeviceptr at) {
  struct block *b;
  int home;
  pthread_mutex_lock(&mutex);
  b = find(at);
  home = b != NULL && b->type == CU_MEMORYTYPE_DEVICE ? b->home : -1;
  pthread_mutex_unlock(&mutex);
  return home;
}

uint64_t stub_key(CUdeviceptr at, bool *of_host) {
  struct block *b;
  uint64_t key;
  pthread_mutex_lock(&mutex);
  b = find(at);
  key = b != NULL ? b->key + (at - (uintptr_t)b->at) : at;
  *of_host = b == NULL || b->type == CU_MEMORYTYPE_HOST;
  pthread_mutex_unlock(&mutex);
  return key;
}

static void is_known(struct block *b, void *known) { *(bool *)known = b != NULL; }

bool stub_knows(CUdeviceptr at) {
  bool known;
  stub_with_block(at, is_known, &known);
  return known;
}

static CUresult submit_copy(struct op op, bool locked, CUstream stream, enum copy_kind kind) {
  CUcontext ctx = stub_current();
  CUresult rc;
  if (op.dst == NULL || op.src == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (ctx != NULL) stub_first("cuMemcpy", ctx, &ctx->copied[kind]);
  rc = stub_submit(stream, op);
  if (rc == CUDA_SUCCESS && !locked && stub_stream(stream)->capture == NULL) stub_drain_unlocked(stub_stream(stream));
  return rc;
}

/* Memory that is not page-locked is copied while the caller waits, which a driver may do. */
static CUresult copy(CUdeviceptr dst, CUdeviceptr src, size_t size, CUstream stream, enum copy_kind kind) {
  struct op op = {.kind = COPY, .dst = stub_reach(dst, size), .src = stub_reach(src, size), .size = size, .rows = 1,
                  .dst_at = dst, .src_at = src};
  return submit_copy(op, stub_knows(dst) && stub_knows(src), stream, kind);
}

STUB_API CUresult cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t size, CUstream stream) {
  BEGIN();
  return copy((uintptr_t)dst, src, size, stream, COPY_OUT);
}

STUB_API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t size, CUstream stream) {
  BEGIN();
  return copy(dst, (uintptr_t)src, size, stream, COPY_IN);
}

STUB_API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t size, CUstream stream) {
  BEGIN();
  return copy(dst, src, size, stream, COPY_WITHIN);
}

STUB_API CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t size, CUstream stream) {
  BEGIN();
  return copy(dst, src, size, stream, COPY_ANY);
}

STUB_API CUresult cuMemcpy2DAsync_v2(const CUmemcpy2D *c, CUstream stream) {
  struct op op = {.kind = COPY, .size = c->width, .rows = c->height, .dst_pitch = c->dst_pitch, .src_pitch = c->src_pitch};
  BEGIN();
  if (c->width == 0 || c->height == 0) return CUDA_SUCCESS;
  if (c->src_type != CU_MEMORYTYPE_UNIFIED || c->dst_type != CU_MEMORYTYPE_UNIFIED || c->width > c->src_pitch ||
      c->width > c->dst_pitch)
    return CUDA_ERROR_INVALID_VALUE;
  op.src = stub_reach(c->src, (c->height - 1) * c->src_pitch + c->width);
  op.dst = stub_reach(c->dst, (c->height - 1) * c->dst_pitch + c->width);
  op.dst_at = c->dst, op.src_at = c->src;
  return submit_copy(op, stub_knows(c->dst) && stub_knows(c->src), stream, COPY_ROWS);
}
