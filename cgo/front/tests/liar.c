/* A faulty profiling tool, for LD_PRELOAD: it replaces the weak ncclX, calls pncclX and changes the last byte of
 * every result. This shows that a tool can interpose, and that programs which check results find wrong ones. */
#include <string.h>

#include "nccl.h"

static const size_t size_of[ncclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

/* Changes the sign of the last element: a greater difference than any tolerance. */
static void spoil(void* recv, size_t count, ncclDataType_t type) {
  if (count > 0) ((unsigned char*)recv)[count * size_of[type] - 1] ^= 0x55;
}

__attribute__((visibility("default"))) ncclResult_t ncclAllReduce(const void* send, void* recv, size_t count,
    ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  ncclResult_t rc = pncclAllReduce(send, recv, count, type, op, comm, stream);
  spoil(recv, count, type);
  return rc;
}

__attribute__((visibility("default"))) ncclResult_t ncclAlltoAll(const void* send, void* recv, size_t count,
    ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
  int ranks = 0;
  ncclResult_t rc = pncclAlltoAll(send, recv, count, type, comm, stream);
  if (rc == ncclSuccess && pncclCommCount(comm, &ranks) == ncclSuccess) spoil(recv, count * (size_t)ranks, type);
  return rc;
}
