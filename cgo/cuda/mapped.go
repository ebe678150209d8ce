package cuda

// #include "calls.h"
import "C"

import (
	"unsafe"

	"lightpath/shim/device"
)

// ExportPiece implements [device.Peers].
func (Library) ExportPiece(at unsafe.Pointer) (fd int, err error) {
	got := C.int(-1)
	err = do("cuMemExportToShareableHandle", func(c *C.struct_lpc_library) C.CUresult {
		rc := C.lpc_export_piece(c, at, &got)
		if rc == C.LPC_NOT_MAPPED {
			got = -2
			return C.CUDA_SUCCESS
		}
		return rc
	})
	if err == nil && got == -2 {
		return -1, device.ErrNotMapped
	}
	return int(got), err
}

// ImportPieces implements [device.Peers].
func (Library) ImportPieces(pieces []device.Piece) (unsafe.Pointer, error) {
	fds, sizes := make([]C.int, len(pieces)), make([]C.size_t, len(pieces))
	for i, p := range pieces {
		fds[i], sizes[i] = C.int(p.FD), C.size_t(p.Size)
	}
	var at unsafe.Pointer
	err := do("cuMemMap", func(c *C.struct_lpc_library) C.CUresult {
		return C.lpc_import_pieces(c, unsafe.SliceData(fds), unsafe.SliceData(sizes), C.size_t(len(pieces)), &at)
	})
	return at, err
}

// ClosePieces implements [device.Peers].
func (Library) ClosePieces(at unsafe.Pointer, size int64) error {
	return do("cuMemUnmap", func(c *C.struct_lpc_library) C.CUresult { return C.lpc_close_pieces(c, at, C.size_t(size)) })
}
