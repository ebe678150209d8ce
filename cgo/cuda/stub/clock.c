/* The virtual clock. Each operation begins when its stream, its queue and what it waits for allow it, and takes what
 * constants.h says. Threads of the CPU have clocks of their own, which only calls of the driver advance. Ranks in
 * several processes share one state, a file in STUB_CUDA_SHARE: the time of the last write of each word, and how much
 * of each device's bandwidth is taken in each microsecond. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../kernels/reduce.h"
#include "ptx.h"

enum {
#define CONSTANT(name, value, unit, what, source) COST_##name = value,
#include "constants.h"
#undef CONSTANT
};

enum { STAMPS = 1 << 16, SPAN = 1 << 22 /* us; later times reuse the room of earlier ones */ };
enum wire { MEMORY, INTERCONNECT, PCIE, WIRES };

/* Bytes in 1 us. */
static const unsigned rates[WIRES] = {COST_memory * 1000, COST_interconnect * 1000, COST_pcie * 1000};

/* All zero at first. */
struct state {
  struct stamp { uint64_t key, at; } stamps[STAMPS];
  struct used { uint32_t us, bytes; } used[MAX_DEVICES][WIRES][SPAN];
};

static struct state *state; /* NULL without a clock */
static const char *report;
static size_t skipped = SIZE_MAX;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static __thread uint64_t host_now;
static uint64_t cpu_ns; /* of all threads; atomic */
static __thread struct stub_counts counts;

/* How this process spent its time, and counts. Atomic. */
static struct {
  uint64_t calls, enqueues, memory_operations, events, kernels, copies, functions, graphs;
  uint64_t bytes[WIRES];
  uint64_t launch_ns, transfer_ns, word_ns, poll_ns, wait_ns, event_ns, function_ns, last;
} spent;

#define ADD(field, n) __atomic_fetch_add(&spent.field, (n), __ATOMIC_RELAXED)

static double least(double a, double b) { return a < b ? a : b; }
static double most_of(double a, double b) { return a > b ? a : b; }

static void raise_to(uint64_t *at, uint64_t time) {
  uint64_t was = __atomic_load_n(at, __ATOMIC_RELAXED);
  while (was < time && !__atomic_compare_exchange_n(at, &was, time, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}

static void configure(void) {
  const char *folder = getenv("STUB_CUDA_SHARE"), *skip = getenv("STUB_CUDA_SKIP");
  char path[4096];
  void *at;
  int fd;
  report = getenv("STUB_CUDA_CLOCK");
  if (skip != NULL && *skip != '\0') skipped = strtoull(skip, NULL, 10);
  if (report == NULL || *report == '\0' || folder == NULL) return;
  snprintf(path, sizeof path, "%s/clock", folder);
  fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, sizeof *state) != 0 ||
      (at = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0)) == MAP_FAILED) {
    perror(path);
    abort();
  }
  close(fd);
  state = at;
}

bool stub_clock(void) {
  pthread_once(&once, configure);
  return state != NULL;
}

bool stub_skips(size_t bytes) {
  pthread_once(&once, configure);
  return bytes > skipped;
}

/* ---- The CPU ---- */

uint64_t stub_host_now(void) { return host_now; }

void stub_host_reached(uint64_t at) {
  if (host_now < at) host_now = at;
}

static bool enqueues(const char *function) {
  static const char *const names[] = {"cuLaunch", "cuMemcpy", "cuStreamBatchMemOp", "cuStreamWaitValue",
                                      "cuStreamWriteValue", "cuGraphLaunch"};
  size_t i;
  for (i = 0; i < sizeof names / sizeof *names; i++)
    if (strncmp(function, names[i], strlen(names[i])) == 0) return true;
  return false;
}

static void spend(uint64_t ns) {
  host_now += ns;
  __atomic_fetch_add(&cpu_ns, ns, __ATOMIC_RELAXED);
}

/* For tests: the time that this process's threads have spent in the driver, in ns. */
STUB_API uint64_t stubCpuTime(void) { return __atomic_load_n(&cpu_ns, __ATOMIC_RELAXED); }

static uint64_t cost_of(const char *function) {
  static const struct { const char *function; uint64_t ns;
  } slow[] = {{"cuMemAlloc", COST_allocation},        {"cuMemHostAlloc", COST_allocation},
              {"cuMemHostRegister", COST_allocation}, {"cuIpcOpenMemHandle", COST_import},
              {"cuStreamCreate", COST_stream}};
  size_t i;
  for (i = 0; i < sizeof slow / sizeof *slow; i++)
    if (strncmp(function, slow[i].function, strlen(slow[i].function)) == 0) return COST_call + slow[i].ns;
  return enqueues(function) ? COST_enqueue : COST_call;
}

void stub_made_context(void) {
  if (stub_clock()) spend(COST_context);
}

void stub_loaded(bool code, size_t bytes) {
  if (stub_clock()) spend(code ? COST_module + bytes * COST_module_kib / 1024 : bytes * COST_jit_kib / 1024);
}

void stub_first_launch(bool *had) {
  if (stub_clock() && !__atomic_exchange_n(had, true, __ATOMIC_RELAXED)) spend(COST_function);
}

void stub_count_call(const char *function) {
  size_t i;
  if (!stub_clock()) return;
  ADD(calls, 1);
  if (enqueues(function)) ADD(enqueues, 1);
  spend(cost_of(function));
  for (i = 0; i < STUB_FUNCTIONS - 1 && counts.of[i].function != NULL && counts.of[i].function != function; i++) {
  }
  counts.of[i].function = function; /* the names are literals */
  counts.of[i].calls++;
}

void stub_count_word(void) { counts.memory_operations++; }

const struct stub_counts *stub_counts(void) { return &counts; }

/* ---- Words ---- */

static struct stamp *stamp_of(uint64_t key) {
  uint64_t i = key * 0x9e3779b97f4a7c15ULL >> 48, k;
  for (k = 0; k < STAMPS; k++) {
    struct stamp *s = &state->stamps[(i + k) % STAMPS];
    uint64_t was = 0;
    if (__atomic_load_n(&s->key, __ATOMIC_ACQUIRE) == key) return s;
    if (__atomic_compare_exchange_n(&s->key, &was, key, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) || was == key)
      return s;
  }
  fputs("stub libcuda: the clock knows too few words\n", stderr);
  abort();
}

/* ---- Bandwidth ---- */

/* Takes bytes of a device's bandwidth from a time on, at most share of it, and returns when the last has moved. */
static uint64_t book(CUdevice device, enum wire wire, uint64_t from, double bytes, double share) {
  double most = rates[wire] * share;
  uint64_t us = from / 1000, end = from;
  ADD(bytes[wire], (uint64_t)bytes);
  for (; bytes >= 1; us++) {
    struct used *u = &state->used[device][wire][us % SPAN], was, next;
    double take, left = end > us * 1000 ? most * (double)(us * 1000 + 1000 - end) / 1000 : most;
    __atomic_load(u, &was, __ATOMIC_RELAXED);
    do {
      double taken = was.us == (uint32_t)us ? was.bytes : 0;
      take = least(bytes, least(left, most_of(rates[wire] - taken, 0)));
      next = (struct used){(uint32_t)us, (uint32_t)(taken + take)};
    } while (take > 0 && !__atomic_compare_exchange(u, &was, &next, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    bytes -= take;
    end = bytes < 1 ? (end > us * 1000 ? end : us * 1000) + (uint64_t)(take / most * 1000) : us * 1000 + 1000;
  }
  return end;
}

struct traffic { double bytes[WIRES]; };

static void add_traffic(struct traffic *t, CUdevice device, CUdeviceptr at, double bytes) {
  int home = stub_home(at);
  t->bytes[home < 0 ? PCIE : home == device ? MEMORY : INTERCONNECT] += bytes;
}

static uint64_t move(CUdevice device, uint64_t from, const struct traffic *t, double blocks) {
  double share = least(1, most_of(blocks, 1) / COST_processors);
  uint64_t end = from;
  int w;
  for (w = 0; w < WIRES; w++) {
    uint64_t at = t->bytes[w] > 0 ? book(device, w, from, t->bytes[w], w == MEMORY ? share : 1) : from;
    if (at > end) end = at;
  }
  ADD(transfer_ns, end - from);
  return end;
}

/* ---- Kernels ---- */

/* The buffer that a word of a kernel names; 0 if there is none. */
static CUdeviceptr named(unsigned long long word, unsigned long long tag) {
  const uint64_t *at = word != 0 ? stub_reach(word, sizeof *at) : NULL;
  uint64_t v = at != NULL ? __atomic_load_n(at, __ATOMIC_ACQUIRE) : 0;
  return v != 0 && (v & LP_SAID_TAG) == tag ? v & ~LP_SAID_TAG : 0;
}

static size_t element_of(const char *kernel) {
  static const struct { const char *type; size_t size;
  } sizes[] = {{"_int8", 1}, {"_uint8", 1}, {"_f8e", 1}, {"_half", 2}, {"_bfloat16", 2}, {"64", 8}, {"_double", 8}};
  size_t i;
  for (i = 0; i < sizeof sizes / sizeof *sizes; i++)
    if (strstr(kernel, sizes[i].type) != NULL) return sizes[i].size;
  return 4;
}

size_t stub_kernel_bytes(const struct op *op) {
  const struct lp_reduction *r = (const struct lp_reduction *)op->params;
  size_t count = 0;
  unsigned j;
  for (j = 0; j <= r->copies; j++) count += r->job[j].count;
  return count * element_of(op->function->name);
}

static void add_source(struct traffic *t, CUdevice device, const struct lp_reduction *r, unsigned i, double bytes) {
  CUdeviceptr lent = named(r->sources[i].found, r->tag);
  add_traffic(t, device, lent != 0 ? lent + r->sources[i].offset : r->sources[i].at, bytes);
}

static void kernel_traffic(const struct op *op, struct traffic *t) {
  const struct lp_reduction *r = (const struct lp_reduction *)op->params;
  CUdevice device = op->function->ctx->device;
  double size = (double)element_of(op->function->name), bytes = (double)r->job[0].count * size;
  bool missing = false;
  unsigned i;
  for (i = 0; i < r->n && i < LP_REDUCE_SOURCES; i++) add_source(t, device, r, i, bytes);
  for (i = 0; i < r->targets && i < LP_REDUCE_SOURCES; i++) {
    CUdeviceptr lent = named(r->target[i], r->tag);
    if (lent != 0) add_traffic(t, device, lent + r->target_offset, bytes);
    missing |= lent == 0;
  }
  add_traffic(t, device, r->job[0].dst, bytes);
  if (missing && r->spare != 0) add_traffic(t, device, r->spare, bytes);
  for (i = 1; i <= r->copies && i <= LP_REDUCE_COPIES; i++) {
    bytes = (double)r->job[i].count * size;
    add_source(t, device, r, LP_REDUCE_SOURCES - 1 + i, bytes);
    add_traffic(t, device, r->job[i].dst, bytes);
  }
}

/* ---- Operations ---- */

/* The last of several kernels that count writes the word. */
static void stamp_stores(const struct op *op) {
  const struct lp_reduction *r = (const struct lp_reduction *)op->params;
  unsigned i;
  bool of_host;
  for (i = r->before; i < r->stores && i < LP_REDUCE_STORES; i++)
    raise_to(&stamp_of(stub_key(r->store[i].at & ~3ULL, &of_host))->at, op->end);
}

void stub_stamp(struct op *op) {
  if (op->kind == KERNEL)
    stamp_stores(op);
  else
    __atomic_store_n(&stamp_of(op->key)->at, op->end, __ATOMIC_RELEASE);
}

static uint64_t in_turn(const struct op *op, CUdevice device) {
  uint64_t turn = stub_turn_began(device);
  return op->begun > turn ? op->begun : turn;
}

static uint64_t launched(const struct op *op, CUdevice device) {
  uint64_t cost = op->in_graph ? COST_graph_node : COST_launch;
  ADD(launch_ns, cost);
  return in_turn(op, device) + cost;
}

static uint64_t copied(const struct op *op, CUdevice device) {
  struct traffic t = {{0}};
  double bytes = (double)(op->size * op->rows);
  add_traffic(&t, device, op->dst_at, bytes);
  add_traffic(&t, device, op->src_at, bytes);
  ADD(copies, 1);
  return move(device, launched(op, device), &t, bytes / COST_block);
}

static uint64_t computed(const struct op *op, CUdevice device) {
  struct traffic t = {{0}};
  kernel_traffic(op, &t);
  ADD(kernels, 1);
  return move(device, launched(op, device), &t, op->blocks);
}

static uint64_t waited(const struct op *op) {
  uint64_t at = __atomic_load_n(&stamp_of(op->key)->at, __ATOMIC_ACQUIRE), poll = op->of_host ? COST_poll : 0;
  ADD(memory_operations, 1);
  ADD(word_ns, COST_memory_operation);
  ADD(poll_ns, poll);
  if (at > op->begun) ADD(wait_ns, at - op->begun);
  return (at > op->begun ? at : op->begun) + COST_memory_operation + poll;
}

static uint64_t small(const struct op *op, uint64_t begun) {
  switch (op->kind) {
    case WRITE_VALUE:
      ADD(memory_operations, 1), ADD(word_ns, COST_memory_operation);
      return begun + COST_memory_operation;
    case CALL: ADD(functions, 1), ADD(function_ns, COST_host_function); return begun + COST_host_function;
    default: ADD(events, 1), ADD(event_ns, COST_memory_operation); return begun + COST_memory_operation;
  }
}

void stub_time(struct op *op, CUcontext ctx) {
  if (!stub_clock()) return;
  switch (op->kind) {
    case COPY: op->end = copied(op, ctx->device); break;
    case KERNEL: op->end = computed(op, ctx->device); break;
    case WAIT_VALUE: op->end = waited(op); break;
    case WRITE_VALUE: op->end = small(op, in_turn(op, ctx->device)); break;
    case GRAPH: ADD(graphs, 1); op->end = op->begun + COST_graph; break;
    default: op->end = small(op, op->begun); break;
  }
  raise_to(&spent.last, op->end);
  if (op->kind == COPY || op->kind == KERNEL || op->kind == WRITE_VALUE) stub_in_turn(ctx->device, op->end);
}

/* ---- The report ---- */

static void append(const char *line, int n) {
  int fd = open(report, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0 || write(fd, line, (size_t)n) != n) perror(report);
  if (fd >= 0) close(fd);
}

void stub_interval(const struct stub_counts *from, const struct stub_counts *to) {
  char line[4096];
  uint64_t calls = 0, enqueued = 0;
  int n = snprintf(line, sizeof line, "{\"interval\": %d, \"functions\": {", getpid());
  size_t i;
  for (i = 0; i < STUB_FUNCTIONS && to->of[i].function != NULL; i++) {
    uint64_t more = to->of[i].calls - from->of[i].calls;
    if (more == 0) continue;
    if (enqueues(to->of[i].function)) enqueued += more;
    n += snprintf(line + n, sizeof line - (size_t)n, "%s\"%s\": %lu", calls > 0 ? ", " : "", to->of[i].function, more);
    calls += more;
  }
  n += snprintf(line + n, sizeof line - (size_t)n,
                "}, \"calls\": %lu, \"enqueues\": %lu, \"memory_operations\": %lu}\n", calls, enqueued,
                to->memory_operations - from->memory_operations);
  append(line, n);
}

__attribute__((destructor)) static void write_report(void) {
  char line[2048];
  int n;
  if (state == NULL || spent.calls == 0) return;
#define US(field) (double)spent.field / 1e3
  n = snprintf(line, sizeof line,
               "{\"pid\": %d, \"calls\": %lu, \"enqueues\": %lu, \"memory_operations\": %lu, \"events\": %lu, "
               "\"kernels\": %lu, \"copies\": %lu, \"host_functions\": %lu, \"graphs\": %lu, \"memory_bytes\": %lu, "
               "\"interconnect_bytes\": %lu, \"pcie_bytes\": %lu, \"launch_us\": %.1f, \"transfer_us\": %.1f, "
               "\"word_us\": %.1f, \"poll_us\": %.1f, \"wait_us\": %.1f, \"event_us\": %.1f, "
               "\"host_function_us\": %.1f, \"last_us\": %.1f}\n",
               getpid(), spent.calls, spent.enqueues, spent.memory_operations, spent.events, spent.kernels,
               spent.copies, spent.functions, spent.graphs, spent.bytes[MEMORY], spent.bytes[INTERCONNECT],
               spent.bytes[PCIE], US(launch_ns), US(transfer_ns), US(word_ns), US(poll_ns), US(wait_ns), US(event_ns),
               US(function_ns), US(last));
  append(line, n);
}
