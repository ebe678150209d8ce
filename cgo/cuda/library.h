/* Internal: libcuda.so.1 as the process has it. */
#ifndef LP_CUDA_LIBRARY_H
#define LP_CUDA_LIBRARY_H

#include "calls.h"

/* What needs functions: everything, ranks that reach each other's devices, memory that programs map. Each function for
 * few programs is a need of its own: these look for NULL. */
enum { LPC_EVERYTHING, LPC_PEERS, LPC_MAPPED, LPC_FEW, LPC_NEEDS };

/* The driver's functions, once lpc_load has found it. Those that the driver lacks are NULL. */
extern struct lpc_library {
#define FUNCTION(name, symbol, params) CUresult(*name) params;
  LP_CUDA_FUNCTIONS(FUNCTION)
  LP_CUDA_OPTIONAL(FUNCTION)
  LP_CUDA_MAPPED(FUNCTION)
  LP_CUDA_REMOTE(FUNCTION)
#undef FUNCTION
  const char *lacks[LPC_NEEDS]; /* the first function for each need that the driver has not, NULL where it has all */
} lpc;

/* Notes that this handle is the context of this id, and no other. */
void lpc_note_context(uintptr_t ctx, unsigned long long id);
/* Tells which context this thread has entered, by a handle that was noted; 0: none, or another one. */
void lpc_know_context(uintptr_t ctx);

/* The thread's device, as CUDA's runtime has it. 0 where the program has loaded no runtime that others can ask. */
int lpc_runtime_device(int *device);

#endif
