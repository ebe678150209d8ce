#include "rank.h"

#include "../cuda/tests/gpu.h"

/* Buffers of a device, over the process's driver. A failed call of the driver ends the process. */

struct device {
  CUstream stream;
  CUevent first, last;
};

struct device *device_open(const struct worker *w, int number) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  struct device *d = calloc(1, sizeof *d);
  int devices;
  pthread_once(&once, gpu_open);
  IS(gpu.DeviceGetCount(&devices), CUDA_SUCCESS);
  if (!d || devices < 1 || number >= devices) rank_fail(w, "memory=device", devices, "there are not as many devices");
  gpu_use(number >= 0 ? number : w->rank % devices);
  d->stream = gpu_stream(CU_STREAM_NON_BLOCKING);
  IS(gpu.EventCreate(&d->first, 0), CUDA_SUCCESS);
  IS(gpu.EventCreate(&d->last, 0), CUDA_SUCCESS);
  return d;
}

void *device_stream(const struct device *d) { return d->stream; }

static char *obtain(const struct worker *w, size_t bytes) {
  (void)w;
  return gpu_alloc(bytes);
}

static void give_back(const struct worker *w, char *mem, size_t bytes) {
  (void)w, (void)bytes;
  if (mem) gpu_free(mem);
}

static void put(const struct worker *w, char *to, const void *host, size_t bytes) {
  (void)w;
  gpu_copy(to, host, bytes);
}

static void get(const struct worker *w, void *host, const char *from, size_t bytes) {
  (void)w;
  gpu_copy(host, from, bytes);
}

static void finish(const struct worker *w) { IS(gpu.StreamSynchronize(w->device->stream), CUDA_SUCCESS); }

static int64_t start(const struct worker *w) {
  IS(gpu.EventRecord(w->device->first, w->device->stream), CUDA_SUCCESS);
  return 0;
}

static double stop(const struct worker *w, int64_t started) {
  float ms;
  (void)started;
  IS(gpu.EventRecord(w->device->last, w->device->stream), CUDA_SUCCESS);
  finish(w);
  IS(gpu.EventElapsedTime(&ms, w->device->first, w->device->last), CUDA_SUCCESS);
  return (double)ms * 1e3;
}

static double replay(const struct worker *w, const struct run *r, struct buffers at) {
  CUstream s = w->device->stream;
  CUgraph graph;
  CUgraphExec exec;
  IS(gpu.StreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
  for (int i = 0; i < r->iters; i++) lib_call(w, r, at);
  IS(gpu.StreamEndCapture(s, &graph), CUDA_SUCCESS);
  IS(gpu.GraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
  IS(gpu.GraphDestroy(graph), CUDA_SUCCESS);
  if (r->warmup > 0) IS(gpu.GraphLaunch(exec, s), CUDA_SUCCESS); /* the first launch uploads the graph */
  finish(w);
  if (w->bar) barrier_wait(w->bar);
  int64_t started = start(w);
  for (int i = 0; i < r->graph; i++) IS(gpu.GraphLaunch(exec, s), CUDA_SUCCESS);
  double us = stop(w, started) / r->graph / r->iters;
  IS(gpu.GraphExecDestroy(exec), CUDA_SUCCESS);
  return us;
}

const struct memory device_memory = {.obtain = obtain,
                                     .give_back = give_back,
                                     .put = put,
                                     .get = get,
                                     .start = start,
                                     .stop = stop,
                                     .finish = finish,
                                     .replay = replay};
