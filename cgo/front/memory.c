/* Memory and registrations.
 *
 * Any host memory can be communicated, so allocation is plain and a registration is a hint that
 * nothing needs yet: it is checked and accepted. A window is NULL, NCCL's answer where windows bring
 * nothing. */
#include "front.h"

#include <stdlib.h>

/* The alignment that NCCL demands of windows, so that any allocation can become one. */
LP_API(ncclResult_t, ncclMemAlloc, (void** ptr, size_t size)) {
  if (ptr == NULL) return lp_fail(ncclInvalidArgument, "ncclMemAlloc: ptr is NULL");
  *ptr = NULL;
  if (size == 0) return ncclSuccess;
  if (posix_memalign(ptr, NCCL_WIN_REQUIRED_ALIGNMENT, size) != 0) {
    *ptr = NULL;
    return lp_fail(ncclSystemError, "ncclMemAlloc: out of memory for %zu bytes", size);
  }
  return ncclSuccess;
}

LP_API(ncclResult_t, ncclMemFree, (void* ptr)) {
  free(ptr);
  return ncclSuccess;
}

/* Whether comm is a communicator: the question is the same as how many ranks it has. */
static ncclResult_t check_comm(const char* function, ncclComm_t comm) {
  char err[LP_ERR_BYTES] = "";
  ncclResult_t rc;
  int32_t ranks;
  const struct lp_core* core;
  if (comm == NULL) return lp_fail(ncclInvalidArgument, "%s: comm is NULL", function);
  core = lp_core(&rc);
  return core == NULL ? rc : lp_result(core->count(lp_handle(comm), &ranks, err, sizeof err), err);
}

static ncclResult_t check_register(const char* function, ncclComm_t comm, const void* buff, size_t size,
                                   const void* out) {
  if (out == NULL) return lp_fail(ncclInvalidArgument, "%s: the handle to write is NULL", function);
  if (buff == NULL || size == 0)
    return lp_fail(ncclInvalidArgument, "%s: buff is %p of %zu bytes", function, buff, size);
  return check_comm(function, comm);
}

LP_API(ncclResult_t, ncclCommRegister, (const ncclComm_t comm, void* buff, size_t size, void** handle)) {
  ncclResult_t rc = check_register("ncclCommRegister", comm, buff, size, handle);
  if (rc == ncclSuccess) *handle = buff;
  return rc;
}

LP_API(ncclResult_t, ncclCommDeregister, (const ncclComm_t comm, void* handle)) {
  (void)handle;
  return check_comm("ncclCommDeregister", comm);
}

LP_API(ncclResult_t, ncclCommWindowRegister,
       (ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win, int winFlags)) {
  ncclResult_t rc = check_register("ncclCommWindowRegister", comm, buff, size, win);
  (void)winFlags;
  if (rc == ncclSuccess) *win = NULL;
  return rc;
}

LP_API(ncclResult_t, ncclCommWindowDeregister, (ncclComm_t comm, ncclWindow_t win)) {
  if (win != NULL) return lp_fail(ncclInvalidArgument, "ncclCommWindowDeregister: win is not of this library");
  return check_comm("ncclCommWindowDeregister", comm);
}

LP_API(ncclResult_t, ncclWinGetUserPtr, (ncclComm_t comm, ncclWindow_t win, void** outUserPtr)) {
  if (outUserPtr == NULL) return lp_fail(ncclInvalidArgument, "ncclWinGetUserPtr: outUserPtr is NULL");
  if (win != NULL) return lp_fail(ncclInvalidArgument, "ncclWinGetUserPtr: win is not of this library");
  *outUserPtr = NULL;
  return check_comm("ncclWinGetUserPtr", comm);
}
