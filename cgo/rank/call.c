#include "rank.h"

/* NCCL has these since 2.28; the rank also runs over older libraries. */
#pragma weak ncclAlltoAll
#pragma weak ncclGather
#pragma weak ncclScatter

const char *nccl_lacks(const struct run *r) {
  if (r->coll == ALLTOALL && !ncclAlltoAll) return "ncclAlltoAll";
  if (r->coll == GATHER && !ncclGather) return "ncclGather";
  if (r->coll == SCATTER && !ncclScatter) return "ncclScatter";
  return NULL;
}

static ncclResult_t sendrecv(const struct run *r, int rank, int world, struct buffers b, ncclComm_t comm,
                             cudaStream_t s) {
  ncclResult_t result = ncclGroupStart();
  if (result == ncclSuccess) result = ncclSend(b.send, r->count, r->type, (rank + 1) % world, comm, s);
  if (result == ncclSuccess) result = ncclRecv(b.recv, r->count, r->type, (rank + world - 1) % world, comm, s);
  ncclResult_t end = ncclGroupEnd();
  return result != ncclSuccess ? result : end;
}

/* As in frameworks: a group with a send and a receive for each peer, none for empty messages. */
static ncclResult_t alltoallv(const struct run *r, int rank, int world, struct buffers b, ncclComm_t comm,
                              cudaStream_t s) {
  size_t size = type_size(r->type), n = (size_t)world, me = (size_t)rank;
  uint64_t from = 0, to = 0;
  ncclResult_t result = ncclGroupStart();
  for (size_t p = 0; p < n && result == ncclSuccess; p++) {
    uint64_t out = r->matrix[me * n + p], in = r->matrix[p * n + me];
    if (out > 0) result = ncclSend(b.send + to * size, out, r->type, (int)p, comm, s);
    if (in > 0 && result == ncclSuccess) result = ncclRecv(b.recv + from * size, in, r->type, (int)p, comm, s);
    to += out, from += in;
  }
  ncclResult_t end = ncclGroupEnd();
  return result != ncclSuccess ? result : end;
}

ncclResult_t nccl_call(const struct run *r, int rank, int world, struct buffers at, ncclComm_t comm, void *stream) {
  cudaStream_t s = stream;
  if (nccl_lacks(r)) return ncclInvalidUsage;
  switch (r->coll) {
    case ALLREDUCE: return ncclAllReduce(at.send, at.recv, r->count, r->type, r->op, comm, s);
    case BROADCAST: return ncclBroadcast(at.send, at.recv, r->count, r->type, r->root, comm, s);
    case REDUCE: return ncclReduce(at.send, at.recv, r->count, r->type, r->op, r->root, comm, s);
    case ALLGATHER: return ncclAllGather(at.send, at.recv, r->count, r->type, comm, s);
    case REDUCESCATTER: return ncclReduceScatter(at.send, at.recv, r->count, r->type, r->op, comm, s);
    case ALLTOALL: return ncclAlltoAll(at.send, at.recv, r->count, r->type, comm, s);
    case GATHER: return ncclGather(at.send, at.recv, r->count, r->type, r->root, comm, s);
    case SCATTER: return ncclScatter(at.send, at.recv, r->count, r->type, r->root, comm, s);
    case ALLTOALLV: return alltoallv(r, rank, world, at, comm, s);
    default: return sendrecv(r, rank, world, at, comm, s);
  }
}
