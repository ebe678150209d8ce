/* The only parameter of a kernel, passed by value. The compilers of the CPU and of the device both read this file.
 *
 * A kernel has jobs: one reduction, job 0, and copies. Each job has blocks of its own. Before them the kernel writes
 * some words, and others when all blocks have ended. */
#ifndef LP_CUDA_KERNELS_REDUCE_H
#define LP_CUDA_KERNELS_REDUCE_H

#define LP_REDUCE_SOURCES 16
#define LP_REDUCE_COPIES 32
#define LP_REDUCE_STORES 64
#define LP_REDUCE_THREADS 256 /* of a block */
#define LP_REDUCE_BLOCKS 3    /* on a processor at once: 80 registers for each thread */

#define LP_SAID_TAG 0xfe0000000000000fULL /* the bits of a word with an address that are its tag */

/* found is the address of a word that the kernel reads: it holds the address of a buffer. A word with another tag, like
 * the address 0, means no buffer: the source is then at. */
struct lp_source {
  unsigned long long at;
  unsigned long long found;
  unsigned long long offset; /* bytes, added to the address in the word */
};

struct lp_job {
  unsigned long long dst;
  unsigned long long count; /* elements */
};

/* Writes a value of 4 bytes, or of 8 bytes if bit 0 of at is set. With a counter, it adds 1 to that word first, and
 * writes only if that makes the upper half of value: then the counter is 0 again. */
struct lp_store {
  unsigned long long at;
  unsigned long long value;
  unsigned long long counter;
};

struct lp_reduction {
  unsigned long long factor;     /* an element in the low bytes; see scaled */
  unsigned long long factor_at;  /* where the element is, if not 0 */
  unsigned long long reciprocal; /* 2^64 / divisor, rounded up; divides types of up to 32 bits */
  unsigned long long scaled;     /* a bit for each job: its sources are multiplied by the factor first */
  unsigned divisor;              /* 1: none */
  unsigned n;                    /* sources of the reduction */
  unsigned targets;              /* further places for its results */
  unsigned copies;
  unsigned before, stores;   /* how many stores come first, and how many there are */
  unsigned long long blocks; /* a word that counts blocks: 0 before and after a kernel with last stores */
  unsigned long long tag;
  unsigned long long target[LP_REDUCE_SOURCES]; /* words, as found: each holds the address of a target */
  unsigned long long target_offset;             /* bytes */
  unsigned long long spare; /* another place for the results if a target is missing; 0: none */
  struct lp_source sources[LP_REDUCE_SOURCES + LP_REDUCE_COPIES]; /* of the reduction, and of each copy */
  struct lp_job job[1 + LP_REDUCE_COPIES];
  struct lp_store store[LP_REDUCE_STORES];
  unsigned short first[LP_REDUCE_COPIES + 2]; /* the first block of each job, and of the one after it */
};

#endif
