package shim

// Calls that move more than staging memory should hold are cut into pieces. A piece is some elements of each block of the call, and is
// itself a call, which the ranks number and check like any other. Where a call is cut follows from the call and from what the ranks
// of the communicator have told each other when they met: whether some of them have a device, and LIGHTPATH_STAGING. So ranks
// whose buffers are host memory cut alike. What is carried by circuits is planned as a whole, and never cut.

// mostPieces bounds the pieces of a call, and so what it takes to put it on a stream: larger calls have larger pieces.
const mostPieces = 128

// pieceAlign is what pieces are a multiple of, in bytes of each block, so that their rows begin as aligned as the blocks.
const pieceAlign = 256

// settleCut decides how long calls of the communicator may be in one piece.
func settleCut(c *Comm) {
	factsOf(c).cut = 0
	for i := range c.Table {
		if c.Table[i].Device && c.Table[i].Fabric == "" {
			factsOf(c).cut = c.Cfg.Staging
		}
	}
}

// pieceCount returns how many elements of each block a piece of the call has: all of them where it is not cut.
// Hot path: no allocation.
func (c *Call) pieceCount() uint64 {
	if factsOf(c.Comm).cut == 0 || c.Kind >= NumCallKinds || !c.Type.Valid() || c.whole != 0 {
		return c.Count
	}
	k, width := &kinds[c.Kind], int64(c.Type.Size())
	if k.send < 0 || k.recv < 0 {
		width *= int64(c.Comm.Ranks)
	}
	size := int64(c.Count) * width // of the larger buffer
	if size <= factsOf(c.Comm).cut {
		return c.Count
	}
	n := uint64(max(factsOf(c.Comm).cut, (size+mostPieces-1)/mostPieces) / width)
	align := uint64(pieceAlign / c.Type.Size())
	return min(max(n/align, 1)*align, c.Count)
}

// isCut reports whether the call is made in pieces.
func (c *Call) isCut() bool { return c.pieceCount() < c.Count }
