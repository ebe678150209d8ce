/* Internal: a program that uses a CUDA driver. */
#ifndef LP_CUDATEST_PROGRAM_H
#define LP_CUDATEST_PROGRAM_H

#include "../driver.h"

const char *program_open(const char *file); /* NULL, or the error */
CUresult program_use(int device);
CUresult program_alloc(CUdeviceptr *at, size_t size);
CUresult program_free(CUdeviceptr at);
CUresult program_copy(CUdeviceptr at, void *host, size_t size, int in);
CUresult program_stream(CUstream *stream);
CUresult program_sync(uintptr_t stream);
/* Measure the time between two points of a stream. span waits for all its work. */
CUresult program_timer(uintptr_t timer[2]);
CUresult program_start(const uintptr_t timer[2], uintptr_t stream);
CUresult program_stop(const uintptr_t timer[2], uintptr_t stream);
CUresult program_span(const uintptr_t timer[2], uintptr_t stream, float *ms);
/* Enqueues a host function that adds 1 to a word. */
CUresult program_advance(uintptr_t stream, void *word);
CUresult program_begin(uintptr_t stream);
CUresult program_end(uintptr_t stream, uintptr_t *graph);
CUresult program_replay(uintptr_t graph, uintptr_t stream);
int program_flushes(void); /* 0 with a real driver */
void program_fail(const char *function, int error, int after);

#endif
