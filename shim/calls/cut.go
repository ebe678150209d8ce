package calls

// Calls that need more staging memory than LIGHTPATH_STAGING are cut into pieces. A piece is some elements of each
// block. It is itself a call, which ranks number and compare like any other. The cut follows from the call and from
// values that ranks exchanged when they met: LIGHTPATH_STAGING, and whether some rank has a device. So ranks whose
// buffers are host memory cut in the same way. Calls on circuits are planned as a whole and never cut.

// MostPieces bounds the pieces of a call, and so the work of putting it on a stream. Larger calls have larger pieces.
const MostPieces = 128

// PieceAlign divides the size of pieces, in bytes of each block, so that their rows are aligned like the blocks.
const PieceAlign = 256

// PieceCount returns how many elements of each block a piece of the call has: all of them if the call is not cut.
// Hot path: no allocation.
func (c *Call) PieceCount() uint64 {
	if FactsOf(c.Comm).Cut == 0 || c.Kind >= NumKinds || !c.Type.Valid() || c.Whole != 0 {
		return c.Count
	}
	k, width := &Kinds[c.Kind], int64(c.Type.Size())
	if k.Send < 0 || k.Recv < 0 {
		width *= int64(c.Comm.Ranks)
	}
	size := int64(c.Count) * width // of the larger buffer
	if size <= FactsOf(c.Comm).Cut {
		return c.Count
	}
	n := uint64(max(FactsOf(c.Comm).Cut, (size+MostPieces-1)/MostPieces) / width)
	align := uint64(PieceAlign / c.Type.Size())
	return min(max(n/align, 1)*align, c.Count)
}

// IsCut reports whether the call is made in pieces.
func (c *Call) IsCut() bool { return c.PieceCount() < c.Count }
