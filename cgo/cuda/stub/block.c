/* The memory that the driver knows. Device memory is a memory file, mapped twice: the address that programs get allows
 * no access, and the stub uses the other one. */
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

bool stub_find(CUdeviceptr at, struct block *found) {
  struct block *b;
  pthread_mutex_lock(&mutex);
  b = find(at);
  if (b != NULL) *found = *b;
  pthread_mutex_unlock(&mutex);
  return b != NULL;
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

int stub_home(CUdeviceptr at) {
  struct block b;
  return stub_find(at, &b) && b.type == CU_MEMORYTYPE_DEVICE ? b.home : -1;
}

uint64_t stub_key(CUdeviceptr at, bool *of_host) {
  struct block b;
  bool known = stub_find(at, &b);
  *of_host = !known || b.type == CU_MEMORYTYPE_HOST;
  return known ? b.key + (at - (uintptr_t)b.at) : at;
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
