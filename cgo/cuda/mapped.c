/* Memory that programs map by themselves: physical pieces at reserved addresses, as PyTorch's expandable segments. */
#include "library.h"

static bool lacks_mapped(void) { return lpc.lacks[LPC_MAPPED] != NULL; }

CUresult lpc_retain_piece(void *at, uint64_t *piece) {
  CUmemGenericAllocationHandle h = 0;
  if (lacks_mapped() || lpc.MemRetainAllocationHandle(&h, at) != CUDA_SUCCESS) return LPC_NOT_MAPPED;
  *piece = h;
  return CUDA_SUCCESS;
}

CUresult lpc_release_piece(uint64_t piece) { return lpc.MemRelease(piece); }

int lpc_is_piece(void *at, uint64_t piece) {
  CUmemGenericAllocationHandle h = 0;
  if (lpc.MemRetainAllocationHandle(&h, at) != CUDA_SUCCESS) return 0;
  (void)lpc.MemRelease(h);
  return h == piece;
}

CUresult lpc_export_piece(uint64_t piece, int *fd) {
  return lpc.MemExportToShareableHandle(fd, piece, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

CUresult lpc_reach_mapped(void *at) {
  CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemGenericAllocationHandle piece;
  unsigned long long access = 0;
  CUresult rc;
  if (lacks_mapped() || lpc.MemRetainAllocationHandle(&piece, at) != CUDA_SUCCESS) return LPC_NOT_MAPPED;
  (void)lpc.MemRelease(piece);
  rc = lpc.CtxGetDevice(&here.id);
  if (rc == CUDA_SUCCESS) rc = lpc.MemGetAccess(&access, &here, (uintptr_t)at);
  if (rc == CUDA_SUCCESS && access != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) rc = CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  return rc;
}

/* Unmaps the pieces in the first bytes of reserved addresses, and gives the addresses back. */
static CUresult drop(CUdeviceptr at, size_t mapped, size_t size) {
  CUresult rc = mapped > 0 ? lpc.MemUnmap(at, mapped) : CUDA_SUCCESS;
  return rc != CUDA_SUCCESS ? rc : lpc.MemAddressFree(at, size);
}

CUresult lpc_import_pieces(const int *fds, const size_t *sizes, size_t n, void **at) {
  CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  size_t i, size = 0, mapped = 0;
  CUmemGenericAllocationHandle piece;
  CUdeviceptr base = 0;
  CUresult rc;
  if (lacks_mapped()) return CUDA_ERROR_NOT_FOUND;
  for (i = 0; i < n; i++) size += sizes[i];
  rc = lpc.CtxGetDevice(&access.location.id);
  if (rc == CUDA_SUCCESS) rc = lpc.MemAddressReserve(&base, size, 0, 0, 0);
  if (rc != CUDA_SUCCESS) return rc;
  for (i = 0; rc == CUDA_SUCCESS && i < n; i++) {
    rc = lpc.MemImportFromShareableHandle(&piece, (void *)(intptr_t)fds[i], CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (rc != CUDA_SUCCESS) break;
    rc = lpc.MemMap(base + mapped, sizes[i], 0, piece, 0);
    (void)lpc.MemRelease(piece); /* the mapping keeps it */
    if (rc == CUDA_SUCCESS) mapped += sizes[i];
  }
  if (rc == CUDA_SUCCESS) rc = lpc.MemSetAccess(base, size, &access, 1);
  if (rc != CUDA_SUCCESS) {
    (void)drop(base, mapped, size);
    return rc;
  }
  *at = (void *)(uintptr_t)base;
  return CUDA_SUCCESS;
}

CUresult lpc_close_pieces(void *at, size_t size) { return drop((uintptr_t)at, size, size); }
