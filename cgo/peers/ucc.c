#include "peers.h"

#include <mpi.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <ucc/api/ucc.h>

/* UCC's collectives. Ranks find each other by MPI. With PEER_YIELD=1 a rank yields while it waits. */

static ucc_lib_h lib;
static ucc_context_h context;
static ucc_team_h team;
static int yields;

static void check(const struct worker *w, const char *what, ucc_status_t result) {
  if (result < 0) rank_fail(w, what, result, ucc_status_string(result));
}

/* ---- Ranks find each other ---- */

static ucc_status_t gather(void *send, void *recv, size_t size, void *info, void **request) {
  MPI_Request *r = malloc(sizeof *r);
  (void)info;
  if (r == NULL) return UCC_ERR_NO_MEMORY;
  *request = r;
  return MPI_Iallgather(send, (int)size, MPI_BYTE, recv, (int)size, MPI_BYTE, MPI_COMM_WORLD, r) == MPI_SUCCESS
             ? UCC_OK
             : UCC_ERR_NO_MESSAGE;
}

static ucc_status_t gathered(void *request) {
  int done = 0;
  if (MPI_Test(request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return UCC_ERR_NO_MESSAGE;
  return done ? UCC_OK : UCC_INPROGRESS;
}

static ucc_status_t forget(void *request) {
  free(request);
  return UCC_OK;
}

static void progress(void) {
  ucc_context_progress(context);
  if (yields) sched_yield();
}

void peer_open(const struct worker *w) {
  ucc_lib_params_t lp = {.mask = UCC_LIB_PARAM_FIELD_THREAD_MODE, .thread_mode = UCC_THREAD_SINGLE};
  ucc_oob_coll_t oob = {.allgather = gather,
                        .req_test = gathered,
                        .req_free = forget,
                        .n_oob_eps = (uint32_t)w->world,
                        .oob_ep = (uint32_t)w->rank};
  ucc_context_params_t cp = {.mask = UCC_CONTEXT_PARAM_FIELD_OOB, .oob = oob};
  ucc_team_params_t tp = {.mask = UCC_TEAM_PARAM_FIELD_OOB, .oob = oob};
  ucc_lib_config_h lc;
  ucc_context_config_h cc;
  ucc_status_t s;
  yields = getenv("PEER_YIELD") != NULL;
  check(w, "ucc_lib_config_read", ucc_lib_config_read(NULL, NULL, &lc));
  check(w, "ucc_init", ucc_init(&lp, lc, &lib));
  ucc_lib_config_release(lc);
  check(w, "ucc_context_config_read", ucc_context_config_read(lib, NULL, &cc));
  check(w, "ucc_context_create", ucc_context_create(lib, &cp, cc, &context));
  ucc_context_config_release(cc);
  check(w, "ucc_team_create_post", ucc_team_create_post(&context, 1, &tp, &team));
  while ((s = ucc_team_create_test(team)) == UCC_INPROGRESS) progress();
  check(w, "ucc_team_create_test", s);
}

void peer_close(const struct worker *w) {
  ucc_status_t s;
  while ((s = ucc_team_destroy(team)) == UCC_INPROGRESS) progress();
  check(w, "ucc_team_destroy", s);
  check(w, "ucc_context_destroy", ucc_context_destroy(context));
  check(w, "ucc_finalize", ucc_finalize(lib));
}

/* ---- Calls ---- */

/* 0, or -1 if UCC has no such type. */
static int ucc_type(ncclDataType_t t, ucc_datatype_t *type) {
  switch (t) {
    case ncclInt8: *type = UCC_DT_INT8; return 0;
    case ncclUint8: *type = UCC_DT_UINT8; return 0;
    case ncclInt32: *type = UCC_DT_INT32; return 0;
    case ncclUint32: *type = UCC_DT_UINT32; return 0;
    case ncclInt64: *type = UCC_DT_INT64; return 0;
    case ncclUint64: *type = UCC_DT_UINT64; return 0;
    case ncclFloat16: *type = UCC_DT_FLOAT16; return 0;
    case ncclFloat32: *type = UCC_DT_FLOAT32; return 0;
    case ncclFloat64: *type = UCC_DT_FLOAT64; return 0;
    case ncclBfloat16: *type = UCC_DT_BFLOAT16; return 0;
    default: return -1;
  }
}

static int ucc_operator(ncclRedOp_t op, ucc_reduction_op_t *o) {
  switch (op) {
    case ncclSum: *o = UCC_OP_SUM; return 0;
    case ncclProd: *o = UCC_OP_PROD; return 0;
    case ncclMax: *o = UCC_OP_MAX; return 0;
    case ncclMin: *o = UCC_OP_MIN; return 0;
    case ncclAvg: *o = UCC_OP_AVG; return 0;
    default: return -1;
  }
}

const char *lib_name(void) { return "UCC " UCC_VERSION_STRING; }

const char *lib_unsupported(const struct run *r) {
  ucc_datatype_t type;
  ucc_reduction_op_t op;
  if (peer_refuses(r)) return peer_refuses(r);
  if (reduces(r) && ucc_operator(r->op, &op) != 0) return "no such operator";
  if (ucc_type(r->type, &type) != 0) return "no such element type";
  return NULL;
}

void lib_call(const struct worker *w, const struct run *r, struct buffers at) {
  uint64_t n = r->count, all = n * (uint64_t)w->world;
  ucc_coll_args_t args = {.root = (uint64_t)r->root};
  ucc_coll_req_h request;
  ucc_status_t s;
  args.src.info = (ucc_coll_buffer_info_t){.buffer = at.send, .count = n, .mem_type = UCC_MEMORY_TYPE_HOST};
  args.dst.info = (ucc_coll_buffer_info_t){.buffer = at.recv, .count = n, .mem_type = UCC_MEMORY_TYPE_HOST};
  ucc_type(r->type, &args.src.info.datatype);
  args.dst.info.datatype = args.src.info.datatype;
  if (reduces(r)) ucc_operator(r->op, &args.op);
  switch (r->coll) {
    case ALLREDUCE: args.coll_type = UCC_COLL_TYPE_ALLREDUCE; break;
    case REDUCE: args.coll_type = UCC_COLL_TYPE_REDUCE; break;
    case ALLGATHER: args.coll_type = UCC_COLL_TYPE_ALLGATHER, args.dst.info.count = all; break;
    case REDUCESCATTER: args.coll_type = UCC_COLL_TYPE_REDUCE_SCATTER, args.src.info.count = all; break;
    case BROADCAST:
      /* Like MPI_Bcast it has one buffer, so only the call in place is the same. */
      if (!r->inplace) memcpy(at.recv, at.send, n * type_size(r->type));
      args.coll_type = UCC_COLL_TYPE_BCAST, args.src.info.buffer = at.recv;
      break;
    default: args.coll_type = UCC_COLL_TYPE_ALLTOALL, args.src.info.count = args.dst.info.count = all; break;
  }
  check(w, collective_name(r->coll), ucc_collective_init(&args, &request, team));
  check(w, collective_name(r->coll), ucc_collective_post(request));
  while ((s = ucc_collective_test(request)) == UCC_INPROGRESS) progress();
  check(w, collective_name(r->coll), s);
  check(w, collective_name(r->coll), ucc_collective_finalize(request));
}
