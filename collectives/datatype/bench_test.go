package datatype

import (
	"fmt"
	"testing"
)

// Sizes of a buffer: within the second cache and beyond all of them.
var benchSizes = []struct {
	name  string
	bytes int
}{{"64K", 64 << 10}, {"256M", 256 << 20}}

// BenchmarkStream is STREAM's copy. As everywhere here MB/s are of dst: a copy moves that
// twice, a reduction three times.
func BenchmarkStream(b *testing.B) {
	for _, s := range benchSizes {
		b.Run("copy/"+s.name, func(b *testing.B) {
			dst, src := benchBuffer(s.bytes), benchBuffer(s.bytes)
			b.SetBytes(int64(s.bytes))
			for b.Loop() {
				copy(dst, src)
			}
		})
	}
}

// BenchmarkReduce has a line for every instruction set, type, operator and size.
func BenchmarkReduce(b *testing.B) {
	for _, l := range append([]level{{"portable", func(*Kernels) {}}}, levels()...) {
		k := Portable()
		l.accelerate(k)
		for _, s := range benchSizes {
			for ty := range NumTypes {
				for op := range Avg {
					b.Run(fmt.Sprintf("%s/%v/%v/%s", l.name, ty, op, s.name), func(b *testing.B) {
						dst, src := benchBuffer(s.bytes), benchBuffer(s.bytes)
						b.SetBytes(int64(s.bytes))
						b.ReportAllocs()
						for b.Loop() {
							k.Reduce[ty][op](dst, src)
						}
					})
				}
			}
		}
	}
}

// benchBuffer holds ordinary numbers of every type, in memory that is there.
func benchBuffer(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = 0x3c
	}
	return b
}
