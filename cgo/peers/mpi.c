#include "peers.h"

#include <mpi.h>
#include <string.h>

/* MPI's collectives, built once with each implementation's compiler. */

static MPI_Datatype mpi_type(ncclDataType_t t) {
  switch (t) {
    case ncclInt8: return MPI_INT8_T;
    case ncclUint8: return MPI_UINT8_T;
    case ncclInt32: return MPI_INT32_T;
    case ncclUint32: return MPI_UINT32_T;
    case ncclInt64: return MPI_INT64_T;
    case ncclUint64: return MPI_UINT64_T;
    case ncclFloat32: return MPI_FLOAT;
    case ncclFloat64: return MPI_DOUBLE;
#ifdef MPIX_C_FLOAT16
    case ncclFloat16: return MPIX_C_FLOAT16;
#endif
    default: return MPI_DATATYPE_NULL;
  }
}

/* The type of a call that only copies elements: any type of their size. */
static MPI_Datatype carrier(const struct run *r) {
  if (reduces(r) || mpi_type(r->type) != MPI_DATATYPE_NULL) return mpi_type(r->type);
  return type_size(r->type) == 2 ? MPI_UINT16_T : MPI_UINT8_T;
}

static MPI_Op mpi_op(ncclRedOp_t op) {
  static const MPI_Op none = MPI_OP_NULL;
  switch (op) {
    case ncclSum: return MPI_SUM;
    case ncclProd: return MPI_PROD;
    case ncclMax: return MPI_MAX;
    case ncclMin: return MPI_MIN;
    default: return none;
  }
}

const char *lib_name(void) {
  static char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int n;
  MPI_Get_library_version(text, &n);
  text[strcspn(text, ",\n")] = 0;
  for (char *c = text; *c; c++)
    if (*c == '\t') *c = ' ';
  return text;
}

const char *lib_unsupported(const struct run *r) {
  if (peer_refuses(r)) return peer_refuses(r);
  if (r->count > INT32_MAX) return "counts are int";
  if (reduces(r) && mpi_op(r->op) == MPI_OP_NULL) return "no such operator";
  if (reduces(r) && mpi_type(r->type) == MPI_DATATYPE_NULL) return "no such element type";
  return NULL;
}

static int call(const struct run *r, struct buffers b) {
  MPI_Datatype t = carrier(r);
  int n = (int)r->count;
  switch (r->coll) {
    case ALLREDUCE: return MPI_Allreduce(b.send, b.recv, n, t, mpi_op(r->op), MPI_COMM_WORLD);
    case BROADCAST: return MPI_Bcast(b.recv, n, t, r->root, MPI_COMM_WORLD);
    case REDUCE: return MPI_Reduce(b.send, b.recv, n, t, mpi_op(r->op), r->root, MPI_COMM_WORLD);
    case ALLGATHER: return MPI_Allgather(b.send, n, t, b.recv, n, t, MPI_COMM_WORLD);
    case REDUCESCATTER: return MPI_Reduce_scatter_block(b.send, b.recv, n, t, mpi_op(r->op), MPI_COMM_WORLD);
    default: return MPI_Alltoall(b.send, n, t, b.recv, n, t, MPI_COMM_WORLD);
  }
}

void lib_call(const struct worker *w, const struct run *r, struct buffers at) {
  /* MPI_Bcast has one buffer, so only the call in place is the same. */
  if (r->coll == BROADCAST && !r->inplace) memcpy(at.recv, at.send, r->count * type_size(r->type));
  mpi_check(w, collective_name(r->coll), call(r, at));
}

void peer_open(const struct worker *w) { (void)w; }
void peer_close(const struct worker *w) { (void)w; }
