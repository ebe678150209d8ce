/* Modules, and launches of their functions. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptx.h"

struct CUmod_st {
  struct ptx_module *ptx;
  CUcontext ctx;
};

/* Where the program wants the compiler's log. */
static char *log_buffer(unsigned n, const int *options, void **values, size_t *size) {
  char *log = NULL;
  unsigned i;
  *size = 0;
  for (i = 0; i < n; i++) {
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER) log = values[i];
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) *size = (size_t)(uintptr_t)values[i];
  }
  return log;
}

/* The version of PTX that the driver understands: 84 is 8.4, of CUDA 12.4. */
static int newest_ptx(void) {
  int version = stub_version(), minor = version % 1000 / 10;
  switch (version / 1000) {
    case 11: return 70 + (minor < 8 ? minor : 8);
    case 12: return 80 + minor;
    default: return 90 + minor;
  }
}

static CUresult load_text(const char *text, CUdevice device, unsigned n, int *options, void **values,
                          struct ptx_module **ptx) {
  char why[256], *log;
  size_t size;
  CUresult rc;
  *ptx = ptx_parse(text, why, sizeof why);
  if (*ptx == NULL) {
    fprintf(stderr, "stub libcuda: PTX %s\n", why);
    log = log_buffer(n, options, values, &size);
    if (log != NULL && size > 0) snprintf(log, size, "%s", why);
    return CUDA_ERROR_INVALID_PTX;
  }
  rc = (*ptx)->target > stub_architecture(device) ? CUDA_ERROR_NO_BINARY_FOR_GPU
       : (*ptx)->version > newest_ptx()           ? CUDA_ERROR_UNSUPPORTED_PTX_VERSION
                                                  : CUDA_SUCCESS;
  if (rc != CUDA_SUCCESS) ptx_free(*ptx);
  return rc;
}

STUB_API CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned n, int *options, void **values) {
  CUcontext ctx = stub_current();
  struct ptx_module *ptx;
  CUresult rc;
  BEGIN();
  if (ctx == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  if (stub_capture_forbids()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  rc = stub_is_cubin(image) ? stub_load_cubin(image, stub_architecture(ctx->device), &ptx)
                            : load_text(image, ctx->device, n, options, values, &ptx);
  if (rc != CUDA_SUCCESS) return rc;
  stub_loaded(stub_is_cubin(image), stub_is_cubin(image) ? stub_cubin_bytes(image) : strlen(image));
  *module = calloc(1, sizeof **module);
  (*module)->ptx = ptx;
  (*module)->ctx = ctx;
  return CUDA_SUCCESS;
}

STUB_API CUresult cuModuleUnload(CUmodule module) {
  BEGIN();
  ptx_free(module->ptx);
  free(module);
  return CUDA_SUCCESS;
}

STUB_API CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  struct ptx_function *f;
  BEGIN();
  for (f = module->ptx->functions; f != NULL && strcmp(f->name, name) != 0; f = f->next) {
  }
  if (f == NULL) return CUDA_ERROR_NOT_FOUND;
  f->ctx = module->ctx;
  *function = (CUfunction)f;
  return CUDA_SUCCESS;
}

/* Launches have one dimension, one parameter and no shared memory, as the kernels need. */
STUB_API CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                 unsigned bz, unsigned shared, CUstream stream, void **params, void **extra) {
  struct ptx_function *f = (struct ptx_function *)function;
  struct op op = {.kind = KERNEL, .function = f, .blocks = gx, .threads = bx};
  CUstream s = stub_stream(stream);
  BEGIN();
  if (s == NULL || s->ctx != f->ctx) return CUDA_ERROR_INVALID_CONTEXT;
  if (gx == 0 || bx == 0 || bx > f->max_threads || gy * gz * by * bz != 1) return CUDA_ERROR_INVALID_VALUE;
  if (shared != 0 || extra != NULL || f->params > sizeof op.params) return CUDA_ERROR_INVALID_VALUE;
  memcpy(op.params, params[0], f->params);
  stub_first("cuLaunchKernel", f->ctx, &f->launched);
  stub_first_launch(&f->timed);
  return stub_submit(stream, op);
}
