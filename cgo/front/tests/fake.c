/* A libnccl that only writes its calls into the file FAKE_LOG. Built with FAKE_NARROW it has no ncclAllGather. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl.h"

struct ncclComm {
  int rank, ranks;
};

static ncclResult_t note(const char* format, ...) {
  FILE* f = fopen(getenv("FAKE_LOG"), "ae");
  va_list args;
  if (f == NULL) return ncclSystemError;
  va_start(args, format);
  vfprintf(f, format, args);
  va_end(args);
  fputc('\n', f);
  fclose(f);
  return ncclSuccess;
}

ncclResult_t ncclGetVersion(int* version) { *version = 1; return ncclSuccess; }
const char* ncclGetLastError(ncclComm_t comm) { (void)comm; return "the fake is unwell"; }
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  memset(id, 0, sizeof *id);
  strcpy(id->internal, "fake id");
  return note("GetUniqueId");
}
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  if (getenv("FAKE_NO_DEVICE") != NULL) return ncclUnhandledCudaError;
  *comm = malloc(sizeof **comm);
  (*comm)->rank = rank, (*comm)->ranks = ranks;
  return note("CommInitRank %s %d of %d", id.internal, rank, ranks);
}
ncclResult_t ncclCommInitAll(ncclComm_t* comms, int n, const int* devices) {
  int i;
  for (i = 0; i < n; i++) {
    comms[i] = malloc(sizeof **comms);
    comms[i]->rank = i, comms[i]->ranks = n;
  }
  return note("CommInitAll %d first on %d", n, devices[0]);
}
ncclResult_t ncclCommFinalize(ncclComm_t c) { return note("CommFinalize %d", c->rank); }
ncclResult_t ncclCommDestroy(ncclComm_t c) {
  note("CommDestroy %d", c->rank);
  free(c);
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t c) { return ncclCommDestroy(c); }
ncclResult_t ncclGroupStart(void) { return note("GroupStart"); }
ncclResult_t ncclGroupEnd(void) { return note("GroupEnd"); }
ncclResult_t ncclAllReduce(const void* s, void* r, size_t n, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c,
                           cudaStream_t stream) {
  if (n == 13) return ncclInternalError;
  /* Its own calls must reach its own functions, not those of a library loaded before it. */
  if (n == 14) return ncclAllReduce(s, r, 15, t, op, c, stream);
  return note("AllReduce %p %p %zu %d %d on %d %p", s, r, n, t, op, c->rank, (void*)stream);
}
ncclResult_t ncclAllReduceConfig(const void* s, void* r, size_t n, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c,
                                 cudaStream_t stream, const ncclCollConfig_t* config) {
  (void)s, (void)r, (void)n, (void)t, (void)op, (void)stream;
  return note("AllReduceConfig on %d tag %d", c->rank, (int)config->userProfilerTag);
}
#ifndef FAKE_NARROW
ncclResult_t ncclAllGather(const void* s, void* r, size_t n, ncclDataType_t t, ncclComm_t c, cudaStream_t stream) {
  (void)stream;
  return note("AllGather %p %p %zu %d on %d", s, r, n, t, c->rank);
}
#endif
ncclResult_t ncclSend(const void* s, size_t n, ncclDataType_t t, int peer, ncclComm_t c, cudaStream_t stream) {
  (void)stream;
  return note("Send %p %zu %d to %d on %d", s, n, t, peer, c->rank);
}
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t t, ncclScalarResidence_t where,
                                      ncclComm_t c) {
  (void)scalar, (void)t, (void)where;
  *op = (ncclRedOp_t)77;
  return note("RedOpCreatePreMulSum on %d", c->rank);
}
ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t c) { return note("RedOpDestroy %d on %d", op, c->rank); }
ncclResult_t ncclSignal(int peer, int index, int ctx, unsigned flags, ncclComm_t c, cudaStream_t stream) {
  (void)ctx, (void)flags, (void)stream;
  return note("Signal %d to %d on %d", index, peer, c->rank);
}
ncclResult_t ncclMemAlloc(void** p, size_t n) { *p = (void*)0xdead0000; return note("MemAlloc %zu", n); }
ncclResult_t ncclMemFree(void* p) { return note("MemFree %p", p); }
ncclResult_t ncclCommRegister(const ncclComm_t c, void* p, size_t n, void** handle) {
  *handle = c;
  return note("CommRegister %p %zu on %d", p, n, c->rank);
}
ncclResult_t ncclCommDeregister(const ncclComm_t c, void* handle) {
  return note("CommDeregister %d on %d", handle == c, c->rank);
}
