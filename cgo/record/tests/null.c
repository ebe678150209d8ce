/* A libnccl that does nothing but write its calls, with all arguments, into the file NULL_LOG, if there is one. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl.h"

struct ncclComm {
  int rank, ranks;
};

static ncclResult_t note(const char* format, ...) {
  const char* path = getenv("NULL_LOG");
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

static ncclResult_t make(ncclComm_t* comm, int ranks, int rank) {
  *comm = malloc(sizeof **comm);
  (*comm)->rank = rank, (*comm)->ranks = ranks;
  return note("make %d of %d", rank, ranks);
}

ncclResult_t ncclGetVersion(int* version) { *version = 22703; return ncclSuccess; }
const char* ncclGetErrorString(ncclResult_t rc) { return rc == ncclSuccess ? "no error" : "an error"; }
const char* ncclGetLastError(ncclComm_t comm) { (void)comm; return "none"; }
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static int made;
  memset(id, 7, sizeof *id);
  id->internal[0] = (char)made++;
  return ncclSuccess;
}
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  return id.internal[127] == 7 ? make(comm, ranks, rank) : ncclInvalidArgument;
}
ncclResult_t ncclCommInitAll(ncclComm_t* comms, int n, const int* devices) {
  (void)devices;
  for (int i = 0; i < n; i++) make(&comms[i], n, i);
  return ncclSuccess;
}
/* Color c has the ranks r of which r % 2 == c. */
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* out, ncclConfig_t* config) {
  (void)key, (void)config;
  return make(out, (comm->ranks + 1 - color) / 2, comm->rank / 2);
}
ncclResult_t ncclCommCount(const ncclComm_t comm, int* n) { *n = comm->ranks; return ncclSuccess; }
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* n) { *n = comm->rank; return ncclSuccess; }
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  note("destroy %d", comm->rank);
  free(comm);
  return ncclSuccess;
}
ncclResult_t ncclGroupStart(void) { return note("start"); }
ncclResult_t ncclGroupEnd(void) { return note("end"); }
ncclResult_t ncclAllReduce(const void* s, void* r, size_t n, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c,
                           cudaStream_t stream) {
  if (n == 13) return ncclInternalError;
  return note("allreduce %p %p %zu %d %d %d %p", s, r, n, t, op, c->rank, (void*)stream);
}
ncclResult_t ncclAllReduceConfig(const void* s, void* r, size_t n, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c,
                                 cudaStream_t stream, const ncclCollConfig_t* config) {
  return note("config %p %p %zu %d %d %d %p %p", s, r, n, t, op, c->rank, (void*)stream, (const void*)config);
}
ncclResult_t ncclReduce(const void* s, void* r, size_t n, ncclDataType_t t, ncclRedOp_t op, int root, ncclComm_t c,
                        cudaStream_t stream) {
  return note("reduce %p %p %zu %d %d %d %d %p", s, r, n, t, op, root, c->rank, (void*)stream);
}
ncclResult_t ncclAllGather(const void* s, void* r, size_t n, ncclDataType_t t, ncclComm_t c, cudaStream_t stream) {
  return note("allgather %p %p %zu %d %d %p", s, r, n, t, c->rank, (void*)stream);
}
ncclResult_t ncclSend(const void* s, size_t n, ncclDataType_t t, int peer, ncclComm_t c, cudaStream_t stream) {
  return note("send %p %zu %d %d %d %p", s, n, t, peer, c->rank, (void*)stream);
}
ncclResult_t ncclRecv(void* r, size_t n, ncclDataType_t t, int peer, ncclComm_t c, cudaStream_t stream) {
  return note("recv %p %zu %d %d %d %p", r, n, t, peer, c->rank, (void*)stream);
}
ncclResult_t pncclAllReduce(const void* s, void* r, size_t n, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c,
                            cudaStream_t stream) {
  return ncclAllReduce(s, r, n, t, op, c, stream);
}
/* More arguments than registers hold; the recorder only passes this on. */
ncclResult_t ncclPutSignal(const void* s, size_t n, ncclDataType_t t, int peer, ncclWindow_t win, size_t offset,
                           int signal, int ctx, unsigned flags, ncclComm_t c, cudaStream_t stream) {
  return note("put %p %zu %d %d %p %zu %d %d %u %d %p", s, n, t, peer, (void*)win, offset, signal, ctx, flags, c->rank,
              (void*)stream);
}
