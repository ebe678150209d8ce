/* A libcuda.so.1 that takes addresses 0xdead.... for device memory. */
#include <stdint.h>

int cuPointerGetAttribute(void* data, int attribute, uint64_t p);
int cuPointerGetAttribute(void* data, int attribute, uint64_t p) {
  if (attribute != 2 || p >> 16 != 0xdead) return 1; /* CUDA_ERROR_INVALID_VALUE */
  *(unsigned int*)data = 2;
  return 0;
}
