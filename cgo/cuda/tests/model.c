/* The hostile modes of the stub: model TEST..., with the settings that run.sh gives each. A thread that should block
 * cannot end before the gate is opened. */
#include <fcntl.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "tests.h"

enum { ROOM = 1024, QUEUES = 8 };

static int opened; /* atomic: the gate is open */

static void open_now(uint32_t *gate) {
  __atomic_store_n(&opened, 1, __ATOMIC_SEQ_CST);
  open_gate(gate);
}

/* A call on a thread of its own. */
struct call {
  pthread_t thread;
  void (*run)(void);
  int before; /* it ended before the gate was opened */
};

static void *start(void *arg) {
  struct call *c = arg;
  CUcontext ctx;
  IS(gpu.DevicePrimaryCtxRetain(&ctx, 0), CUDA_SUCCESS);
  IS(gpu.CtxSetCurrent(ctx), CUDA_SUCCESS);
  c->run();
  c->before = !__atomic_load_n(&opened, __ATOMIC_SEQ_CST);
  return NULL;
}

static void begin(struct call *c, void (*run)(void)) {
  c->run = run;
  CHECK(pthread_create(&c->thread, NULL, start, c) == 0);
}

/* Whether a call ends while a stream waits for the gate. The settings let it end only after that, or at once. */
static bool ends_early(void (*run)(void), bool expected) {
  struct call c;
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  uint32_t *gate = new_gate();
  __atomic_store_n(&opened, 0, __ATOMIC_SEQ_CST);
  wait_for_gate(s, gate);
  begin(&c, run);
  if (expected)
    pthread_join(c.thread, NULL);
  else
    usleep(20000); /* a call that does not block ends in that time, and the test fails */
  open_now(gate);
  if (!expected) pthread_join(c.thread, NULL);
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
  return c.before;
}

static CUstream streams[2 * QUEUES];
static uint32_t *words;

/* The stream that shares the queue of the gate's stream runs nothing; the others do. */
static void shared_queue(void) {
  uint32_t *gate = new_gate();
  int i;
  words = new_gate();
  for (i = 0; i < 2 * QUEUES; i++) streams[i] = gpu_stream(CU_STREAM_NON_BLOCKING);
  wait_for_gate(streams[0], gate);
  for (i = 1; i < 2 * QUEUES; i++) IS(gpu.StreamWriteValue32(streams[i], (uintptr_t)&words[i], 1, 0), CUDA_SUCCESS);
  for (i = 1; i < 2 * QUEUES; i++)
    if (i != QUEUES) IS(gpu.StreamSynchronize(streams[i]), CUDA_SUCCESS);
  CHECK(words[1] == 1 && words[QUEUES] == 0);
  IS(gpu.StreamQuery(streams[QUEUES]), CUDA_ERROR_NOT_READY);
  open_gate(gate);
  IS(gpu.StreamSynchronize(streams[QUEUES]), CUDA_SUCCESS);
  CHECK(words[QUEUES] == 1);
}

static CUstream full;
static CUevent event;

static void fill(void) {
  int i;
  for (i = 0; i < 2 * ROOM; i++) IS(gpu.StreamWriteValue32(full, (uintptr_t)words, 1, 0), CUDA_SUCCESS);
}

static void query(void) { IS(gpu.EventQuery(event), CUDA_SUCCESS); }

/* A caller that waits for room keeps the lock, so that a query waits as well. */
static void full_queue(void) {
  struct call filler, other;
  uint32_t *gate = new_gate();
  words = new_gate();
  full = gpu_stream(CU_STREAM_NON_BLOCKING);
  IS(gpu.EventCreate(&event, 0), CUDA_SUCCESS);
  __atomic_store_n(&opened, 0, __ATOMIC_SEQ_CST);
  wait_for_gate(full, gate);
  begin(&filler, fill);
  usleep(50000); /* the queue is full */
  begin(&other, query);
  usleep(20000);
  open_now(gate);
  pthread_join(filler.thread, NULL);
  pthread_join(other.thread, NULL);
  CHECK(!filler.before && !other.before);
}

static void make_stream(void) { (void)gpu_stream(CU_STREAM_NON_BLOCKING); }
static void make_event(void) { IS(gpu.EventCreate(&event, 0), CUDA_SUCCESS); }
static void allocate(void) { (void)gpu_alloc(64); }
static void allocate_pinned(void) { (void)new_gate(); }

static _Alignas(4096) char page[4096];
static void enroll(void) {
  IS(gpu.MemHostRegister(page, sizeof page, CU_MEMHOSTREGISTER_DEVICEMAP), CUDA_SUCCESS);
  IS(gpu.MemHostUnregister(page), CUDA_SUCCESS);
}

static void *device_words;
static void copy_within(void) {
  CUstream s = streams[1];
  IS(gpu.MemcpyAsync((uintptr_t)device_words, (uintptr_t)device_words + 64, 64, s), CUDA_SUCCESS);
}

static void *const no_module = NULL;
static void load(void) {
  CUmodule m;
  CHECK(no_module == NULL);
  CHECK(gpu.ModuleLoadDataEx(&m, "nothing", 0, NULL, NULL) != CUDA_SUCCESS);
}

/* With STUB_CUDA_DRAIN=all these calls wait for the device, the second copy of a kind does not. */
static void drained(void) {
  static void (*const calls[])(void) = {make_stream, make_event, allocate, allocate_pinned, enroll, load, copy_within};
  size_t i;
  device_words = gpu_alloc(128);
  streams[1] = gpu_stream(CU_STREAM_NON_BLOCKING);
  for (i = 0; i < sizeof calls / sizeof *calls; i++) CHECK(!ends_early(calls[i], false));
  CHECK(ends_early(copy_within, true));
}

/* With another name in STUB_CUDA_DRAIN they do not. */
static void not_drained(void) {
  static void (*const calls[])(void) = {make_stream, make_event, allocate_pinned};
  size_t i;
  for (i = 0; i < sizeof calls / sizeof *calls; i++) CHECK(ends_early(calls[i], true));
  CHECK(!ends_early(allocate, false));
}

/* Another process has the turn while it holds the lock of the device's file. */
static void sliced(void) {
  char path[4096];
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING);
  uint32_t *gate = new_gate();
  int other;
  words = new_gate();
  snprintf(path, sizeof path, "%s/device-0", getenv("STUB_CUDA_SHARE"));
  CHECK((other = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600)) >= 0);
  CHECK(flock(other, LOCK_EX) == 0);
  IS(gpu.StreamWriteValue32(s, (uintptr_t)words, 1, 0), CUDA_SUCCESS);
  usleep(20000);
  CHECK(words[0] == 0);
  CHECK(flock(other, LOCK_UN) == 0);
  IS(gpu.StreamWriteValue32(s, (uintptr_t)words, 2, 0), CUDA_SUCCESS);
  wait_for_gate(s, gate); /* needs no turn */
  CHECK(flock(other, LOCK_EX) == 0);
  CHECK(flock(other, LOCK_UN) == 0);
  open_gate(gate);
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
  CHECK(words[0] == 2);
}

static CUevent recorded(CUstream s) {
  CUevent e;
  IS(gpu.EventCreate(&e, 0), CUDA_SUCCESS);
  IS(gpu.EventRecord(e, s), CUDA_SUCCESS);
  return e;
}

/* The modelled time between two events in us. */
static double between(CUevent from, CUevent to, CUstream s) {
  float ms;
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
  IS(gpu.EventElapsedTime(&ms, from, to), CUDA_SUCCESS);
  return ms * 1e3;
}

static void about(double us, double want) {
  if (us < want * 0.98 - 0.01 || us > want * 1.02 + 0.01) fprintf(stderr, "%.2f us, want %.2f\n", us, want);
  CHECK(us >= want * 0.98 - 0.01 && us <= want * 1.02 + 0.01);
}

/* The constants of the clock: cgo/cuda/stub/constants.h. */
static void timed(void) {
  enum { BYTES = 430 << 20, TIMES = 10 };
  const double word = 0.7, launch = 4, enqueue = 2, poll = 1, copy = 2.0 * BYTES / 4300e3;
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING), t = gpu_stream(CU_STREAM_NON_BLOCKING);
  CUevent from, to, other;
  uintptr_t a, b;
  int i;
  words = new_gate();
  a = (uintptr_t)gpu_alloc(BYTES);
  b = (uintptr_t)gpu_alloc(BYTES);
  IS(gpu.MemcpyAsync(a, b, BYTES, s), CUDA_SUCCESS); /* longer than the CPU needs for what follows */
  from = recorded(s);
  for (i = 0; i < TIMES; i++) IS(gpu.StreamWriteValue32(s, (uintptr_t)words, 1, 0), CUDA_SUCCESS);
  to = recorded(s);
  about(between(from, to, s), (TIMES + 1) * word);
  from = recorded(s);
  IS(gpu.MemcpyAsync(a, b, BYTES, s), CUDA_SUCCESS);
  to = recorded(s);
  about(between(from, to, s), enqueue + launch + copy + word); /* the stream waits for the CPU's call */
  /* Two copies at once take twice as long as one. */
  from = recorded(s);
  IS(gpu.StreamWaitEvent(t, from, 0), CUDA_SUCCESS);
  IS(gpu.MemcpyAsync(a, b, BYTES, s), CUDA_SUCCESS);
  IS(gpu.MemcpyAsync(a, b, BYTES, t), CUDA_SUCCESS);
  to = recorded(s);
  other = recorded(t);
  IS(gpu.StreamSynchronize(t), CUDA_SUCCESS);
  about(between(from, to, s) > between(from, other, t) ? between(from, to, s) : between(from, other, t), 2 * copy);
  /* A stream that waits for a word goes on after its write. */
  IS(gpu.StreamWaitValue32(t, (uintptr_t)words, 7, CU_STREAM_WAIT_VALUE_EQ), CUDA_SUCCESS);
  other = recorded(t);
  from = recorded(s);
  IS(gpu.MemcpyAsync(a, b, BYTES, s), CUDA_SUCCESS);
  IS(gpu.StreamWriteValue32(s, (uintptr_t)words, 7, 0), CUDA_SUCCESS);
  IS(gpu.StreamSynchronize(s), CUDA_SUCCESS);
  about(between(from, other, t), enqueue + launch + copy + 2 * word + poll);
}

/* A stream waits for the recording of an event that was the last one then, also if a later one is reached first. */
static void recorded_again(void) {
  CUstream s = gpu_stream(CU_STREAM_NON_BLOCKING), t = gpu_stream(CU_STREAM_NON_BLOCKING);
  CUstream waits = gpu_stream(CU_STREAM_NON_BLOCKING);
  uint32_t *gate = new_gate();
  make_event();
  wait_for_gate(s, gate);
  IS(gpu.EventRecord(event, s), CUDA_SUCCESS);
  IS(gpu.StreamWaitEvent(waits, event, 0), CUDA_SUCCESS);
  IS(gpu.EventRecord(event, t), CUDA_SUCCESS);
  IS(gpu.StreamSynchronize(t), CUDA_SUCCESS);
  usleep(20000);
  IS(gpu.StreamQuery(waits), CUDA_ERROR_NOT_READY);
  open_gate(gate);
  IS(gpu.StreamSynchronize(waits), CUDA_SUCCESS);
}

static const struct { const char *name; void (*run)(void);
} tests[] = {
    {"shared_queue", shared_queue},
    {"full_queue", full_queue},
    {"drained", drained},
    {"not_drained", not_drained},
    {"sliced", sliced},
    {"recorded_again", recorded_again},
    {"timed", timed},
};

int main(int argc, char **argv) {
  size_t i;
  int k;
  gpu_open();
  gpu_use(0);
  for (k = 1; k < argc; k++) {
    for (i = 0; i < sizeof tests / sizeof *tests && strcmp(tests[i].name, argv[k]) != 0; i++) {
    }
    CHECK(i < sizeof tests / sizeof *tests);
    tests[i].run();
  }
  return 0;
}
