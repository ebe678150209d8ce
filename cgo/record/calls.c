/* The calls that are recorded. The thread that calls writes; it takes no lock, and allocates nothing. */
#include "record.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

/* Communicators that the open group of a thread makes: their handles are there when it ends. */
#define MADE_IN_GROUP 256

struct made {
  ncclComm_t *out, parent;
  uint64_t id;
  uint32_t ranks, rank;
};

static __thread struct {
  int depth;
  uint64_t group; /* 0: the open group has no recorded call */
  size_t count;
  struct made made[MADE_IN_GROUP];
} own;

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- Writing ---- */

static void put(struct lp_record_file* f, const struct lp_record_call* call) {
  uint64_t n = __atomic_fetch_add(&f->header.calls, 1, __ATOMIC_RELAXED);
  struct lp_record_call* at = &f->calls[n % LP_RECORD_CALLS];
  /* A process that is killed meanwhile leaves a call that is not there. */
  __atomic_store_n(&at->seq, 0, __ATOMIC_RELEASE);
  memcpy((char*)at + sizeof at->seq, (const char*)call + sizeof at->seq, sizeof *at - sizeof at->seq);
  __atomic_store_n(&at->seq, n + 1, __ATOMIC_RELEASE);
}

static uint8_t bytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32: return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64: return 8;
    default: return 1;
  }
}

/* Numbers a call of a communicator. The threads that use a communicator take turns, as NCCL demands. */
static uint64_t next_number(struct lp_known* k, const struct lp_call* c) {
  uint64_t* list = c->kind == LP_SEND ? k->sent : k->received;
  if (c->kind != LP_SEND && c->kind != LP_RECV) return k->collectives++;
  return list != NULL && c->peer >= 0 && (uint32_t)c->peer < k->ranks ? list[c->peer]++ : 0;
}

static void note(struct lp_record_file* f, const struct lp_call* c, int64_t begin) {
  struct lp_known* k = lp_known(lp_comm(c->comm));
  struct lp_record_call r = {.begin = begin, .count = c->count, .peer = c->peer, .kind = (uint8_t)c->kind};
  if (k == NULL || !lp_know_ranks(k)) {
    __atomic_fetch_add(&f->header.unknown, 1, __ATOMIC_RELAXED);
    return;
  }
  r.number = next_number(k, c);
  r.comm = (uint16_t)k->entry;
  r.type_bytes = bytes_of((ncclDataType_t)c->type);
  r.op = (uint8_t)(c->op < 255 ? c->op : 255);
  r.stream = c->stream != NULL;
  if (own.depth > 0) {
    if (own.group == 0) own.group = 1 + __atomic_fetch_add(&f->header.groups, 1, __ATOMIC_RELAXED);
    r.group = own.group;
  } else {
    r.end = now();
  }
  put(f, &r);
}

/* The time at which a call begins; in a group that of its end counts. */
static int64_t begin(const struct lp_record_file* f) { return f != NULL && own.depth == 0 ? now() : 0; }

/* Makes a call, and records it. */
#define CALL(NAME, KIND, TYPE, OP, PEER, COUNT, ...)                                                                \
  do {                                                                                                              \
    struct lp_record_file* f = lp_record_now();                                                                     \
    int64_t at = begin(f);                                                                                          \
    ncclResult_t rc = LP_REAL(NAME)(__VA_ARGS__);                                                                   \
    if (f != NULL && (rc == ncclSuccess || rc == ncclInProgress)) {                                                 \
      const struct lp_call c = {.comm = lp_handle(comm), .kind = (KIND), .type = (int32_t)(TYPE), .op = (int32_t)(OP), \
                                .peer = (PEER), .count = (COUNT), .stream = (void*)stream};                         \
      note(f, &c, at);                                                                                              \
    }                                                                                                               \
    return rc;                                                                                                      \
  } while (0)

/* ---- Collectives and messages ---- */

#define EXPAND(...) __VA_ARGS__
/* A collective, and its form with a configuration. */
#define COLLECTIVE(NAME, KIND, TYPE, OP, PEER, COUNT, PARAMS, ARGS)                                               \
  LP_API(ncclResult_t, NAME, (EXPAND PARAMS, ncclComm_t comm, cudaStream_t stream)) {                             \
    CALL(NAME, KIND, TYPE, OP, PEER, COUNT, EXPAND ARGS, comm, stream);                                           \
  }                                                                                                               \
  LP_API(ncclResult_t, NAME##Config,                                                                              \
         (EXPAND PARAMS, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config)) {                 \
    CALL(NAME##Config, KIND, TYPE, OP, PEER, COUNT, EXPAND ARGS, comm, stream, config);                           \
  }

COLLECTIVE(ncclAllReduce, LP_ALLREDUCE, type, op, 0, count,
           (const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op),
           (send, recv, count, type, op))
COLLECTIVE(ncclBroadcast, LP_BROADCAST, type, 0, root, count,
           (const void* send, void* recv, size_t count, ncclDataType_t type, int root),
           (send, recv, count, type, root))
COLLECTIVE(ncclReduce, LP_REDUCE, type, op, root, count,
           (const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root),
           (send, recv, count, type, op, root))
COLLECTIVE(ncclAllGather, LP_ALLGATHER, type, 0, 0, count,
           (const void* send, void* recv, size_t count, ncclDataType_t type), (send, recv, count, type))
COLLECTIVE(ncclReduceScatter, LP_REDUCESCATTER, type, op, 0, count,
           (const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op),
           (send, recv, count, type, op))
COLLECTIVE(ncclAlltoAll, LP_ALLTOALL, type, 0, 0, count,
           (const void* send, void* recv, size_t count, ncclDataType_t type), (send, recv, count, type))
COLLECTIVE(ncclGather, LP_GATHER, type, 0, root, count,
           (const void* send, void* recv, size_t count, ncclDataType_t type, int root),
           (send, recv, count, type, root))
COLLECTIVE(ncclScatter, LP_SCATTER, type, 0, root, count,
           (const void* send, void* recv, size_t count, ncclDataType_t type, int root),
           (send, recv, count, type, root))

LP_API(ncclResult_t, ncclBcast,
       (void* buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream)) {
  CALL(ncclBcast, LP_BROADCAST, type, 0, root, count, buffer, count, type, root, comm, stream);
}

LP_API(ncclResult_t, ncclSend,
       (const void* send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)) {
  CALL(ncclSend, LP_SEND, type, 0, peer, count, send, count, type, peer, comm, stream);
}

LP_API(ncclResult_t, ncclRecv,
       (void* recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)) {
  CALL(ncclRecv, LP_RECV, type, 0, peer, count, recv, count, type, peer, comm, stream);
}

/* ---- Groups ---- */

/* Ends the recording of a group. end 0: it has not been run. */
static void end_group(int64_t begin, int64_t end) {
  struct lp_record_file* f = lp_record_now();
  struct lp_record_call r = {.begin = begin, .end = end, .group = own.group, .kind = LP_RECORD_GROUP_END};
  size_t i;
  if (f != NULL && own.group > 0) put(f, &r);
  own.group = 0;
  for (i = 0; end > 0 && i < own.count; i++) {
    const struct made* m = &own.made[i];
    lp_know(*m->out, m->id, m->ranks, m->rank, m->parent);
  }
  own.count = 0;
}

LP_API(ncclResult_t, ncclGroupStart, (void)) {
  ncclResult_t rc = LP_REAL(ncclGroupStart)();
  if (rc == ncclSuccess) own.depth++;
  return rc;
}

LP_API(ncclResult_t, ncclGroupEnd, (void)) {
  bool last = own.depth == 1;
  int64_t at = last && own.group > 0 ? now() : 0;
  ncclResult_t rc = LP_REAL(ncclGroupEnd)();
  if (own.depth > 0) own.depth--;
  if (last) end_group(at, rc == ncclSuccess || rc == ncclInProgress ? now() : 0);
  return rc;
}

LP_API(ncclResult_t, ncclGroupSimulateEnd, (ncclSimInfo_t* info)) {
  ncclResult_t rc = LP_REAL(ncclGroupSimulateEnd)(info);
  if (own.depth > 0 && --own.depth == 0) end_group(0, 0);
  return rc;
}

/* ---- Communicators ---- */

/* Adds bytes to the id of a communicator. */
static uint64_t mix(uint64_t id, const void* bytes, size_t size) {
  const unsigned char* b = bytes;
  size_t i;
  for (i = 0; i < size; i++) id = (id ^ b[i]) * UINT64_C(0x100000001b3);
  return id ^ id >> 29;
}

static uint64_t id_of(const ncclUniqueId* ids, int n) {
  return mix(UINT64_C(0xcbf29ce484222325), ids, (size_t)n * sizeof *ids);
}

/* The id of a child: each call that makes children of a communicator is made by all its ranks, in one order. */
static uint64_t child_id(ncclComm_t parent, int color, struct lp_known** p) {
  const struct lp_record_file* f = lp_record_now();
  uint64_t id, nth;
  *p = lp_known(parent);
  if (f == NULL || *p == NULL) return 0;
  id = f->comms[(*p)->entry].id;
  nth = (*p)->children++;
  return mix(mix(id, &nth, sizeof nth), &color, sizeof color);
}

static ncclResult_t note_made(ncclResult_t rc, ncclComm_t* out, uint64_t id, int ranks, int rank, ncclComm_t parent) {
  const struct made m = {out, parent, id, (uint32_t)ranks, (uint32_t)rank};
  if ((rc != ncclSuccess && rc != ncclInProgress) || out == NULL) return rc;
  if (own.depth == 0)
    lp_know(*out, id, m.ranks, m.rank, parent);
  else if (own.count < MADE_IN_GROUP)
    own.made[own.count++] = m;
  return rc;
}

LP_API(ncclResult_t, ncclCommInitRank, (ncclComm_t* comm, int ranks, ncclUniqueId id, int rank)) {
  return note_made(LP_REAL(ncclCommInitRank)(comm, ranks, id, rank), comm, id_of(&id, 1), ranks, rank, NULL);
}

LP_API(ncclResult_t, ncclCommInitRankConfig,
       (ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config)) {
  ncclResult_t rc = LP_REAL(ncclCommInitRankConfig)(comm, ranks, id, rank, config);
  return note_made(rc, comm, id_of(&id, 1), ranks, rank, NULL);
}

LP_API(ncclResult_t, ncclCommInitRankScalable,
       (ncclComm_t* comm, int ranks, int rank, int n, ncclUniqueId* ids, ncclConfig_t* config)) {
  ncclResult_t rc = LP_REAL(ncclCommInitRankScalable)(comm, ranks, rank, n, ids, config);
  return rc == ncclSuccess || rc == ncclInProgress ? note_made(rc, comm, id_of(ids, n), ranks, rank, NULL) : rc;
}

LP_API(ncclResult_t, ncclCommInitAll, (ncclComm_t* comms, int n, const int* devices)) {
  const int64_t salt[2] = {now(), (int64_t)(intptr_t)comms}; /* all ranks are in this process */
  ncclResult_t rc = LP_REAL(ncclCommInitAll)(comms, n, devices);
  int i;
  for (i = 0; (rc == ncclSuccess || rc == ncclInProgress) && i < n; i++)
    (void)note_made(rc, &comms[i], mix(UINT64_C(0xcbf29ce484222325), salt, sizeof salt), n, i, NULL);
  return rc;
}

LP_API(ncclResult_t, ncclCommSplit, (ncclComm_t comm, int color, int key, ncclComm_t* out, ncclConfig_t* config)) {
  struct lp_known* parent;
  uint64_t id = child_id(comm, color, &parent);
  ncclResult_t rc = LP_REAL(ncclCommSplit)(comm, color, key, out, config);
  return parent != NULL && color != NCCL_SPLIT_NOCOLOR ? note_made(rc, out, id, 0, 0, comm) : rc;
}

LP_API(ncclResult_t, ncclCommShrink,
       (ncclComm_t comm, int* exclude, int n, ncclComm_t* out, ncclConfig_t* config, int flags)) {
  struct lp_known* parent;
  uint64_t id = child_id(comm, 0, &parent);
  ncclResult_t rc = LP_REAL(ncclCommShrink)(comm, exclude, n, out, config, flags);
  return parent != NULL ? note_made(rc, out, id, 0, 0, comm) : rc;
}

/* ---- Fork ---- */

static void in_child(void) {
  memset(&own, 0, sizeof own);
  lp_record_after_fork();
  lp_known_after_fork();
}

__attribute__((constructor)) static void prepare(void) { pthread_atfork(NULL, NULL, in_child); }
