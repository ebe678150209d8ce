/* Measures the costs of cgo/cuda/stub/constants.h on a device, and prints a line of JSON for each. Over the stub with
 * its virtual clock the model measures itself: costs exact fails if a row differs from the table. */
#include <math.h>
#include <time.h>

#include "gpu.h"

static const struct constant { const char *name; double value; const char *unit, *what;
} constants[] = {
#define CONSTANT(name, value, unit, what, source) {#name, value, unit, what},
#include "../stub/constants.h"
#undef CONSTANT
};

enum { TIMES = 100, BYTES = 256 << 20 };

static CUstream stream;
static uintptr_t here, there; /* memory of the device */
static void *host;
static uint32_t *word;
static bool exact;

static void show(const char *name, double value) {
  size_t i;
  for (i = 0; i < sizeof constants / sizeof *constants; i++) {
    const struct constant *c = &constants[i];
    if (strcmp(c->name, name) != 0) continue;
    printf("{\"name\": \"%s\", \"what\": \"%s\", \"unit\": \"%s\", \"measured\": %.1f, \"model\": %.1f}\n", name,
           c->what, c->unit, value, c->value);
    CHECK(!exact || fabs(value - c->value) <= 0.03 * c->value);
    return;
  }
  CHECK(!"the table has the row");
}

static void large_copy(void) { IS(gpu.MemcpyAsync(here, there, BYTES, stream), CUDA_SUCCESS); }
static void from_host(void) { IS(gpu.MemcpyHtoDAsync(here, host, BYTES, stream), CUDA_SUCCESS); }
static void small_copy(void) { IS(gpu.MemcpyAsync(here, there, 16, stream), CUDA_SUCCESS); }
static void write_word(void) { IS(gpu.StreamWriteValue32(stream, (uintptr_t)word, 1, 0), CUDA_SUCCESS); }
static void wait_word(void) {
  IS(gpu.StreamWaitValue32(stream, (uintptr_t)word, 1, CU_STREAM_WAIT_VALUE_EQ), CUDA_SUCCESS);
}
static void nothing(void *arg) { (void)arg; }
static void call_host(void) { IS(gpu.LaunchHostFunc(stream, nothing, NULL), CUDA_SUCCESS); }

static CUgraphExec graph;
static void launch_graph(void) { IS(gpu.GraphLaunch(graph, stream), CUDA_SUCCESS); }

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* The time in ns of an operation on the stream, behind work that keeps the stream busy until all are enqueued. */
static double on_stream(void (*run)(void), int times) {
  CUevent from, to;
  float ms;
  int i;
  IS(gpu.EventCreate(&from, 0), CUDA_SUCCESS);
  IS(gpu.EventCreate(&to, 0), CUDA_SUCCESS);
  run();
  IS(gpu.StreamSynchronize(stream), CUDA_SUCCESS);
  for (i = 0; i < 16; i++) large_copy();
  IS(gpu.EventRecord(from, stream), CUDA_SUCCESS);
  for (i = 0; i < times; i++) run();
  IS(gpu.EventRecord(to, stream), CUDA_SUCCESS);
  IS(gpu.StreamSynchronize(stream), CUDA_SUCCESS);
  IS(gpu.EventElapsedTime(&ms, from, to), CUDA_SUCCESS);
  return (double)ms * 1e6 / times;
}

static double on_cpu(void (*run)(void)) {
  double began = now(), took;
  int i;
  for (i = 0; i < TIMES; i++) run();
  took = (now() - began) / TIMES;
  IS(gpu.StreamSynchronize(stream), CUDA_SUCCESS);
  return took;
}

static void query(void) { (void)gpu.StreamQuery(stream); }

static CUgraphExec graph_of(int copies) {
  CUgraph g;
  CUgraphExec exec;
  int i;
  IS(gpu.StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  for (i = 0; i < copies; i++) small_copy();
  IS(gpu.StreamEndCapture(stream, &g), CUDA_SUCCESS);
  IS(gpu.GraphInstantiate(&exec, g, 0), CUDA_SUCCESS);
  return exec;
}

int main(int argc, char **argv) {
  double launch, word_ns, one, many;
  exact = argc > 1 && strcmp(argv[1], "exact") == 0;
  gpu_open();
  gpu_use(0);
  stream = gpu_stream(CU_STREAM_NON_BLOCKING);
  here = (uintptr_t)gpu_alloc(BYTES);
  there = (uintptr_t)gpu_alloc(BYTES);
  IS(gpu.MemHostAlloc(&host, BYTES, 0), CUDA_SUCCESS);
  IS(gpu.MemHostAlloc((void **)&word, 64, 0), CUDA_SUCCESS);
  *word = 1;
  launch = on_stream(small_copy, TIMES);
  show("memory", 2.0 * BYTES / (on_stream(large_copy, 8) - launch));
  show("pcie", (double)BYTES / (on_stream(from_host, 4) - launch));
  show("launch", launch);
  word_ns = on_stream(write_word, TIMES);
  show("memory_operation", word_ns);
  show("poll", on_stream(wait_word, TIMES) - word_ns);
  show("host_function", on_stream(call_host, TIMES));
  graph = graph_of(1);
  one = on_stream(launch_graph, TIMES / 10);
  graph = graph_of(TIMES + 1);
  many = on_stream(launch_graph, TIMES / 10);
  show("graph_node", (many - one) / TIMES);
  show("graph", one - (many - one) / TIMES);
  if (exact) return 0; /* the CPU's time is not modelled here, but counted */
  show("enqueue", on_cpu(small_copy));
  show("call", on_cpu(query));
  return 0;
}
