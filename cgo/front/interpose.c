/* Interposer mode, LIGHTPATH_FALLBACK=interpose: collectives on streams for which there are plans, or chosen
 * algorithms, are executed as sends and receives of the other library. The core does that through the table below.
 * Other calls are passed on.
 *
 * In a group, all calls on streams are queued here. At its end the interposed calls run first, each as a sequence
 * of groups of the other library, then the others as one group. An open group of the other library could not hold
 * such a sequence. */
#include "other.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The other library, for the core ---- */

static struct {
  __typeof__(ncclGetUniqueId)* unique_id;
  __typeof__(ncclGroupStart)* open;
  __typeof__(ncclGroupEnd)* close;
  __typeof__(ncclSend)* send;
  __typeof__(ncclRecv)* recv;
  __typeof__(ncclCommGetAsyncError)* async_error;
  __typeof__(ncclCommAbort)* abort;
  __typeof__(ncclCommDestroy)* destroy;
} nccl;

static int unique_id(unsigned char* id) { return (int)nccl.unique_id((ncclUniqueId*)id); }

static int exchange(uint64_t comm, const struct lp_transfer* list, size_t n, void* stream) {
  ncclResult_t rc = nccl.open(), end;
  size_t i;
  if (rc != ncclSuccess) return (int)rc;
  for (i = 0; rc == ncclSuccess && i < n; i++) {
    const struct lp_transfer* t = &list[i];
    rc = t->send != 0 ? nccl.send(t->at, (size_t)t->bytes, ncclUint8, t->peer, lp_comm(comm), (cudaStream_t)stream)
                      : nccl.recv(t->at, (size_t)t->bytes, ncclUint8, t->peer, lp_comm(comm), (cudaStream_t)stream);
  }
  end = nccl.close();
  return (int)(rc != ncclSuccess ? rc : end);
}

static int async_error(uint64_t comm) {
  ncclResult_t state = ncclSuccess, rc = nccl.async_error(lp_comm(comm), &state);
  return (int)(rc != ncclSuccess ? rc : state);
}

static int abort_comm(uint64_t comm) { return (int)nccl.abort(lp_comm(comm)); }
static int destroy_comm(uint64_t comm) { return (int)nccl.destroy(lp_comm(comm)); }

static void text_of(int result, char* err, size_t errlen) { lp_other_text((ncclResult_t)result, err, errlen); }

static const struct lp_other table = {unique_id,  lp_other_make, exchange, async_error,
                                      abort_comm, destroy_comm,  text_of};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool complete; /* the other library has all these functions */

static void resolve(void) {
  ncclResult_t why = ncclSuccess;
#define RESOLVE(FIELD, NAME) nccl.FIELD = (__typeof__(NAME)*)lp_other_symbol(#NAME, &why)
  RESOLVE(unique_id, ncclGetUniqueId);
  RESOLVE(open, ncclGroupStart);
  RESOLVE(close, ncclGroupEnd);
  RESOLVE(send, ncclSend);
  RESOLVE(recv, ncclRecv);
  RESOLVE(async_error, ncclCommGetAsyncError);
  RESOLVE(abort, ncclCommAbort);
  RESOLVE(destroy, ncclCommDestroy);
#undef RESOLVE
  (void)LP_OTHER(ncclCommInitRank, &why); /* lp_other_make calls these */
  (void)LP_OTHER(ncclCommInitRankConfig, &why);
  (void)LP_OTHER(ncclCommInitAll, &why);
  complete = why == ncclSuccess;
}

ncclResult_t lp_interpose_check(void) {
  if (!lp_other_interposes()) return ncclSuccess;
  pthread_once(&once, resolve);
  return complete ? ncclSuccess
                  : lp_fail(ncclInvalidUsage,
                            "LIGHTPATH_FALLBACK=interpose: the other library lacks functions that it needs");
}

void lp_interpose_attach(const struct lp_core* core, const struct lp_init* inits, size_t n) {
  uint64_t* comms;
  size_t i, count = 0;
  if (!lp_other_interposes()) return;
  comms = calloc(n, sizeof *comms);
  if (comms == NULL) return;
  for (i = 0; i < n; i++)
    if (inits[i].comm != 0) comms[count++] = inits[i].comm; /* a split may make none */
  if (count > 0)
    (void)core->interpose(comms, count, &table, NULL, 0); /* a failure is reported by the communicators */
  free(comms);
}

/* ---- Calls ---- */

/* A queued call, or the end of an operator. */
struct pending {
  struct lp_call call;
  const char* function;
  ncclCollConfig_t* config; /* NULL: none */
  ncclRedOp_t op;           /* the other library's */
  enum { INTERPOSED, PASSED_ON, OPERATOR } what;
};

/* The calls that frameworks usually group need no allocation. */
#define INLINE_PENDING 16

static __thread struct {
  struct pending few[INLINE_PENDING];
  struct pending* list; /* few, or allocated; NULL while nothing is queued */
  size_t count, room;
} queue;

/* Ends what an entry holds: its configuration, or an operator that the program has destroyed. */
static void release(struct pending* p) {
  ncclConfigExt_t *ext, *next;
  if (p->what == OPERATOR) lp_other_op_destroy(lp_comm(p->call.comm), p->op);
  if (p->config == NULL) return;
  for (ext = p->config->ext; ext != NULL; ext = next) {
    next = ext->next;
    free(ext);
  }
  free((void*)p->config->algSelection);
  free(p->config);
}

/* Copies a configuration: the caller's is valid only until its call returns. */
static ncclCollConfig_t* copy_config(const ncclCollConfig_t* config) {
  static const ncclCollConfig_t fresh = NCCL_COLLCONFIG_INITIALIZER;
  ncclCollConfig_t* own = malloc(sizeof *own);
  ncclConfigExt_t *ext, **last;
  if (own == NULL) return NULL;
  *own = fresh;
  memcpy(own, config, config->size < sizeof *own ? config->size : sizeof *own);
  if (own->size > sizeof *own) own->size = sizeof *own; /* a newer header has more, which is not copied */
  ext = own->ext;
  last = &own->ext;
  for (*last = NULL; ext != NULL; ext = ext->next) {
    *last = malloc(sizeof **last);
    if (*last == NULL) break;
    **last = *ext;
    last = &(*last)->next;
    *last = NULL;
  }
  if (own->algSelection != NULL) own->algSelection = strdup(own->algSelection);
  return own;
}

static struct pending* push(void) {
  if (queue.list == NULL) {
    queue.list = queue.few;
    queue.room = INLINE_PENDING;
  }
  if (queue.count == queue.room) {
    struct pending* more = realloc(queue.list != queue.few ? queue.list : NULL, 2 * queue.room * sizeof *more);
    if (more == NULL) return NULL;
    if (queue.list == queue.few) memcpy(more, queue.few, sizeof queue.few);
    queue.list = more;
    queue.room *= 2;
  }
  return memset(&queue.list[queue.count++], 0, sizeof *queue.list);
}

/* Queues a call. It looks up the operator now, which may end before the group. */
static ncclResult_t queue_call(const char* function, const struct lp_call* call, const ncclCollConfig_t* config,
                               bool interposed) {
  struct pending* p = push();
  ncclResult_t rc = ncclSuccess;
  if (p == NULL) return lp_group_no_memory();
  p->call = *call;
  p->function = function;
  p->what = interposed ? INTERPOSED : PASSED_ON;
  if (!interposed) rc = lp_other_op(function, call, &p->op);
  if (rc == ncclSuccess && !interposed && config != NULL && (p->config = copy_config(config)) == NULL)
    rc = lp_group_no_memory();
  if (rc != ncclSuccess) queue.count--;
  return rc;
}

ncclResult_t lp_interpose_call(const char* function, const struct lp_call* call, const ncclCollConfig_t* config) {
  struct lp_call own = *call; /* the core writes the operator's factor into it */
  ncclRedOp_t op;
  ncclResult_t rc;
  bool yes = false;
  rc = LP_CORE(interposes, &own, &yes);
  if (rc != ncclSuccess) return lp_group_note(rc);
  if (lp_group_open()) return lp_group_note(queue_call(function, &own, config, yes));
  if (yes) return LP_CORE(run, &own, 1);
  rc = lp_other_op(function, call, &op);
  return rc == ncclSuccess ? lp_other_forward(function, call, op, config) : rc;
}

bool lp_interpose_op_end(ncclComm_t comm, ncclRedOp_t op) {
  struct pending* p;
  size_t i;
  for (i = 0; i < queue.count; i++)
    if (queue.list[i].what == PASSED_ON && queue.list[i].call.comm == lp_handle(comm) && queue.list[i].op == op) break;
  if (i == queue.count || (p = push()) == NULL) return false;
  p->call.comm = lp_handle(comm);
  p->op = op;
  p->what = OPERATOR;
  return true;
}

/* Runs the interposed calls, in their order. */
static ncclResult_t run_interposed(void) {
  ncclResult_t rc = ncclSuccess;
  size_t i;
  for (i = 0; rc == ncclSuccess && i < queue.count; i++)
    if (queue.list[i].what == INTERPOSED) rc = LP_CORE(run, &queue.list[i].call, 1);
  return rc;
}

/* Passes on the others, as one group. */
static ncclResult_t pass_on(void) {
  ncclResult_t rc = ncclSuccess, end;
  bool open = false;
  size_t i;
  for (i = 0; rc == ncclSuccess && i < queue.count; i++) {
    const struct pending* p = &queue.list[i];
    if (p->what != PASSED_ON) continue;
    if (!open) rc = lp_other_result("ncclGroupStart", nccl.open());
    open = rc == ncclSuccess;
    if (open) rc = lp_other_forward(p->function, &p->call, p->op, p->config);
    if (!open) break;
  }
  end = open ? lp_other_result("ncclGroupEnd", nccl.close()) : ncclSuccess;
  return rc != ncclSuccess ? rc : end;
}

ncclResult_t lp_interpose_group_end(ncclResult_t error) {
  ncclResult_t rc = error;
  if (rc == ncclSuccess) rc = run_interposed();
  if (rc == ncclSuccess) rc = pass_on();
  lp_interpose_forget(NULL);
  return rc;
}

void lp_interpose_forget(ncclComm_t comm) {
  size_t i, left = 0;
  for (i = 0; i < queue.count; i++) {
    if (comm == NULL || queue.list[i].call.comm == lp_handle(comm))
      release(&queue.list[i]);
    else
      queue.list[left++] = queue.list[i];
  }
  queue.count = left;
  if (left > 0) return;
  if (queue.list != queue.few) free(queue.list);
  queue.list = NULL;
}
