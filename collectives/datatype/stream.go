package datatype

import "unsafe"

// streamer copies past the caches with the instructions of one set.
type streamer struct {
	name string
	copy func(dst, src *byte, n int)
}

// streamed is what Stream copies with, nil where a copy is all there is.
var streamed = func() func(dst, src *byte, n int) {
	all := streamers()
	if len(all) == 0 {
		return nil
	}
	return all[len(all)-1].copy
}()

// Stream copies src to dst, which do not overlap and have the same length, without leaving dst in
// the caches: for results that exceed them, whose lines would be read from memory first only to
// be overwritten. The stores are visible to others like any, once Stream has returned.
func Stream(dst, src []byte) {
	src = src[:len(dst)]
	head := int(-uintptr(unsafe.Pointer(unsafe.SliceData(dst))) & (streamStep - 1))
	body := (len(dst) - head) &^ (streamStep - 1)
	if streamed == nil || body <= 0 {
		copy(dst, src)
		return
	}
	copy(dst[:head], src)
	streamed(&dst[head], &src[head], body)
	copy(dst[head+body:], src[head+body:])
}

// streamStep is the bytes that streamed wants a positive multiple of, and dst aligned to.
const streamStep = 64
