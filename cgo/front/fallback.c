/* Calls that Lightpath does not take go to another libnccl, if LIGHTPATH_NCCL_FALLBACK_LIB names one.
 *
 * Every communicator then exists in both libraries, under the handle of ours. The other one is made
 * together with it, and not by the first call that needs it: such a call may be a send, which only two
 * ranks make. Rank 0 draws the other library's id, and our own communicator carries it to the rest. A
 * library that cannot make the communicator (no device, say) is no error until a call needs it.
 *
 * The other library is loaded so that it sees its own symbols and nobody sees them but us. */
#include "fallback.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static void* library; /* NULL where there is none */
static char path[4096];
static char load_error[LP_ERR_BYTES]; /* why the one asked for is not there */
static bool everything;               /* LIGHTPATH_FALLBACK=all */
static bool interposes;               /* LIGHTPATH_FALLBACK=interpose */

/* What our communicators are in the other library. */
struct pair {
  ncclComm_t ours, other;
  char why[256]; /* there is no other */
};

struct op_pair {
  ncclComm_t comm;
  ncclRedOp_t ours, other;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct pair* pairs;
static size_t pair_count, pair_room;
static struct op_pair* ops;
static size_t op_count, op_room;

/* The calling thread has a group open in the other library. */
static __thread bool group_open;

/* ---- Loading ---- */

/* Lightpath itself, this copy or another, would come back here. */
static bool is_lightpath(void* candidate) {
  void* symbol = dlsym(candidate, "pncclGetVersion");
  char beside[sizeof path + 32];
  Dl_info info;
  char* slash;
  if (symbol == (void*)pncclGetVersion) return true;
  if (symbol == NULL || dladdr(symbol, &info) == 0) return false;
  snprintf(beside, sizeof beside, "%s", info.dli_fname);
  slash = strrchr(beside, '/');
  snprintf(slash != NULL ? slash + 1 : beside, 32, "liblightpath.so");
  return access(beside, F_OK) == 0;
}

static void load(void) {
  const char *file = lp_env("LIGHTPATH_NCCL_FALLBACK_LIB"), *policy = lp_env("LIGHTPATH_FALLBACK");
  void* candidate;
  if (file == NULL || file[0] == '\0') return;
  if (policy != NULL && policy[0] != '\0' && strcmp(policy, "auto") != 0) {
    everything = strcmp(policy, "all") == 0;
    interposes = strcmp(policy, "interpose") == 0;
    if (!everything && !interposes) return; /* none, or what init refuses */
  }
  snprintf(path, sizeof path, "%s", file);
  candidate = dlopen(path, RTLD_LAZY | RTLD_LOCAL | RTLD_DEEPBIND);
  if (candidate == NULL) {
    snprintf(load_error, sizeof load_error, "LIGHTPATH_NCCL_FALLBACK_LIB: cannot load %s", dlerror());
  } else if (is_lightpath(candidate)) {
    snprintf(load_error, sizeof load_error, "LIGHTPATH_NCCL_FALLBACK_LIB: %.800s is Lightpath itself", path);
  } else {
    library = candidate;
  }
}

bool lp_fallback(void) {
  pthread_once(&once, load);
  return library != NULL;
}

bool lp_fallback_interposes(void) { return lp_fallback() && interposes; }

ncclResult_t lp_fallback_check(void) {
  pthread_once(&once, load);
  return load_error[0] == '\0' ? lp_interpose_check() : lp_fail(ncclInvalidUsage, "%s", load_error);
}

void* lp_fallback_symbol(const char* name, ncclResult_t* why) {
  void* symbol = lp_fallback() ? dlsym(library, name) : NULL;
  if (symbol == NULL)
    *why = lp_fail(ncclInvalidUsage, "%s: the library of LIGHTPATH_NCCL_FALLBACK_LIB, %s, lacks it", name, path);
  return symbol;
}

void lp_fallback_words(ncclResult_t rc, char* text, size_t size) {
  __typeof__(ncclGetLastError)* last;
  const char* said = NULL;
  *(void**)&last = dlsym(library, "ncclGetLastError");
  if (last != NULL) said = last(NULL);
  snprintf(text, size, "%s", said != NULL && said[0] != '\0' ? said : pncclGetErrorString(rc));
}

ncclResult_t lp_fallback_result(const char* function, ncclResult_t rc) {
  char text[600];
  if (rc == ncclSuccess || rc == ncclInProgress) return rc;
  lp_fallback_words(rc, text, sizeof text);
  return lp_fail(rc, "%s, done by %s: %s", function, path, text);
}

#define SYMBOL(name, why) ((__typeof__(name)*)lp_fallback_symbol(#name, why))

/* ---- Communicators ---- */

static struct pair* find(ncclComm_t ours) {
  size_t i;
  for (i = 0; i < pair_count; i++)
    if (pairs[i].ours == ours) return &pairs[i];
  return NULL;
}

/* A list with room for one more element; NULL where there is no memory, and the list is as it was. */
static void* grown(void* list, size_t count, size_t* room, size_t size) {
  size_t more = *room == 0 ? 16 : 2 * *room;
  if (count < *room) return list;
  list = realloc(list, more * size);
  if (list != NULL) *room = more;
  return list;
}

static void keep(ncclComm_t ours, ncclComm_t other, const char* why) {
  struct pair *list, *p;
  pthread_mutex_lock(&mutex);
  list = grown(pairs, pair_count, &pair_room, sizeof *pairs);
  if (list != NULL) {
    pairs = list;
    p = &pairs[pair_count++];
    p->ours = ours;
    p->other = other;
    snprintf(p->why, sizeof p->why, "%s", why);
  }
  pthread_mutex_unlock(&mutex);
}

ncclComm_t lp_fallback_comm(const char* function, ncclComm_t ours, ncclResult_t* why) {
  ncclComm_t other = NULL;
  char reason[256] = "it is not a communicator of this library, or is not blocking";
  struct pair* p;
  pthread_mutex_lock(&mutex);
  p = find(ours);
  if (p != NULL) {
    other = p->other;
    memcpy(reason, p->why, sizeof reason);
  }
  pthread_mutex_unlock(&mutex);
  if (other == NULL) *why = lp_fail(ncclInvalidUsage, "%s: %s has no such communicator: %s", function, path, reason);
  return other;
}

/* Brings the other library's id from rank 0 of every communicator to its other ranks. The calls run as
 * one group: the ranks may all be this thread's. */
static ncclResult_t share_ids(const struct lp_core* core, const struct lp_init* inits, ncclUniqueId* ids, size_t n) {
  char err[LP_ERR_BYTES] = "";
  struct lp_call* calls = calloc(n, sizeof *calls);
  ncclResult_t rc = ncclSuccess;
  __typeof__(ncclGetUniqueId)* draw = SYMBOL(ncclGetUniqueId, &rc);
  size_t i;
  if (calls == NULL) return lp_fail(ncclSystemError, "out of memory for %zu communicators", n);
  for (i = 0; i < n; i++) {
    /* A rank 0 that has no id sends one of zeros, so that nobody waits for it. */
    if (inits[i].rank == 0 && draw != NULL) {
      ncclResult_t drawn = lp_fallback_result("ncclGetUniqueId", draw(&ids[i]));
      if (drawn != ncclSuccess) {
        memset(&ids[i], 0, sizeof ids[i]);
        rc = drawn;
      }
    }
    calls[i] = (struct lp_call){.comm = inits[i].comm, .kind = LP_BROADCAST, .type = ncclUint8, .count = sizeof ids[i],
                                .send = &ids[i], .recv = &ids[i]};
  }
  if (core->run(calls, n, err, sizeof err) != ncclSuccess) rc = lp_fail(ncclSystemError, "%s", err);
  for (i = 0; i < n && rc == ncclSuccess; i++) {
    static const ncclUniqueId none;
    if (memcmp(&ids[i], &none, sizeof none) == 0) rc = lp_fail(ncclRemoteError, "rank 0 has no id of that library");
  }
  free(calls);
  return rc;
}

/* Whether these are all ranks of one ncclCommInitAll: others leave the device to the thread. */
static bool all_of_one(const struct lp_init* inits, size_t n) {
  size_t i;
  for (i = 0; i < n; i++)
    if (inits[i].how != LP_BY_ID || (size_t)inits[i].nranks != n || memcmp(inits[i].id, inits[0].id, sizeof inits[0].id) != 0) return false;
  return n > 1 && (inits[0].device != inits[1].device);
}

static ncclResult_t make(const struct lp_init* inits, const ncclUniqueId* ids, ncclComm_t* others, size_t n) {
  ncclResult_t rc = ncclSuccess, end;
  __typeof__(ncclCommInitRank)* init = SYMBOL(ncclCommInitRank, &rc);
  __typeof__(ncclCommInitAll)* init_all = SYMBOL(ncclCommInitAll, &rc);
  __typeof__(ncclGroupStart)* open = SYMBOL(ncclGroupStart, &rc);
  __typeof__(ncclGroupEnd)* close = SYMBOL(ncclGroupEnd, &rc);
  size_t i;
  if (rc != ncclSuccess) return rc;
  if (all_of_one(inits, n)) {
    int* devices = calloc(n, sizeof *devices);
    if (devices == NULL) return lp_fail(ncclSystemError, "out of memory for %zu devices", n);
    for (i = 0; i < n; i++) devices[i] = inits[i].device;
    rc = lp_fallback_result("ncclCommInitAll", init_all(others, (int)n, devices));
    free(devices);
    return rc;
  }
  if (n > 1) rc = open();
  for (i = 0; rc == ncclSuccess && i < n; i++) rc = init(&others[i], inits[i].nranks, ids[i], inits[i].rank);
  end = n > 1 ? close() : ncclSuccess;
  return lp_fallback_result("ncclCommInitRank", rc != ncclSuccess ? rc : end);
}

/* The communicators that there are now: a split may have given none, and their size and rank are the
 * core's to say. Returns how many. */
static size_t made(const struct lp_core* core, const struct lp_init* inits, size_t n, struct lp_init* real) {
  size_t i, count = 0;
  for (i = 0; i < n; i++) {
    struct lp_init* r = &real[count];
    *r = inits[i];
    if (r->comm != 0 && core->count(r->comm, &r->nranks, NULL, 0) == ncclSuccess &&
        core->rank(r->comm, &r->rank, NULL, 0) == ncclSuccess)
      count++;
  }
  return count;
}

void lp_fallback_attach(const struct lp_core* core, const struct lp_init* inits, size_t n) {
  struct lp_init* real;
  ncclUniqueId* ids;
  ncclComm_t* others;
  ncclResult_t rc = ncclSystemError;
  size_t i;
  if (!lp_fallback()) return;
  real = calloc(n, sizeof *real);
  ids = calloc(n, sizeof *ids);
  others = calloc(n, sizeof *others);
  if (real != NULL && ids != NULL && others != NULL) {
    n = made(core, inits, n, real);
    rc = n > 0 ? share_ids(core, real, ids, n) : ncclSuccess;
    if (rc == ncclSuccess && n > 0) rc = make(real, ids, others, n);
    for (i = 0; i < n; i++)
      keep((ncclComm_t)(uintptr_t)real[i].comm, rc == ncclSuccess ? others[i] : NULL,
           rc == ncclSuccess ? "" : pncclGetLastError(NULL));
  }
  free(real);
  free(ids);
  free(others);
}

/* Takes a communicator's pair, and its operators, off the lists. */
static ncclComm_t forget(ncclComm_t ours) {
  ncclComm_t other = NULL;
  struct pair* p;
  size_t i, left = 0;
  pthread_mutex_lock(&mutex);
  p = find(ours);
  if (p != NULL) {
    other = p->other;
    *p = pairs[--pair_count];
  }
  for (i = 0; i < op_count; i++)
    if (ops[i].comm != ours) ops[left++] = ops[i];
  op_count = left;
  pthread_mutex_unlock(&mutex);
  return other;
}

ncclResult_t lp_fallback_end(const char* function, ncclComm_t ours, bool gone) {
  ncclResult_t rc = ncclSuccess;
  ncclResult_t (*end)(ncclComm_t);
  ncclComm_t other;
  struct pair* p;
  if (!lp_fallback()) return ncclSuccess;
  if (gone) {
    other = forget(ours);
  } else {
    pthread_mutex_lock(&mutex);
    p = find(ours);
    other = p != NULL ? p->other : NULL;
    pthread_mutex_unlock(&mutex);
  }
  if (other == NULL) return ncclSuccess;
  *(void**)&end = lp_fallback_symbol(function, &rc);
  return end == NULL ? rc : lp_fallback_result(function, end(other));
}

/* ---- Operators ---- */

void lp_fallback_op(ncclComm_t comm, ncclRedOp_t ours, void* scalar, ncclDataType_t type, ncclScalarResidence_t residence) {
  ncclResult_t rc = ncclSuccess;
  __typeof__(ncclRedOpCreatePreMulSum)* create;
  struct op_pair* list;
  ncclComm_t other;
  ncclRedOp_t op;
  if (!lp_fallback()) return;
  other = lp_fallback_comm("ncclRedOpCreatePreMulSum", comm, &rc);
  create = SYMBOL(ncclRedOpCreatePreMulSum, &rc);
  if (other == NULL || create == NULL || create(&op, scalar, type, residence, other) != ncclSuccess) return;
  pthread_mutex_lock(&mutex);
  list = grown(ops, op_count, &op_room, sizeof *ops);
  if (list != NULL) {
    ops = list;
    ops[op_count++] = (struct op_pair){comm, ours, op};
  }
  pthread_mutex_unlock(&mutex);
}

/* The other library's number of an operator, ncclNumOps where it has none; with end it is forgotten. */
static ncclRedOp_t other_op(ncclComm_t comm, ncclRedOp_t ours, bool end) {
  ncclRedOp_t other = ncclNumOps;
  size_t i;
  pthread_mutex_lock(&mutex);
  for (i = 0; i < op_count; i++)
    if (ops[i].comm == comm && ops[i].ours == ours) {
      other = ops[i].other;
      if (end) ops[i] = ops[--op_count];
      break;
    }
  pthread_mutex_unlock(&mutex);
  return other;
}

void lp_fallback_op_end(ncclComm_t comm, ncclRedOp_t ours) {
  ncclRedOp_t op;
  if (!lp_fallback()) return;
  op = other_op(comm, ours, true);
  if (op != ncclNumOps && !lp_interpose_op_end(comm, op)) lp_fallback_op_free(comm, op);
}

void lp_fallback_op_free(ncclComm_t comm, ncclRedOp_t op) {
  ncclResult_t rc = ncclSuccess;
  __typeof__(ncclRedOpDestroy)* destroy;
  ncclComm_t other;
  other = lp_fallback_comm("ncclRedOpDestroy", comm, &rc);
  destroy = SYMBOL(ncclRedOpDestroy, &rc);
  if (other != NULL && destroy != NULL) (void)destroy(op, other); /* ours is gone either way */
}

/* ---- Calls ---- */

/* The driver's cuPointerGetAttribute, where this process has the driver: without it there is no device
 * memory. */
typedef int pointer_attribute(void* data, int attribute, uint64_t pointer);

static pointer_attribute* driver(void) {
  static _Atomic(pointer_attribute*) known;
  pointer_attribute* ask = atomic_load(&known);
  void* cuda;
  if (ask != NULL) return ask;
  cuda = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (cuda == NULL) return NULL;
  *(void**)&ask = dlsym(cuda, "cuPointerGetAttribute");
  atomic_store(&known, ask);
  return ask;
}

bool lp_fallback_cuda(void) { return lp_fallback() && driver() != NULL; }

bool lp_fallback_device(const void* p) {
  enum { MEMORY_TYPE = 2, DEVICE = 2 }; /* CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_MEMORYTYPE_DEVICE */
  pointer_attribute* ask = p != NULL && lp_fallback() ? driver() : NULL;
  unsigned int type = 0;
  return ask != NULL && ask(&type, MEMORY_TYPE, (uint64_t)(uintptr_t)p) == 0 && type == DEVICE;
}

bool lp_fallback_takes(const struct lp_call* call) {
  if (!lp_fallback()) return false;
  return everything || call->stream != NULL || lp_fallback_device(call->send) || lp_fallback_device(call->recv);
}

/* Signals have no memory by which to tell: all one-sided calls of a process go one way. */
bool lp_fallback_takes_onesided(const void* stream) {
  return lp_fallback() && (everything || stream != NULL || lp_fallback_cuda());
}

ncclResult_t lp_fallback_enter_group(void) {
  ncclResult_t rc = ncclSuccess;
  __typeof__(ncclGroupStart)* open;
  if (!lp_group_open() || group_open) return ncclSuccess;
  open = SYMBOL(ncclGroupStart, &rc);
  if (open != NULL) rc = lp_fallback_result("ncclGroupStart", open());
  group_open = rc == ncclSuccess;
  return rc;
}

ncclResult_t lp_fallback_group_end(void) {
  ncclResult_t rc = ncclSuccess;
  __typeof__(ncclGroupEnd)* close;
  if (!group_open) return ncclSuccess;
  group_open = false;
  close = SYMBOL(ncclGroupEnd, &rc);
  return close == NULL ? rc : lp_fallback_result("ncclGroupEnd", close());
}

/* One call of the other library: with a configuration where the caller has given one. */
#define FORWARD(NAME, ...)                                                                     \
  do {                                                                                         \
    if (config != NULL) {                                                                      \
      __typeof__(NAME##Config)* with = SYMBOL(NAME##Config, &rc);                              \
      return with == NULL ? rc : lp_fallback_result(#NAME "Config", with(__VA_ARGS__, config)); \
    }                                                                                          \
    FORWARD_PLAIN(NAME, __VA_ARGS__);                                                          \
  } while (0)
#define FORWARD_PLAIN(NAME, ...)                                                        \
  do {                                                                                  \
    __typeof__(NAME)* plain = SYMBOL(NAME, &rc);                                        \
    return plain == NULL ? rc : lp_fallback_result(#NAME, plain(__VA_ARGS__));          \
  } while (0)

static ncclResult_t forward(const struct lp_call* call, ncclComm_t comm, ncclRedOp_t op, const ncclCollConfig_t* config) {
  const size_t count = (size_t)call->count;
  const ncclDataType_t type = (ncclDataType_t)call->type;
  const cudaStream_t stream = (cudaStream_t)call->stream;
  ncclResult_t rc = ncclInternalError;
  switch ((enum lp_kind)call->kind) {
    case LP_ALLREDUCE: FORWARD(ncclAllReduce, call->send, call->recv, count, type, op, comm, stream);
    case LP_BROADCAST: FORWARD(ncclBroadcast, call->send, call->recv, count, type, call->peer, comm, stream);
    case LP_REDUCE: FORWARD(ncclReduce, call->send, call->recv, count, type, op, call->peer, comm, stream);
    case LP_ALLGATHER: FORWARD(ncclAllGather, call->send, call->recv, count, type, comm, stream);
    case LP_REDUCESCATTER: FORWARD(ncclReduceScatter, call->send, call->recv, count, type, op, comm, stream);
    case LP_ALLTOALL: FORWARD(ncclAlltoAll, call->send, call->recv, count, type, comm, stream);
    case LP_GATHER: FORWARD(ncclGather, call->send, call->recv, count, type, call->peer, comm, stream);
    case LP_SCATTER: FORWARD(ncclScatter, call->send, call->recv, count, type, call->peer, comm, stream);
    case LP_SEND: FORWARD_PLAIN(ncclSend, call->send, count, type, call->peer, comm, stream);
    case LP_RECV: FORWARD_PLAIN(ncclRecv, call->recv, count, type, call->peer, comm, stream);
    case LP_PUT_SIGNAL:
    case LP_SIGNAL:
    case LP_WAIT_SIGNAL: break; /* onesided.c has more to say than the call holds */
  }
  return rc;
}

ncclResult_t lp_fallback_op_of(const char* function, const struct lp_call* call, ncclRedOp_t* op) {
  *op = (ncclRedOp_t)call->op;
  if (call->op >= ncclNumOps && (*op = other_op((ncclComm_t)(uintptr_t)call->comm, *op, false)) == ncclNumOps)
    return lp_fail(ncclInvalidArgument, "%s: op %d does not exist in %s", function, call->op, path);
  return ncclSuccess;
}

ncclResult_t lp_fallback_forward(const char* function, const struct lp_call* call, ncclRedOp_t op, const ncclCollConfig_t* config) {
  ncclResult_t rc = ncclSuccess;
  ncclComm_t other = lp_fallback_comm(function, (ncclComm_t)(uintptr_t)call->comm, &rc);
  return other == NULL ? rc : forward(call, other, op, config);
}

ncclResult_t lp_fallback_call(const char* function, const struct lp_call* call, const ncclCollConfig_t* config) {
  ncclRedOp_t op;
  ncclResult_t rc = ncclSuccess;
  if (interposes) return lp_interpose_call(function, call, config);
  if (lp_fallback_comm(function, (ncclComm_t)(uintptr_t)call->comm, &rc) == NULL) return lp_group_note(rc);
  rc = lp_fallback_op_of(function, call, &op);
  if (rc != ncclSuccess) return rc;
  rc = lp_fallback_enter_group();
  return lp_group_note(rc == ncclSuccess ? lp_fallback_forward(function, call, op, config) : rc);
}

ncclResult_t lp_fallback_async_error(ncclComm_t ours) {
  ncclResult_t state = ncclSuccess, rc = ncclSuccess;
  __typeof__(ncclCommGetAsyncError)* ask;
  struct pair* p;
  ncclComm_t other;
  if (!lp_fallback()) return ncclSuccess;
  pthread_mutex_lock(&mutex);
  p = find(ours);
  other = p != NULL ? p->other : NULL;
  pthread_mutex_unlock(&mutex);
  *(void**)&ask = dlsym(library, "ncclCommGetAsyncError");
  if (other == NULL || ask == NULL) return ncclSuccess;
  rc = ask(other, &state);
  return lp_fallback_result("ncclCommGetAsyncError", rc != ncclSuccess ? rc : state);
}
