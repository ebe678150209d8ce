/* Runs kernels from PTX text. The text is parsed once into instructions on numbered slots. The threads of a block run
 * together as long as they take the same branches, and meet at barriers. It knows only the instructions of
 * cgo/cuda/kernels. */
#ifndef LP_CUDA_STUB_PTX_H
#define LP_CUDA_STUB_PTX_H

#include "stub.h"

enum ptx_op {
#define OPERATION(name, text, sources, effect) PTX_##name,
#include "ptx_ops.h"
#undef OPERATION
  PTX_BRANCH,
  PTX_RETURN,
  PTX_LOAD_PARAM,
  PTX_LOAD,
  PTX_STORE,
  PTX_ADD_1,   /* atom: adds 1 */
  PTX_ANY,     /* bar.red.or */
  PTX_FENCE,
};

enum { PTX_OPERANDS = 4, PTX_NONE = -1 };

/* An operation on slots; a slot is a register, a constant or a special register of a thread. */
struct ptx_instruction {
  enum ptx_op op;
  int guard; /* a predicate's slot, or PTX_NONE */
  bool unless;
  int slot[PTX_OPERANDS]; /* results first; of loads and stores, the registers */
  int target;             /* PTX_BRANCH */
  int base;               /* of loads and stores: the slot of the address */
  int64_t offset;
  int width, count; /* of loads and stores: bytes of a register, registers */
};

/* The slots that every thread has. */
enum { PTX_TID, PTX_NTID, PTX_CTAID, PTX_NCTAID, PTX_SPECIALS };

struct ptx_constant {
  int slot;
  uint64_t value;
};

struct ptx_function {
  struct ptx_function *next;
  char name[96];
  size_t params; /* bytes of the parameter */
  unsigned max_threads;
  CUcontext ctx; /* into which it was loaded */
  bool launched, timed; /* its first launch has waited, and has been counted */
  struct ptx_instruction *code;
  int length;
  struct ptx_constant *constants;
  int n_constants, n_slots;
};

struct ptx_module {
  int target, version; /* 70 is sm_70, 60 is PTX 6.0 */
  struct ptx_function *functions;
};

/* Returns NULL for text that it does not understand; why (of size bytes) then has the line and the error. */
struct ptx_module *ptx_parse(const char *text, char *why, size_t size);
void ptx_free(struct ptx_module *m);

/* ---- cubin.c ---- */

bool stub_is_cubin(const void *image);
size_t stub_cubin_bytes(const void *image);
/* Loads machine code for a device of an architecture (90 is sm_90). */
CUresult stub_load_cubin(const void *image, int device, struct ptx_module **module);

/* ---- ptx_run.c ---- */

/* Runs all threads of a launch, block by block. Returns false if one has used an invalid address; why says which. */
bool ptx_run(const struct ptx_function *f, CUcontext ctx, const void *params, unsigned blocks, unsigned threads,
             char *why, size_t size);

#endif
