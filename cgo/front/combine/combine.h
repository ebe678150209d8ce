/* The arithmetic of short calls. For every type the results are those of collectives/datatype, bit for bit; only
 * the choice between two NaN operands of a sum or product may differ. */
#ifndef LP_COMBINE_H
#define LP_COMBINE_H

#include <stddef.h>

#include "../nccl.h"

/* The operators of the kernels. Averages and operators of the user are sums. */
enum { LP_COMBINERS = ncclMin + 1 };

/* Buffers have any alignment and hold whole elements. dst may be a source, and overlaps none otherwise. factor is one
 * element. */
struct lp_kernels {
  void (*combine[LP_COMBINERS])(void* dst, const void* a, const void* b, size_t bytes);
  void (*scale)(void* dst, const void* src, const void* factor, size_t bytes);
  void (*divide)(void* dst, unsigned n, size_t bytes); /* 1 <= n <= 127; NULL for floats */
};

extern const struct lp_kernels lp_kernels_any[ncclNumTypes], lp_kernels_avx2[ncclNumTypes];

/* The fastest kernels that this processor supports. */
static inline const struct lp_kernels* lp_kernels(void) {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c")) return lp_kernels_avx2;
#endif
  return lp_kernels_any;
}

/* memcpy past the caches, if the processor can. */
void lp_copy_past(void* dst, const void* src, size_t n);

#endif
