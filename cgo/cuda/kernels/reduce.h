/* What a reduction kernel is given: its only parameter, by value. Both the CPU's and the device's compilers read
 * this. */
#ifndef LP_CUDA_KERNELS_REDUCE_H
#define LP_CUDA_KERNELS_REDUCE_H

#define LP_REDUCE_SOURCES 16
#define LP_REDUCE_THREADS 256 /* of a block */
#define LP_REDUCE_BLOCKS 3    /* on a processor at once: 80 registers for each thread */

#define LP_SAID_TAG 0xfe0000000000000fULL /* the bits of a word that says where something is that are no address */

struct lp_reduction {
  unsigned long long dst;
  unsigned long long sources[LP_REDUCE_SOURCES];
  unsigned long long count;      /* elements */
  unsigned long long factor;     /* an element in the low bytes; see scaled */
  unsigned long long factor_at;  /* where the element is, if not 0 */
  unsigned long long reciprocal; /* 2^64 / divisor, rounded up: what divides types of up to 32 bits */
  unsigned divisor;              /* 1: none */
  unsigned n;                    /* sources */
  unsigned scaled;               /* all sources are multiplied by the factor first */
  unsigned targets;              /* that results are also stored at */
  /* Words of memory that say, when the kernel runs, where something is instead: with another tag, nowhere, as does
   * 0 for an address. */
  unsigned long long tag;
  unsigned long long found[LP_REDUCE_SOURCES];  /* a source, but for the offset */
  unsigned long long target[LP_REDUCE_SOURCES]; /* a target, but for its offset */
  unsigned long long offset, target_offset;     /* bytes */
  unsigned long long spare;                     /* where results are stored too if some target is nowhere; 0: not */
};

#endif
