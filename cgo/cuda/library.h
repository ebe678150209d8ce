/* Internal: libcuda.so.1 as the process has it. */
#ifndef LP_CUDA_LIBRARY_H
#define LP_CUDA_LIBRARY_H

#include "calls.h"

struct lpc_library {
#define FUNCTION(name, symbol, params) CUresult(*name) params;
  LP_CUDA_FUNCTIONS(FUNCTION)
#undef FUNCTION
};

#endif
