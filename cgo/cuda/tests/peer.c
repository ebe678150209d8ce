/* A libnccl for tests of the interposer, over the stub of the driver. Ranks are threads of one process. It has the
 * functions that the interposer uses, with NCCL's semantics. Sends and receives run on streams, all of a group at
 * once. The messages of a pair of ranks match in order. A small message does not wait for its receiver, a large one
 * does. Init waits for all ranks. Captured calls are replayed. After an abort, streams continue.
 *
 * Collectives move no data: passed.c counts them. With PEER_LOG every message is a line of that file: network,
 * source, destination, bytes, and the times (ns, monotonic) when the sender's and the receiver's stream reached it,
 * and when it was received. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../driver.h"
#include "nccl.h"
#include "passed.h"
#include "peer.h"

#define EAGER 4096
#define MAX_RANKS 16
#define WORDS 1024

struct message {
  struct message* next;
  const void* at; /* the sender's buffer, or a copy */
  void* copy;
  size_t bytes;
  bool taken;
  uint64_t posted;
};

/* A communicator's ranks. */
struct world {
  struct world* next;
  ncclUniqueId id;
  int ranks, joined;
  bool aborted;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  struct message *first[MAX_RANKS][MAX_RANKS], **last[MAX_RANKS][MAX_RANKS]; /* by source and destination */
};

struct ncclComm {
  struct world* world;
  int rank;
  char net[32];
  CUevent last; /* after the last kernel that was not captured: these run in order */
  uint32_t* words; /* of kernels */
  unsigned given;
};

struct op {
  bool send;
  char* at;
  size_t bytes;
  int peer;
};

/* The messages of a group on one stream of one communicator. */
struct kernel {
  ncclComm_t comm;
  uint32_t* over; /* set when it has run */
  cudaStream_t stream;
  size_t n;
  struct op ops[1024];
};

struct init {
  ncclComm_t comm;
  ncclComm_t* out;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct world* worlds;
static struct peer_counts counts;
static int fail_after = -1;
static bool mute;
static __thread int depth;
static __thread struct kernel* kernels[64];
static __thread size_t kernel_count;
static __thread struct init inits[64];
static __thread size_t init_count;
static __thread char last_error[128];

static struct {
#define FUNCTION(name, symbol, params) CUresult(*name) params;
  LP_CUDA_FUNCTIONS(FUNCTION)
#undef FUNCTION
} cu;
static void* (*reach)(CUdeviceptr, size_t);

static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static ncclResult_t fail(ncclResult_t rc, const char* text) {
  snprintf(last_error, sizeof last_error, "%s", text);
  return rc;
}

static ncclResult_t driver(void) {
  void* so;
  pthread_mutex_lock(&mutex);
  if (reach == NULL && (so = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD)) != NULL) {
#define FUNCTION(name, symbol, params) *(void**)&cu.name = dlsym(so, symbol);
    LP_CUDA_FUNCTIONS(FUNCTION)
#undef FUNCTION
    *(void**)&reach = dlsym(so, "stubReach");
  }
  pthread_mutex_unlock(&mutex);
  return reach != NULL ? ncclSuccess : fail(ncclUnhandledCudaError, "the peer needs the stub of the driver");
}

/* ---- For tests ---- */

void peerCounts(struct peer_counts* out) {
  pthread_mutex_lock(&mutex);
  *out = counts;
  pthread_mutex_unlock(&mutex);
}

ncclResult_t peer_passed(size_t elements, const ncclCollConfig_t* config) {
  pthread_mutex_lock(&mutex);
  counts.passed += elements > 0;
  counts.calls++;
  if (config != NULL) {
    ncclCollConfig_t* all = malloc(config->size);
    memcpy(all, config, config->size); /* it reads what the size promises */
    counts.size = config->size;
    counts.tag = all->userProfilerTag;
    snprintf(counts.algorithm, sizeof counts.algorithm, "%s", all->algSelection != NULL ? all->algSelection : "");
    free(all);
  }
  pthread_mutex_unlock(&mutex);
  return ncclSuccess;
}

void peerFail(int after) {
  pthread_mutex_lock(&mutex);
  fail_after = after;
  pthread_mutex_unlock(&mutex);
}

void peerMute(bool on) { __atomic_store_n(&mute, on, __ATOMIC_RELEASE); }

void peerBreak(void) {
  struct world* w;
  pthread_mutex_lock(&mutex);
  counts.broken = true;
  for (w = worlds; w != NULL; w = w->next) pthread_cond_broadcast(&w->changed);
  pthread_mutex_unlock(&mutex);
}

static void log_message(const char* net, int from, int to, const struct message* m, uint64_t began) {
  const char* path = getenv("PEER_LOG");
  static FILE* f;
  if (path == NULL) return;
  pthread_mutex_lock(&mutex);
  if (f == NULL) f = fopen(path, "we");
  if (f != NULL) {
    fprintf(f, "%s %d %d %zu %llu %llu %llu\n", net, from, to, m->bytes, (unsigned long long)m->posted,
            (unsigned long long)began, (unsigned long long)now());
    fflush(f);
  }
  pthread_mutex_unlock(&mutex);
}

/* ---- On streams ---- */

/* Waits for a change; false once the communicator is aborted. */
static bool wait_for(struct world* w) {
  struct timespec until;
  if (w->aborted) return false;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec++;
  pthread_cond_timedwait(&w->changed, &w->mutex, &until);
  return true;
}

static struct message* post(struct world* w, int from, const struct op* op) {
  struct message* m = calloc(1, sizeof *m);
  void* at = op->bytes > 0 ? reach((uintptr_t)op->at, op->bytes) : NULL;
  if (op->bytes > 0 && at == NULL) {
    fprintf(stderr, "peer: %zu bytes at %p cannot be reached\n", op->bytes, (void*)op->at);
    abort();
  }
  m->bytes = op->bytes;
  m->at = at;
  m->posted = now();
  if (op->bytes <= EAGER) {
    m->copy = malloc(op->bytes + 1);
    if (op->bytes > 0) memcpy(m->copy, at, op->bytes);
    m->at = m->copy;
  }
  *w->last[from][op->peer] = m;
  w->last[from][op->peer] = &m->next;
  pthread_cond_broadcast(&w->changed);
  return m;
}

static bool receive(ncclComm_t c, const struct op* op, uint64_t began) {
  struct world* w = c->world;
  struct message* m;
  void* to = op->bytes > 0 ? reach((uintptr_t)op->at, op->bytes) : NULL;
  while ((m = w->first[op->peer][c->rank]) == NULL)
    if (!wait_for(w)) return false;
  if (m->bytes != op->bytes || (op->bytes > 0 && to == NULL)) {
    fprintf(stderr, "peer: rank %d receives %zu bytes at %p, rank %d sent %zu\n", c->rank, op->bytes, (void*)op->at,
            op->peer, m->bytes);
    abort();
  }
  if (getenv("PEER_DELAY_US") != NULL) { /* in flight */
    pthread_mutex_unlock(&w->mutex);
    usleep((useconds_t)atoi(getenv("PEER_DELAY_US")));
    pthread_mutex_lock(&w->mutex);
  }
  w->first[op->peer][c->rank] = m->next;
  if (m->next == NULL) w->last[op->peer][c->rank] = &w->first[op->peer][c->rank];
  if (op->bytes > 0) memcpy(to, m->at, op->bytes);
  log_message(c->net, op->peer, c->rank, m, began);
  m->taken = true;
  pthread_cond_broadcast(&w->changed);
  if (m->copy != NULL) { /* its sender has continued */
    free(m->copy);
    free(m);
  }
  return true;
}

static void* run(void* arg) {
  struct kernel* k = arg;
  struct world* w = k->comm->world;
  struct message* sent[sizeof k->ops / sizeof *k->ops];
  const uint64_t began = now();
  bool alive;
  size_t i;
  pthread_mutex_lock(&w->mutex);
  alive = !w->aborted; /* after an abandoned receive, messages no longer match */
  while (__atomic_load_n(&mute, __ATOMIC_ACQUIRE) && alive) alive = wait_for(w);
  for (i = 0; alive && i < k->n; i++)
    if (k->ops[i].send)
      sent[i] =
          k->ops[i].bytes > EAGER ? post(w, k->comm->rank, &k->ops[i]) : (post(w, k->comm->rank, &k->ops[i]), NULL);
  for (i = 0; alive && i < k->n; i++)
    if (!k->ops[i].send) alive = receive(k->comm, &k->ops[i], began);
  for (i = 0; alive && i < k->n; i++) {
    if (!k->ops[i].send || sent[i] == NULL) continue;
    while (alive && !sent[i]->taken) alive = wait_for(w);
    if (alive) free(sent[i]);
  }
  pthread_mutex_unlock(&w->mutex);
  __atomic_store_n(k->over, 1, __ATOMIC_RELEASE);
  return NULL;
}

/* A kernel runs in its own thread: kernels of a graph run in parallel, but the stub's graphs have one thread for host
 * functions. */
static void begin(void* kernel) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, run, kernel) != 0 || pthread_detach(thread) != 0) abort();
}

/* ---- Groups ---- */

ncclResult_t ncclGroupStart(void) {
  depth++;
  return ncclSuccess;
}

static ncclResult_t join_all(void);

/* Enqueues a kernel on its stream, after the communicator's last kernel. */
static CUresult launch(struct kernel* k) {
  const CUstream s = (CUstream)k->stream;
  CUevent* last = &k->comm->last;
  int status = 0;
  cuuint64_t id;
  CUgraph graph;
  CUresult rc = cu.StreamGetCaptureInfo(s, &status, &id, &graph, NULL, NULL);
  if (rc == CUDA_SUCCESS && *last == NULL) rc = cu.EventCreate(last, CU_EVENT_DISABLE_TIMING);
  else if (rc == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_NONE) rc = cu.StreamWaitEvent(s, *last, 0);
  k->over = &k->comm->words[k->comm->given++ % WORDS];
  if (rc == CUDA_SUCCESS) rc = cu.LaunchHostFunc(s, begin, k);
  if (rc == CUDA_SUCCESS) rc = cu.StreamWaitValue32(s, (CUdeviceptr)k->over, 1, CU_STREAM_WAIT_VALUE_EQ);
  if (rc == CUDA_SUCCESS) rc = cu.StreamWriteValue32(s, (CUdeviceptr)k->over, 0, 0);
  return rc == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_NONE ? cu.EventRecord(*last, s) : rc;
}

ncclResult_t ncclGroupEnd(void) {
  ncclResult_t rc = ncclSuccess;
  size_t i;
  if (--depth > 0) return ncclSuccess;
  if (init_count > 0) rc = join_all();
  for (i = 0; i < kernel_count; i++) {
    struct kernel* k = kernels[i];
    if (rc == ncclSuccess && launch(k) != CUDA_SUCCESS)
      rc = fail(ncclUnhandledCudaError, "the driver has refused a kernel");
    pthread_mutex_lock(&mutex);
    counts.groups++;
    pthread_mutex_unlock(&mutex);
  }
  kernel_count = 0;
  return rc;
}

static ncclResult_t add(ncclComm_t c, cudaStream_t stream, struct op op) {
  ncclResult_t rc = ncclSuccess;
  size_t i;
  pthread_mutex_lock(&mutex);
  counts.messages++;
  if (fail_after >= 0 && fail_after-- == 0) rc = fail(ncclInternalError, "the peer was asked to fail");
  pthread_mutex_unlock(&mutex);
  if (rc != ncclSuccess) return rc;
  if (op.peer < 0 || op.peer >= c->world->ranks) return fail(ncclInvalidArgument, "no such peer");
  for (i = 0; i < kernel_count && (kernels[i]->comm != c || kernels[i]->stream != stream); i++) {
  }
  if (i == kernel_count) {
    kernels[kernel_count] = malloc(sizeof **kernels); /* never freed: it may be captured */
    *kernels[kernel_count] = (struct kernel){.comm = c, .stream = stream};
    kernel_count++;
  }
  if (kernels[i]->n == sizeof kernels[i]->ops / sizeof op)
    return fail(ncclInternalError, "too many messages for a peer");
  kernels[i]->ops[kernels[i]->n++] = op;
  return ncclSuccess;
}

static size_t size_of(ncclDataType_t t) {
  static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return sizes[t];
}

ncclResult_t ncclSend(const void* at, size_t n, ncclDataType_t t, int peer, ncclComm_t c, cudaStream_t stream) {
  ncclResult_t rc;
  (void)ncclGroupStart();
  rc = add(c, stream, (struct op){true, (char*)at, n * size_of(t), peer});
  (void)ncclGroupEnd();
  return rc;
}

ncclResult_t ncclRecv(void* at, size_t n, ncclDataType_t t, int peer, ncclComm_t c, cudaStream_t stream) {
  ncclResult_t rc;
  (void)ncclGroupStart();
  rc = add(c, stream, (struct op){false, at, n * size_of(t), peer});
  (void)ncclGroupEnd();
  return rc;
}

/* ---- Communicators ---- */

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char* ncclGetLastError(ncclComm_t c) {
  (void)c;
  return last_error;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static int drawn;
  memset(id, 0, sizeof *id);
  pthread_mutex_lock(&mutex);
  snprintf(id->internal, sizeof id->internal, "peer %d", ++drawn);
  pthread_mutex_unlock(&mutex);
  return ncclSuccess;
}

static struct world* world_of(const ncclUniqueId* id, int ranks) {
  struct world* w;
  int i, k;
  pthread_mutex_lock(&mutex);
  for (w = worlds; w != NULL && memcmp(&w->id, id, sizeof *id) != 0; w = w->next) {
  }
  if (w == NULL) {
    w = calloc(1, sizeof *w);
    w->id = *id;
    w->ranks = ranks;
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->changed, NULL);
    for (i = 0; i < MAX_RANKS; i++)
      for (k = 0; k < MAX_RANKS; k++) w->last[i][k] = &w->first[i][k];
    w->next = worlds;
    worlds = w;
  }
  pthread_mutex_unlock(&mutex);
  return w;
}

/* A group joins all its communicators before it waits for one. */
static ncclResult_t join_all(void) {
  size_t i;
  for (i = 0; i < init_count; i++) {
    struct world* w = inits[i].comm->world;
    pthread_mutex_lock(&w->mutex);
    w->joined++;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->mutex);
  }
  for (i = 0; i < init_count; i++) {
    struct world* w = inits[i].comm->world;
    pthread_mutex_lock(&w->mutex);
    while (w->joined < w->ranks) pthread_cond_wait(&w->changed, &w->mutex);
    pthread_mutex_unlock(&w->mutex);
    *inits[i].out = inits[i].comm;
  }
  init_count = 0;
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* out, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  const char* limit = getenv("PEER_INITS"); /* the most inits */
  ncclResult_t rc = driver();
  struct ncclComm* c;
  pthread_mutex_lock(&mutex);
  if (limit != NULL && counts.inits++ >= atol(limit)) rc = fail(ncclSystemError, "the peer was asked to make no more");
  pthread_mutex_unlock(&mutex);
  if (rc != ncclSuccess) return rc;
  if (ranks > MAX_RANKS) return fail(ncclInvalidArgument, "too many ranks for a peer");
  c = calloc(1, sizeof *c);
  if (cu.MemHostAlloc((void**)&c->words, WORDS * sizeof *c->words, 0) != CUDA_SUCCESS)
    return fail(ncclUnhandledCudaError, "no memory");
  memset(c->words, 0, WORDS * sizeof *c->words);
  c->world = world_of(&id, ranks);
  c->rank = rank;
  snprintf(c->net, sizeof c->net, "%s", config != NULL && config->netName != NULL ? config->netName : "-");
  (void)ncclGroupStart();
  inits[init_count++] = (struct init){c, out};
  return ncclGroupEnd();
}

ncclResult_t ncclCommInitRank(ncclComm_t* out, int ranks, ncclUniqueId id, int rank) {
  return ncclCommInitRankConfig(out, ranks, id, rank, NULL);
}

ncclResult_t ncclCommInitAll(ncclComm_t* comms, int n, const int* devices) {
  ncclResult_t rc = ncclSuccess;
  ncclUniqueId id;
  int i;
  (void)devices;
  (void)ncclGetUniqueId(&id);
  (void)ncclGroupStart();
  for (i = 0; rc == ncclSuccess && i < n; i++) rc = ncclCommInitRank(&comms[i], n, id, i);
  return rc != ncclSuccess ? rc : ncclGroupEnd();
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t* state) {
  (void)c;
  pthread_mutex_lock(&mutex);
  *state = counts.broken ? ncclRemoteError : ncclSuccess;
  pthread_mutex_unlock(&mutex);
  if (*state != ncclSuccess) (void)fail(ncclRemoteError, "the peer was asked to break");
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t c) {
  (void)c;
  return ncclSuccess;
}

/* Their memory stays: a stream may still use it. */
ncclResult_t ncclCommDestroy(ncclComm_t c) {
  (void)c;
  pthread_mutex_lock(&mutex);
  counts.destroyed++;
  pthread_mutex_unlock(&mutex);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t c) {
  struct world* w = c->world;
  pthread_mutex_lock(&w->mutex);
  w->aborted = true;
  pthread_cond_broadcast(&w->changed);
  pthread_mutex_unlock(&w->mutex);
  pthread_mutex_lock(&mutex);
  counts.aborted++;
  pthread_mutex_unlock(&mutex);
  return ncclSuccess;
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t t, ncclScalarResidence_t where,
                                      ncclComm_t c) {
  (void)scalar, (void)t, (void)where, (void)c, (void)__atomic_add_fetch(&counts.operators, 1, __ATOMIC_RELAXED);
  *op = (ncclRedOp_t)77;
  return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t c) {
  (void)c, (void)__atomic_sub_fetch(&counts.operators, 1, __ATOMIC_RELAXED);
  return op == (ncclRedOp_t)77 ? ncclSuccess : ncclInvalidArgument;
}
