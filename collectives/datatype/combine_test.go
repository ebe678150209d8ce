package datatype

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// TestCombine compares Combine with Reduce for various lengths and alignments, with a separate result and in place.
func TestCombine(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for typ := range NumTypes {
		for op := range NumOps {
			for _, n := range []int{0, 1, 15, 16, 64, 65, 1027} {
				a, b := operands(rng, typ, n), operands(rng, typ, n)
				want := bytes.Clone(a)
				Reduce(op, typ)(want, b)
				skew := rng.IntN(9)
				dst := bytes.Repeat([]byte{0xa5}, skew+n*typ.Size()+8)
				Combine(op, typ)(dst[skew:skew+len(a)], a, b)
				if !bytes.Equal(dst[skew:][:len(a)], want) {
					t.Fatalf("%v %v of %d differs from Reduce", op, typ, n)
				}
				for _, v := range append(dst[:skew:skew], dst[skew+len(a):]...) {
					if v != 0xa5 {
						t.Fatalf("%v %v of %d wrote outside its buffer", op, typ, n)
					}
				}
				Combine(op, typ)(a, a, b)
				if !bytes.Equal(a, want) {
					t.Fatalf("%v %v of %d in place differs from Reduce", op, typ, n)
				}
			}
		}
	}
	if CombineStream(NumOps, Float32) != nil || CombineStream(Sum, NumTypes) != nil {
		t.Error("CombineStream returned a kernel for an invalid operator or type")
	}
	if Combine(NumOps, Float32) != nil || Combine(Sum, NumTypes) != nil {
		t.Error("Combine returned a kernel for an invalid operator or type")
	}
}

// TestCombineStream compares CombineStream with Reduce for random lengths and alignments, with a separate result and in
// place.
func TestCombineStream(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	for typ := range NumTypes {
		stream := CombineStream(Sum, typ)
		if stream == nil {
			continue
		}
		for range 300 {
			n, at := rng.IntN(90), rng.IntN(150)
			a, b := operands(rng, typ, n), operands(rng, typ, n)
			want := bytes.Clone(a)
			Reduce(Sum, typ)(want, b)
			dst := random(rng, at+len(a)+64)
			around := bytes.Clone(dst)
			stream(dst[at:][:len(a)], a, b)
			if copy(around[at:], want); !bytes.Equal(dst, around) {
				t.Fatalf("sum %v of %d at %d differs from Reduce", typ, n, at)
			}
			first := dst[at:][:len(a)]
			copy(first, a)
			if stream(first, first, b); !bytes.Equal(first, want) {
				t.Fatalf("sum %v of %d at %d in place differs from Reduce", typ, n, at)
			}
		}
	}
}

// TestStream copies random lengths at random alignments with every instruction set. No other byte may change.
func TestStream(t *testing.T) {
	defer func(was func(dst, src *byte, n int)) { fastestCopy = was }(fastestCopy)
	rng := rand.New(rand.NewPCG(8, 8))
	for _, s := range append([]streamer{{name: "none"}}, streamers()...) {
		fastestCopy = s.copy
		for i := range 1000 {
			n, at, from := rng.IntN(700), rng.IntN(130), rng.IntN(130)
			if i%20 == 0 {
				n = rng.IntN(100 << 10)
			}
			src := random(rng, from+n)[from:]
			dst := random(rng, at+n+64)
			want := append(append(bytes.Clone(dst[:at]), src...), dst[at+n:]...)
			Stream(dst[at:at+n], src)
			if !bytes.Equal(dst, want) {
				t.Fatalf("%s: %d bytes from %d to %d", s.name, n, from, at)
			}
		}
	}
}
