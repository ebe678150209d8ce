/* A libnccl that only writes its calls, with their arguments, into the file FAKE_LOG, if there is one. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl.h"

struct ncclComm {
  int rank, ranks;
};

static ncclResult_t note(const char* format, ...) {
  const char* path = getenv("FAKE_LOG");
  va_list args;
  FILE* f;
  if (path == NULL) return ncclSuccess;
  f = fopen(path, "ae");
  if (f == NULL) return ncclSystemError;
  va_start(args, format);
  vfprintf(f, format, args);
  va_end(args);
  fputc('\n', f);
  fclose(f);
  return ncclSuccess;
}

static void make(ncclComm_t* comm, int ranks, int rank) {
  *comm = malloc(sizeof **comm);
  (*comm)->rank = rank, (*comm)->ranks = ranks;
}

ncclResult_t ncclGetVersion(int* version) { *version = 22703; return ncclSuccess; }
const char* ncclGetErrorString(ncclResult_t rc) { return rc == ncclSuccess ? "no error" : "an error"; }
const char* ncclGetLastError(ncclComm_t comm) { (void)comm; return "the fake is unwell"; }
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static int made;
  memset(id, 7, sizeof *id);
  strcpy(id->internal, "fake id");
  memcpy(&id->internal[20], &made, sizeof made);
  made++;
  return note("GetUniqueId");
}
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  if (getenv("FAKE_NO_DEVICE") != NULL) return ncclUnhandledCudaError;
  if (id.internal[sizeof id - 1] != 7) return ncclInvalidArgument;
  make(comm, ranks, rank);
  return note("CommInitRank %s %d of %d", id.internal, rank, ranks);
}
ncclResult_t ncclCommInitAll(ncclComm_t* comms, int n, const int* devices) {
  for (int i = 0; i < n; i++) make(&comms[i], n, i);
  return note("CommInitAll %d first on %d", n, devices == NULL ? 0 : devices[0]);
}
/* Color c has the ranks r of which r % 2 == c. */
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* out, ncclConfig_t* config) {
  (void)config;
  make(out, (comm->ranks + 1 - color) / 2, comm->rank / 2);
  return note("CommSplit %d %d on %d", color, key, comm->rank);
}
ncclResult_t ncclCommCount(const ncclComm_t c, int* n) { *n = c->ranks; return ncclSuccess; }
ncclResult_t ncclCommUserRank(const ncclComm_t c, int* n) { *n = c->rank; return ncclSuccess; }
ncclResult_t ncclCommFinalize(ncclComm_t c) { return note("CommFinalize %d", c->rank); }
ncclResult_t ncclCommDestroy(ncclComm_t c) {
  note("CommDestroy %d", c->rank);
  free(c);
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t c) { return ncclCommDestroy(c); }
ncclResult_t ncclCommRevoke(ncclComm_t c, int flags) {
  return getenv("FAKE_NO_REVOKE") != NULL ? ncclInvalidUsage : note("CommRevoke %d flags %d", c->rank, flags);
}
ncclResult_t ncclGroupStart(void) { return note("GroupStart"); }
ncclResult_t ncclGroupEnd(void) { return note("GroupEnd"); }
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t* info) {
  info->estimatedTime = 1e6;
  return note("GroupSimulateEnd");
}
ncclResult_t ncclAllReduce(const void* s, void* r, size_t n, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c,
                           cudaStream_t stream) {
  if (n == 13) return ncclInternalError;
  /* Its own calls must reach its own functions, not those of a library loaded before it. */
  if (n == 14) return ncclAllReduce(s, r, 15, t, op, c, stream);
  return note("AllReduce %p %p %zu %d %d on %d %p", s, r, n, t, op, c->rank, (void*)stream);
}
ncclResult_t pncclAllReduce(const void* s, void* r, size_t n, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c,
                            cudaStream_t stream) {
  return ncclAllReduce(s, r, n, t, op, c, stream);
}
ncclResult_t ncclAllReduceConfig(const void* s, void* r, size_t n, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c,
                                 cudaStream_t stream, const ncclCollConfig_t* config) {
  return note("AllReduceConfig %p %p %zu %d %d on %d %p tag %d", s, r, n, t, op, c->rank, (void*)stream,
              (int)config->userProfilerTag);
}
ncclResult_t ncclReduce(const void* s, void* r, size_t n, ncclDataType_t t, ncclRedOp_t op, int root, ncclComm_t c,
                        cudaStream_t stream) {
  return note("Reduce %p %p %zu %d %d to %d on %d %p", s, r, n, t, op, root, c->rank, (void*)stream);
}
ncclResult_t ncclAllGather(const void* s, void* r, size_t n, ncclDataType_t t, ncclComm_t c, cudaStream_t stream) {
  return note("AllGather %p %p %zu %d on %d %p", s, r, n, t, c->rank, (void*)stream);
}
ncclResult_t ncclSend(const void* s, size_t n, ncclDataType_t t, int peer, ncclComm_t c, cudaStream_t stream) {
  return note("Send %p %zu %d to %d on %d %p", s, n, t, peer, c->rank, (void*)stream);
}
ncclResult_t ncclRecv(void* r, size_t n, ncclDataType_t t, int peer, ncclComm_t c, cudaStream_t stream) {
  return note("Recv %p %zu %d from %d on %d %p", r, n, t, peer, c->rank, (void*)stream);
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
/* More arguments than registers hold. */
ncclResult_t ncclPutSignal(const void* s, size_t n, ncclDataType_t t, int peer, ncclWindow_t win, size_t offset,
                           int signal, int ctx, unsigned flags, ncclComm_t c, cudaStream_t stream) {
  return note("PutSignal %p %zu %d to %d %p %zu %d %d %u on %d %p", s, n, t, peer, (void*)win, offset, signal, ctx,
              flags, c->rank, (void*)stream);
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
