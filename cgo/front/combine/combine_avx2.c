/* The kernels again, for processors with AVX2 and F16C. */
#ifdef __x86_64__
#pragma GCC target("avx2,f16c")
#define LP_TABLE lp_kernels_avx2
#include "combine.c"
#endif
