package memory

import "unsafe"

// Bytes views n bytes at p; nil for none.
func Bytes(p unsafe.Pointer, n int64) []byte {
	if n == 0 || p == nil {
		return nil
	}
	return unsafe.Slice((*byte)(p), n)
}
