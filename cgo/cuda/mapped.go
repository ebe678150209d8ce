package cuda

// #include "calls.h"
// #cgo noescape lpc_is_piece
// #cgo nocallback lpc_is_piece
import "C"

import (
	"unsafe"

	"lightpath/shim/device"
)

// RetainPiece implements [device.Peers].
func (Library) RetainPiece(at unsafe.Pointer) (uint64, error) {
	var piece C.uint64_t
	mapped := true
	err := do("cuMemRetainAllocationHandle", func() C.CUresult {
		rc := C.lpc_retain_piece(at, &piece)
		if rc == C.LPC_NOT_MAPPED {
			mapped, rc = false, C.CUDA_SUCCESS
		}
		return rc
	})
	if err == nil && !mapped {
		err = device.ErrNotMapped
	}
	return uint64(piece), err
}

// ReleasePiece implements [device.Peers].
func (Library) ReleasePiece(piece uint64) error {
	return do("cuMemRelease", func() C.CUresult { return C.lpc_release_piece(C.uint64_t(piece)) })
}

// IsPiece implements [device.Peers].
func (Library) IsPiece(at unsafe.Pointer, piece uint64) bool {
	return library() == nil && C.lpc_is_piece(at, C.uint64_t(piece)) != 0
}

// ExportPiece implements [device.Peers].
func (Library) ExportPiece(piece uint64) (fd int, err error) {
	got := C.int(-1)
	err = do("cuMemExportToShareableHandle", func() C.CUresult { return C.lpc_export_piece(C.uint64_t(piece), &got) })
	return int(got), err
}

// ImportPieces implements [device.Peers].
func (Library) ImportPieces(pieces []device.Piece) (unsafe.Pointer, error) {
	fds, sizes := make([]C.int, len(pieces)), make([]C.size_t, len(pieces))
	for i, p := range pieces {
		fds[i], sizes[i] = C.int(p.FD), C.size_t(p.Size)
	}
	var at unsafe.Pointer
	err := do("cuMemMap", func() C.CUresult {
		return C.lpc_import_pieces(unsafe.SliceData(fds), unsafe.SliceData(sizes), C.size_t(len(pieces)), &at)
	})
	return at, err
}

// ClosePieces implements [device.Peers].
func (Library) ClosePieces(at unsafe.Pointer, size int64) error {
	return do("cuMemUnmap", func() C.CUresult { return C.lpc_close_pieces(at, C.size_t(size)) })
}
