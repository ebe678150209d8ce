/* Memory that ranks can share: ncclMemAlloc, and registrations of buffers and windows.
 *
 * If the thread has a context of a device, the core allocates device memory. Else the memory is a region of the host
 * (regions.c), and no core is needed. */
#include "other.h"

/* Allocates device memory if the thread has a context; else *ptr stays NULL. The core is asked only in a program that
 * has loaded CUDA's driver. */
static ncclResult_t allocate_on_device(void** ptr, size_t size) {
  return size > PTRDIFF_MAX || !lp_cuda() ? ncclSuccess : LP_CORE(device_alloc, size, ptr);
}

static ncclResult_t free_on_device(void* ptr, bool* known) {
  return lp_cuda() ? LP_CORE(device_free, ptr, known) : ncclSuccess;
}

LP_API(ncclResult_t, ncclMemAlloc, (void** ptr, size_t size)) {
  ncclResult_t rc;
  if (ptr == NULL) return lp_fail(ncclInvalidArgument, "ncclMemAlloc: ptr is NULL");
  *ptr = NULL;
  if (lp_other_cuda()) LP_FORWARD(ncclMemAlloc, ptr, size); /* such a program expects device memory */
  if (size == 0) return ncclSuccess;
  rc = allocate_on_device(ptr, size);
  if (rc != ncclSuccess || *ptr != NULL) return rc;
  *ptr = lp_region_alloc(size);
  return *ptr != NULL ? ncclSuccess : lp_fail(ncclSystemError, "ncclMemAlloc: out of memory for %zu bytes", size);
}

LP_API(ncclResult_t, ncclMemFree, (void* ptr)) {
  ncclResult_t rc;
  bool on_device = false;
  if (ptr == NULL) return ncclSuccess;
  if (lp_other_device(ptr)) LP_FORWARD(ncclMemFree, ptr);
  rc = free_on_device(ptr, &on_device);
  return rc != ncclSuccess || on_device ? rc : lp_region_free(ptr);
}

/* ---- Registrations ---- */

static ncclResult_t add(const char* function, ncclComm_t comm, void* buff, size_t size, bool window, int flags,
                        const void* out, uint64_t* handle) {
  if (comm == NULL) return lp_fail(ncclInvalidArgument, "%s: comm is NULL", function);
  if (out == NULL) return lp_fail(ncclInvalidArgument, "%s: the handle to write is NULL", function);
  if (buff == NULL || size == 0)
    return lp_fail(ncclInvalidArgument, "%s: buff is %p of %zu bytes", function, buff, size);
  return LP_CORE(reg, lp_handle(comm), buff, size, window, flags, handle);
}

static ncclResult_t find(const char* function, ncclComm_t comm, const void* handle, bool window, bool end,
                         void** buff) {
  if (comm == NULL) return lp_fail(ncclInvalidArgument, "%s: comm is NULL", function);
  return LP_CORE(reg_find, lp_handle(comm), (uint64_t)(uintptr_t)handle, window, end, buff);
}

/* Device memory is registered with the other library, if there is one. */

LP_API(ncclResult_t, ncclCommRegister, (const ncclComm_t comm, void* buff, size_t size, void** handle)) {
  uint64_t h;
  ncclResult_t rc;
  if (lp_other_device(buff)) LP_FORWARD_ON(ncclCommRegister, comm, mine, buff, size, handle);
  rc = add("ncclCommRegister", comm, buff, size, false, 0, handle, &h);
  if (rc == ncclSuccess) *handle = (void*)(uintptr_t)h;
  return rc;
}

LP_API(ncclResult_t, ncclCommDeregister, (const ncclComm_t comm, void* handle)) {
  void* buff;
  if (handle != NULL && !lp_is_registration(handle) && lp_other())
    LP_FORWARD_ON(ncclCommDeregister, comm, mine, handle);
  return find("ncclCommDeregister", comm, handle, false, true, &buff);
}

LP_API(ncclResult_t, ncclCommWindowRegister,
       (ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win, int winFlags)) {
  const int known = NCCL_WIN_COLL_SYMMETRIC | NCCL_WIN_STRICT_ORDERING;
  uint64_t h;
  ncclResult_t rc;
  if (lp_other_device(buff)) LP_FORWARD_ON(ncclCommWindowRegister, comm, mine, buff, size, win, winFlags);
  if ((winFlags & ~known) != 0)
    return lp_fail(ncclInvalidArgument, "ncclCommWindowRegister: winFlags 0x%x: host memory has no 0x%x", winFlags,
                   winFlags & ~known);
  if ((uintptr_t)buff % NCCL_WIN_REQUIRED_ALIGNMENT != 0)
    return lp_fail(ncclInvalidArgument, "ncclCommWindowRegister: buff %p is not aligned to %d bytes", buff,
                   NCCL_WIN_REQUIRED_ALIGNMENT);
  rc = add("ncclCommWindowRegister", comm, buff, size, true, winFlags, win, &h);
  if (rc == ncclSuccess) *win = (ncclWindow_t)(uintptr_t)h;
  return rc;
}

/* NULL was the value of a window before NCCL had windows: deregistering it succeeds, as free(NULL) does. */
LP_API(ncclResult_t, ncclCommWindowDeregister, (ncclComm_t comm, ncclWindow_t win)) {
  void* buff;
  if (win != NULL && !lp_is_registration(win) && lp_other()) LP_FORWARD_ON(ncclCommWindowDeregister, comm, mine, win);
  return win == NULL ? ncclSuccess : find("ncclCommWindowDeregister", comm, win, true, true, &buff);
}

LP_API(ncclResult_t, ncclWinGetUserPtr, (ncclComm_t comm, ncclWindow_t win, void** outUserPtr)) {
  if (outUserPtr == NULL) return lp_fail(ncclInvalidArgument, "ncclWinGetUserPtr: outUserPtr is NULL");
  *outUserPtr = NULL;
  if (win != NULL && !lp_is_registration(win) && lp_other())
    LP_FORWARD_ON(ncclWinGetUserPtr, comm, mine, win, outUserPtr);
  return find("ncclWinGetUserPtr", comm, win, true, false, outUserPtr);
}

LP_API(ncclResult_t, ncclCommMemStats, (ncclComm_t comm, ncclCommMemStat_t stat, uint64_t* value)) {
  if (comm == NULL) return lp_fail(ncclInvalidArgument, "ncclCommMemStats: comm is NULL");
  if (value == NULL) return lp_fail(ncclInvalidArgument, "ncclCommMemStats: value is NULL");
  return LP_CORE(mem_stats, lp_handle(comm), (int32_t)stat, value);
}
