package datatype

import (
	"fmt"
	"testing"
)

// benchSizes are the sizes of a buffer: in the second-level cache, and larger than all caches.
var benchSizes = []struct {
	name  string
	bytes int
}{{"64K", 64 << 10}, {"256M", 256 << 20}}

// BenchmarkStream measures the copy of STREAM. MB/s count the bytes of dst; a copy moves twice as many bytes and a
// reduction three times as many.
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

// BenchmarkReduce measures every instruction set, type, operator and size.
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

// benchBuffer returns a buffer whose pages exist and whose bytes are ordinary numbers in every type.
func benchBuffer(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = 0x3c
	}
	return b
}
