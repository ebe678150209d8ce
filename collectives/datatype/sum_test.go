package datatype

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// The fastest kernels give what the portable ones give, for any bits, length and alignment.
func TestFastestAsPortable(t *testing.T) {
	slow, fast := Portable(), fastest()
	rng := rand.New(rand.NewPCG(7, 7))
	single := format{t: Float32, name: "f32", exp: 8, man: 23, bias: 127}
	for _, f := range append([]format{single}, formats...) {
		size := f.t.Size()
		for _, op := range []Op{Sum, Avg, Max} {
			for n := range 200 {
				elems, at, from := n%70, rng.IntN(9), rng.IntN(9)
				src, a := make([]byte, from+elems*size), make([]byte, at+elems*size+8)
				for i := range src {
					src[i] = byte(rng.Uint32())
				}
				for i := range a {
					a[i] = byte(rng.Uint32())
				}
				b := bytes.Clone(a)
				slow.Reduce[f.t][op](a[at:at+elems*size], src[from:])
				fast.Reduce[f.t][op](b[at:at+elems*size], src[from:])
				for i := range elems {
					x, y := element(a[at+i*size:], size), element(b[at+i*size:], size)
					if p, q := f.value(x), f.value(y); x != y && (p == p || q == q) {
						t.Fatalf("%s %v, element %d of %d: %#x, portable %#x", f.name, op, i, elems, y, x)
					}
				}
				if !bytes.Equal(a[:at], b[:at]) || !bytes.Equal(a[at+elems*size:], b[at+elems*size:]) {
					t.Fatalf("%s %v: wrote outside %d elements", f.name, op, elems)
				}
			}
		}
	}
}

func element(b []byte, size int) uint32 {
	switch size {
	case 1:
		return uint32(b[0])
	case 2:
		return uint32(binary.NativeEndian.Uint16(b))
	}
	return binary.NativeEndian.Uint32(b)
}
