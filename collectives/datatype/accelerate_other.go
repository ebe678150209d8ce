//go:build !amd64

package datatype

// levels: no vector instructions are used here.
func levels() []level { return nil }

func streamer() (func(dst, src *byte, n int), uintptr) { return nil, 0 }
