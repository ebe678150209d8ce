/* Memory. Device memory is a memory file, mapped twice: the address that programs get allows no access, and the
 * stub uses the other one. */
#include "stub.h"

#include <stdio.h>
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

size_t stub_room(size_t size) { return (size + 4095) / 4096 * 4096; }

int stub_new_file(size_t size, ino_t *number) {
  struct stat st;
  int fd = memfd_create("stub-cuda", MFD_CLOEXEC);
  if (fd >= 0 && ftruncate(fd, (off_t)stub_room(size) + 4096) == 0 && fstat(fd, &st) == 0) {
    *number = st.st_ino;
    return fd;
  }
  if (fd >= 0) close(fd);
  return -1;
}

void stub_map_file(struct block *b, int fd) {
  size_t room = stub_room(b->size);
  b->at = mmap(b->at, room, PROT_NONE, MAP_SHARED | (b->at != NULL ? MAP_FIXED : 0), fd, 0);
  b->alias = mmap(b->alias, room, PROT_READ | PROT_WRITE, MAP_SHARED | (b->alias != NULL ? MAP_FIXED : 0), fd, 0);
  b->freed = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)room);
}

bool stub_may_touch(struct block *b) {
  if (b->imported == 0 || __atomic_load_n(b->freed, __ATOMIC_ACQUIRE) == 0) return true;
  fprintf(stderr, "stub libcuda: memory of process %d at %p is used after it was freed there\n", (int)b->owner,
          (const void *)b->theirs);
  return false;
}

/* Mapped memory may go on in the next piece. */
void *stub_reach(CUdeviceptr at, size_t size) {
  struct block *b, *next;
  void *reached = (void *)(uintptr_t)at;
  pthread_mutex_lock(&mutex);
  b = find(at);
  if (b != NULL) {
    size_t offset = at - (uintptr_t)b->at, left = b->size - offset;
    for (next = b; next != NULL && next->piece != NULL && left < size;) {
      char *alias = next->alias + next->size;
      next = find((uintptr_t)next->at + next->size);
      if (next == NULL || next->alias != alias) break;
      left += next->size;
    }
    reached = size <= left && stub_may_touch(b) ? b->alias + offset : NULL;
  }
  pthread_mutex_unlock(&mutex);
  return reached;
}

static void uses_of(struct block *b, void *uses) {
  *(unsigned *)uses = b != NULL && b->freed != NULL ? __atomic_load_n(&b->freed[2], __ATOMIC_ACQUIRE) : 0;
}

/* For tests: how many kernels of other contexts, here and in other processes, have used an allocation. */
STUB_API unsigned stubUses(CUdeviceptr at) {
  unsigned uses;
  stub_with_block(at, uses_of, &uses);
  return uses;
}

static bool count_import(struct block *b, void *n) {
  *(int *)n += b->imported != 0;
  return false;
}

/* For tests: how many allocations of other processes are open. */
STUB_API int stubImports(void) {
  int n = 0;
  stub_each_block(count_import, &n);
  return n;
}

/* stub_reach, for tests that act as kernels. */
STUB_API void *stubReach(CUdeviceptr at, size_t size) { return stub_reach(at, size); }

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

/* Memory of a pool that cannot be exported, as the default one of a device. */
STUB_API CUresult cuMemAllocAsync(CUdeviceptr *at, size_t size, CUstream stream) {
  void *p = NULL;
  CUresult rc;
  BEGIN();
  if (stub_stream(stream) == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  rc = add(&p, size, CU_MEMORYTYPE_DEVICE, false);
  *at = (uintptr_t)p;
  if (rc == CUDA_SUCCESS) stub_with_block(*at, forget_file, NULL);
  return rc;
}

STUB_API CUresult cuMemFreeAsync(CUdeviceptr at, CUstream stream) {
  BEGIN();
  if (stub_stream(stream) == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  stub_drain(stub_stream(stream));
  return drop(at, of_device);
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
      case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data[i] = b == NULL ? -2 : b->piece != NULL ? b->home : b->ctx->device;
        break;
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
  return submit_copy(op, stub_knows(c->dst) && stub_knows(c->src), stream, COPY_ROWS);
}
