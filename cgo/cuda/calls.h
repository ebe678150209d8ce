/* The driver's calls, with handles and device pointers as numbers: a Go pointer may not hold some of them. */
#ifndef LP_CUDA_CALLS_H
#define LP_CUDA_CALLS_H

#include <stdbool.h>

#include "driver.h"
#include "kernels/reduce.h"

/* Whether the program has loaded a driver, which other functions here need. If the driver cannot be used, *why says why
 * not. Each call looks for the driver until it is found. */
bool lpc_load(const char **why);

CUresult lpc_error(CUresult rc, const char **name, const char **text);
/* The device of the thread's context. Without a context, the device that CUDA's runtime would use, which makes contexts
 * when it first needs them. *has is 0 if there is neither. */
CUresult lpc_current(int *device, int *has);
CUresult lpc_locate(uintptr_t at, unsigned *type, unsigned *managed, int *device, uint64_t *id, uint64_t *end);

/* Makes the stream's context current until leave. */
CUresult lpc_enter(uintptr_t stream, int *device);
void lpc_leave(void);
/* Makes the driver accept, until leave, calls that a capture of another thread forbids. Calls that only put work on a
 * stream need it not. */
CUresult lpc_relax(void);
/* The number of a stream, which no other stream of the process has; 0 if the driver does not say. */
CUresult lpc_stream_id(uintptr_t stream, uint64_t *id);

/* These three may be called during captures, without lpc_relax. */
CUresult lpc_alloc(void **at, size_t size);
CUresult lpc_free(void *at);
CUresult lpc_reached(uintptr_t event);

CUresult lpc_new_event(uintptr_t *event);
void lpc_free_event(uintptr_t event);
CUresult lpc_record(uintptr_t event, uintptr_t stream);
CUresult lpc_follow(uintptr_t stream, uintptr_t event);
CUresult lpc_copy_out(void *to, uintptr_t from, size_t size, uintptr_t stream);
CUresult lpc_copy_in(uintptr_t to, void *from, size_t size, uintptr_t stream);
CUresult lpc_copy(uintptr_t dst, uintptr_t src, size_t size, uintptr_t stream);
CUresult lpc_copy_rows(uintptr_t dst, size_t dst_pitch, uintptr_t src, size_t src_pitch,
                       size_t width, size_t rows, uintptr_t stream);
CUresult lpc_await(uintptr_t stream, void *word, uint32_t value, bool equal);
CUresult lpc_store(uintptr_t stream, void *word, uint32_t value);
CUresult lpc_capturing(uintptr_t stream, int *status, uint64_t *id, uintptr_t *graph);

/* Sets *types to those whose kernels the current context lacks: a bit for each element type, numbered as
 * ncclDataType_t. If it lacks some, *architecture is that of its device: 90 is sm_90. After a failure, *step is the
 * function of the driver that failed. */
CUresult lpc_missing_kernels(unsigned *types, int *architecture, const char **step);
/* Loads a module with the kernels of these types into the current context, which lacks them. The image is machine code
 * or text that ends with 0. The caller makes no other call of this function at the same time. */
CUresult lpc_load_kernels(unsigned types, const void *image, const char **step);
/* The log of the driver's compiler for the last image that it refused on this thread; returns 0 if there is none. */
int lpc_take_log(char *log, size_t size);
/* Makes each kind of copy once in the current context, unless it has done so. If kernels is set, it also launches each
 * loaded kernel. Drivers load them at their first use, and then wait until the device is idle. */
CUresult lpc_first_use(bool kernels, const char **step);
enum { LPC_NOT_LOADED = -1 };
/* Launches the kernel of an operator (numbered as ncclRedOp_t) in the current context; it sets r->first.
 * LPC_NOT_LOADED if the context does not have the kernel. */
CUresult lpc_reduce(int type, int op, struct lp_reduction *r, uintptr_t stream, const char **step);

/* Makes the driver call lpCudaReady(job) when all earlier work of the stream is done. */
CUresult lpc_signal(uintptr_t stream, uintptr_t job);
/* Makes the driver call lpCudaReady(job) when the graph and all its executables are gone. */
CUresult lpc_retain(uintptr_t graph, uintptr_t job);

/* ---- peers.c: for ranks that reach each other's devices ---- */

/* The first entry point that these need and the driver lacks; NULL if it has all. */
const char *lpc_lacks(void);

/* The number of a context, which no other has. */
CUresult lpc_context_id(uintptr_t ctx, uint64_t *id);
/* The current context. Kernels of an earlier context with the same handle are forgotten. */
CUresult lpc_context(uintptr_t *ctx);
/* The primary context, retained and never released. */
CUresult lpc_primary_context(int device, uintptr_t *ctx);
/* lpc_enter for a context of lpc_context or lpc_primary_context. */
CUresult lpc_enter_context(uintptr_t ctx);
/* Of the current context's device. */
CUresult lpc_uuid(void *bytes16);

/* Of the current context's device. */
CUresult lpc_total_memory(size_t *bytes);
CUresult lpc_device_alloc(void **at, size_t size);
CUresult lpc_device_free(void *at);
CUresult lpc_allocation(const void *at, uintptr_t *base, size_t *size);
CUresult lpc_export(void *at, void *handle64);
CUresult lpc_import(const void *handle64, void **at);
CUresult lpc_unimport(void *at);
/* Lets the current context reach memory of another context of this process. */
CUresult lpc_reach(void *at);
CUresult lpc_register(void *at, size_t size, uintptr_t *device);
CUresult lpc_unregister(void *at);
CUresult lpc_new_stream(uintptr_t *stream);
CUresult lpc_free_stream(uintptr_t stream);

/* A wait until a word has a value, or a write of the value. */
struct lpc_word {
  uint64_t at;
  uint32_t value, wait;
};
#define LPC_MAX_WORDS 255
CUresult lpc_words(uintptr_t stream, const struct lpc_word *words, unsigned n);

/* ---- mapped.c: memory that programs map ---- */

/* Retains the physical memory at an address. LPC_NOT_MAPPED if the program has not mapped it by itself, or the driver
 * lacks a function. */
enum { LPC_NOT_MAPPED = -2 };
CUresult lpc_retain_piece(void *at, uint64_t *piece);
CUresult lpc_release_piece(uint64_t piece);
/* Whether this piece is mapped at the address. */
int lpc_is_piece(void *at, uint64_t piece);
/* Whether the program lets the current context's device access memory that it has mapped; or LPC_NOT_MAPPED. */
CUresult lpc_reach_mapped(void *at);
/* A descriptor, which the caller closes. */
CUresult lpc_export_piece(uint64_t piece, int *fd);
/* Maps pieces one behind the other, with access for the current context's device. The caller keeps the descriptors. */
CUresult lpc_import_pieces(const int *fds, const size_t *sizes, size_t n, void **at);
CUresult lpc_close_pieces(void *at, size_t size);

/* ---- remote.c: device memory that other devices of the host reach ---- */

/* The properties of the current context's device: whether its memory can be exported as a dma-buf, in what order it
 * sees writes of other devices, and whether lpc_flush_remote can be called. The last two are 0 if the driver does
 * not know. */
CUresult lpc_remote(int *exports, int *ordering, int *flushes);
CUresult lpc_flush_remote(void);
/* Exports whole pages as a dma-buf. */
CUresult lpc_export_buf(uintptr_t at, size_t size, int *fd);

#endif
