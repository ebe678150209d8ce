/* The only parameter of a reduction kernel, passed by value. The compilers of the CPU and of the device both read this
 * file. */
#ifndef LP_CUDA_KERNELS_REDUCE_H
#define LP_CUDA_KERNELS_REDUCE_H

#define LP_REDUCE_SOURCES 16
#define LP_REDUCE_THREADS 256 /* of a block */
#define LP_REDUCE_BLOCKS 3    /* on a processor at once: 80 registers for each thread */

#define LP_SAID_TAG 0xfe0000000000000fULL /* the bits of a word with an address that are its tag */

struct lp_reduction {
  unsigned long long dst;
  unsigned long long sources[LP_REDUCE_SOURCES];
  unsigned long long count;      /* elements */
  unsigned long long factor;     /* an element in the low bytes; see scaled */
  unsigned long long factor_at;  /* where the element is, if not 0 */
  unsigned long long reciprocal; /* 2^64 / divisor, rounded up; divides types of up to 32 bits */
  unsigned divisor;              /* 1: none */
  unsigned n;                    /* sources */
  unsigned scaled;               /* all sources are multiplied by the factor first */
  unsigned targets;              /* further places for the results */
  /* Addresses of words that the kernel reads: each holds the address of a buffer. A word with another tag, like the
   * address 0, means no buffer. */
  unsigned long long tag;
  unsigned long long found[LP_REDUCE_SOURCES];  /* of a source, without offset */
  unsigned long long target[LP_REDUCE_SOURCES]; /* of a target, without its offset */
  unsigned long long offset, target_offset;     /* bytes */
  unsigned long long spare;                     /* another place for the results if a target is missing; 0: none */
};

#endif
