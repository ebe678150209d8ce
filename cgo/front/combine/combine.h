/* What short calls compute, in C: for every type what collectives/datatype does, bit for bit but for which of
 * two NaN a sum or product is. */
#ifndef LP_COMBINE_H
#define LP_COMBINE_H

#include <stddef.h>

#include "../nccl.h"

/* The operators that combine; averages and operators of the user are sums. */
enum { LP_COMBINERS = ncclMin + 1 };

/* Buffers are of any alignment and hold whole elements; dst may be a source, and overlaps none otherwise. factor is
 * one element. */
struct lp_kernels {
  void (*combine[LP_COMBINERS])(void* dst, const void* a, const void* b, size_t bytes);
  void (*scale)(void* dst, const void* src, const void* factor, size_t bytes);
  void (*divide)(void* dst, unsigned n, size_t bytes); /* 1 <= n <= 127; NULL for floats */
};

extern const struct lp_kernels lp_kernels_any[ncclNumTypes], lp_kernels_avx2[ncclNumTypes];

/* The fastest here. */
static inline const struct lp_kernels* lp_kernels(void) {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c")) return lp_kernels_avx2;
#endif
  return lp_kernels_any;
}

#endif
