package datatype

import "unsafe"

// streamer copies with the streaming stores of one instruction set.
type streamer struct {
	name string
	copy func(dst, src *byte, n int)
}

// fastestCopy is the best streamer of this CPU; nil if it has none.
var fastestCopy = func() func(dst, src *byte, n int) {
	all := streamers()
	if len(all) == 0 {
		return nil
	}
	return all[len(all)-1].copy
}()

// Stream copies src to dst with streaming stores, which bypass the caches. For results larger than the caches this
// saves the read of each destination line before its write. dst and src have the same length and do not overlap. After
// Stream returns, the stores are ordered before later stores, as ordinary stores are.
func Stream(dst, src []byte) {
	src = src[:len(dst)]
	head := int(-uintptr(unsafe.Pointer(unsafe.SliceData(dst))) & (streamStep - 1))
	body := (len(dst) - head) &^ (streamStep - 1)
	if fastestCopy == nil || body <= 0 {
		copy(dst, src)
		return
	}
	copy(dst[:head], src)
	fastestCopy(&dst[head], &src[head], body)
	copy(dst[head+body:], src[head+body:])
}

// streamStep is the alignment of dst for fastestCopy in bytes; the length is a positive multiple of it.
const streamStep = 64
