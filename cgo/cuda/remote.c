/* Device memory that other devices of the host reach. */
#include "library.h"

CUresult lpc_remote(int *exports, int *ordering, int *flushes) {
  CUdevice device;
  int options = 0;
  CUresult rc = lpc.CtxGetDevice(&device);
  *exports = *ordering = *flushes = 0;
  if (rc != CUDA_SUCCESS) return rc;
  if (lpc.MemGetHandleForAddressRange == NULL ||
      lpc.DeviceGetAttribute(exports, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, device) != CUDA_SUCCESS)
    *exports = 0; /* a driver before CUDA 11.7 */
  if (lpc.DeviceGetAttribute(ordering, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING, device) != CUDA_SUCCESS)
    *ordering = CU_GPU_DIRECT_RDMA_WRITES_ORDERING_NONE;
  if (lpc.FlushGPUDirectRDMAWrites != NULL &&
      lpc.DeviceGetAttribute(&options, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS, device) ==
          CUDA_SUCCESS)
    *flushes = (options & CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST) != 0;
  return CUDA_SUCCESS;
}

CUresult lpc_flush_remote(void) {
  return lpc.FlushGPUDirectRDMAWrites(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
                                     CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER);
}

CUresult lpc_export_buf(uintptr_t at, size_t size, int *fd) {
  if (lpc.MemGetHandleForAddressRange == NULL) return CUDA_ERROR_NOT_FOUND;
  return lpc.MemGetHandleForAddressRange(fd, at, size, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
}
