package datatype

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"
)

// edges returns the codes of special values. For floats: zeros, ones, subnormals, the largest values, infinities, quiet
// and signalling NaN with payloads, all with both signs. For integers: the ends of the range. For 8-bit types: all
// codes.
func edges(t Type) []uint64 {
	var v []uint64
	switch {
	case t.Size() == 1:
		for i := range 256 {
			v = append(v, uint64(i))
		}
		return v
	case t == Float64:
		v = []uint64{0, 1, 1<<52 - 1, 1 << 52, 0x3ff << 52, 0x7ff<<52 - 1, 0x7ff << 52, 0x7ff<<52 | 5, 0x7ff8<<48 | 77}
	case t == Float32:
		v = []uint64{0, 1, 1<<23 - 1, 1 << 23, 0x7f << 23, 0xff<<23 - 1, 0xff << 23, 0xff<<23 | 5, 0x7fc0<<16 | 77}
	case t == Float16:
		v = []uint64{0, 1, 1<<10 - 1, 1 << 10, 15 << 10, 31<<10 - 1, 31 << 10, 31<<10 | 5, 31<<10 | 0x277}
	case t == Bfloat16:
		v = []uint64{0, 1, 1<<7 - 1, 1 << 7, 0x7f << 7, 0xff<<7 - 1, 0xff << 7, 0xff<<7 | 5, 0xff<<7 | 0x57}
	default:
		v = []uint64{0, 1, 2, 3, 0xff, 0xffff, 1 << 31, 1<<31 - 1, 1<<32 - 1, 1 << 32, 1<<63 - 1}
	}
	for _, x := range slices.Clone(v) {
		v = append(v, x^1<<(8*t.Size()-1), ^x)
	}
	return v
}

func put(b []byte, size int, v uint64) {
	var w [8]byte
	binary.NativeEndian.PutUint64(w[:], v)
	if littleEndian() {
		copy(b[:size], w[:])
	} else {
		copy(b[:size], w[8-size:])
	}
}

// operands returns n elements: random bits, numbers close together and edges.
func operands(rng *rand.Rand, t Type, n int) []byte {
	size, special := t.Size(), edges(t)
	b := random(rng, n*size)
	for i := range n {
		switch rng.IntN(3) {
		case 0:
			put(b[i*size:], size, special[rng.IntN(len(special))])
		case 1:
			put(b[i*size:], size, special[4]^uint64(rng.UintN(1<<min(8*size-1, 22))))
		}
	}
	return b
}

func isNaN(t Type, b []byte) bool {
	switch t {
	case Float64:
		return math.IsNaN(math.Float64frombits(binary.NativeEndian.Uint64(b)))
	case Float32:
		return math.IsNaN(float64(math.Float32frombits(binary.NativeEndian.Uint32(b))))
	}
	for _, f := range formats {
		if f.t == t {
			v := f.value(element(b, t.Size()))
			return v != v
		}
	}
	return false
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

// differs returns the first element in which two results differ, or -1. A sum or product of two NaN may be either of
// them; in portable code the compiler decides.
func differs(t Type, op Op, a, b, x, y []byte) int {
	if bytes.Equal(a, b) {
		return -1
	}
	size := t.Size()
	for i := 0; i < len(a); i += size {
		if bytes.Equal(a[i:i+size], b[i:i+size]) {
			continue
		}
		free := op != Max && op != Min && isNaN(t, x[i:]) && isNaN(t, y[i:])
		if !free || !isNaN(t, a[i:]) || !isNaN(t, b[i:]) {
			return i / size
		}
	}
	return -1
}

// guarded copies b to an offset from a multiple of 64, between guard bytes. intact reports whether these are unchanged.
func guarded(b []byte, offset int) (in []byte, intact func() bool) {
	const guard = 64
	m := bytes.Repeat([]byte{0xa5}, offset+len(b)+3*guard)
	for uintptr(unsafe.Pointer(unsafe.SliceData(m)))%guard != 0 {
		m = m[1:]
	}
	start := guard + offset
	in = m[start : start+len(b) : start+len(b)]
	copy(in, b)
	return in, func() bool {
		for i, v := range m {
			if (i < start || i >= start+len(b)) && v != 0xa5 {
				return false
			}
		}
		return true
	}
}

// lengths returns lengths around those of vectors and steps, and larger ones.
func lengths() []int {
	var n []int
	every := 1
	if testing.Short() {
		every = 3
	}
	for i := 0; i <= 70; i += every {
		n = append(n, i)
	}
	return append(n, 127, 128, 129, 255, 257, 1000, 4099)
}

// TestVectorsMatchPortable compares the vector kernels with the portable ones for various bits, lengths and alignments,
// also in place. No other byte may change.
func TestVectorsMatchPortable(t *testing.T) {
	portable := Portable()
	for _, l := range levels() {
		fast := Portable()
		l.accelerate(fast)
		for ty := range NumTypes {
			t.Run(fmt.Sprintf("%s/%v", l.name, ty), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(7, uint64(ty)))
				for op := range NumOps {
					for _, n := range lengths() {
						dst, src := operands(rng, ty, n), operands(rng, ty, n)
						random := [2]int{rng.IntN(64), rng.IntN(64)}
						for _, at := range [][2]int{{0, 0}, {ty.Size(), 0}, {0, ty.Size()}, {1, 3}, random} {
							checkReduce(t, portable, fast, ty, op, dst, src, at)
						}
					}
				}
				for _, n := range lengths() {
					for _, factor := range []float64{0.5, 1. / 3, -7, 1e-39, math.Inf(1), 3e38} {
						at := [2]int{rng.IntN(64), rng.IntN(64)}
						checkScale(t, portable, fast, ty, operands(rng, ty, n), factor, at)
					}
				}
			})
		}
	}
}

func checkReduce(t *testing.T, portable, fast *Kernels, ty Type, op Op, dst, src []byte, at [2]int) {
	t.Helper()
	want := bytes.Clone(dst)
	portable.Reduce[ty][op](want, src)
	d, dIntact := guarded(dst, at[0])
	s, sIntact := guarded(src, at[1])
	fast.Reduce[ty][op](d, s)
	if i := differs(ty, op, d, want, dst, src); i >= 0 {
		k := i * ty.Size()
		t.Fatalf("%v %v of %d bytes at %v, element %d: %x, %x is %x, portable %x", ty, op, len(dst), at, i,
			dst[k:k+ty.Size()], src[k:k+ty.Size()], d[k:k+ty.Size()], want[k:k+ty.Size()])
	}
	if !dIntact() || !sIntact() || !bytes.Equal(s, src) {
		t.Fatalf("%v %v of %d bytes at %v wrote elsewhere", ty, op, len(dst), at)
	}
	want = bytes.Clone(src)
	portable.Reduce[ty][op](want, want)
	fast.Reduce[ty][op](s, s)
	if i := differs(ty, op, s, want, src, src); i >= 0 {
		t.Fatalf("%v %v of %d bytes at %v in place: element %d differs", ty, op, len(src), at, i)
	}
}

func checkScale(t *testing.T, portable, fast *Kernels, ty Type, src []byte, factor float64, at [2]int) {
	t.Helper()
	want := make([]byte, len(src))
	portable.Scale[ty](want, src, factor)
	d, dIntact := guarded(want, at[0])
	clear(d)
	s, sIntact := guarded(src, at[1])
	fast.Scale[ty](d, s, factor)
	if i := differs(ty, Prod, d, want, src, src); i >= 0 {
		k := i * ty.Size()
		t.Fatalf("%v x %v of %d bytes at %v, element %d: %x is %x, portable %x", ty, factor, len(src), at, i,
			src[k:k+ty.Size()], d[k:k+ty.Size()], want[k:k+ty.Size()])
	}
	if !dIntact() || !sIntact() || !bytes.Equal(s, src) {
		t.Fatalf("%v x %v of %d bytes at %v wrote elsewhere", ty, factor, len(src), at)
	}
	if fast.Scale[ty](s, s, factor); differs(ty, Prod, s, want, src, src) >= 0 {
		t.Fatalf("%v x %v of %d bytes at %v differs in place", ty, factor, len(src), at)
	}
}

// TestVectorsOfEveryPair compares the kernels for every pair of edges, which for 8-bit types are all values.
func TestVectorsOfEveryPair(t *testing.T) {
	portable := Portable()
	for _, l := range levels() {
		fast := Portable()
		l.accelerate(fast)
		for ty := range NumTypes {
			special, size := edges(ty), ty.Size()
			n := len(special) * len(special)
			dst, src := make([]byte, n*size), make([]byte, n*size)
			for i := range n {
				put(dst[i*size:], size, special[i/len(special)])
				put(src[i*size:], size, special[i%len(special)])
			}
			for op := range NumOps {
				checkReduce(t, portable, fast, ty, op, dst, src, [2]int{})
			}
		}
	}
}

// TestNaNPayloads checks that a sum or product of a NaN and a number is that NaN, quiet. Max and Min of two NaN keep
// that of src.
func TestNaNPayloads(t *testing.T) {
	for _, c := range []struct {
		t               Type
		nan, quiet, one uint64
	}{
		{Float64, 0xfff<<52 | 5, 1 << 51, 0x3ff << 52},
		{Float32, 0x1ff<<23 | 5, 1 << 22, 0x7f << 23},
		{Float16, 0x3f<<10 | 5, 1 << 9, 15 << 10},
		{Bfloat16, 0x1ff<<7 | 5, 1 << 6, 0x7f << 7},
	} {
		const n = 100
		size := c.t.Size()
		fill := func(v uint64) []byte {
			b := make([]byte, n*size)
			for i := range n {
				put(b[i*size:], size, v)
			}
			return b
		}
		for _, op := range []Op{Sum, Prod, Avg} {
			for _, nanFirst := range []bool{true, false} {
				dst, src := fill(c.nan), fill(c.one)
				if !nanFirst {
					dst, src = src, dst
				}
				if Reduce(op, c.t)(dst, src); !bytes.Equal(dst, fill(c.nan|c.quiet)) {
					t.Errorf("%v %v, NaN first %v: %x", c.t, op, nanFirst, dst[:size])
				}
			}
		}
		for _, op := range []Op{Max, Min} {
			dst, src := fill(c.nan|c.quiet), fill(c.nan|c.quiet|2)
			if Reduce(op, c.t)(dst, src); !bytes.Equal(dst, src) {
				t.Errorf("%v %v of two NaN: %x", c.t, op, dst[:size])
			}
		}
	}
}

// FuzzVectors compares the vector kernels with the portable ones.
func FuzzVectors(f *testing.F) {
	f.Add(uint8(Float32), uint8(Max), uint8(1), uint8(2), bytes.Repeat([]byte{0, 0, 0xc0, 0x7f, 0, 0, 0, 0x80}, 20), 0.5)
	f.Add(uint8(Float8E4M3), uint8(Prod), uint8(0), uint8(0), bytes.Repeat([]byte{0x7f, 0xff, 1, 0x81}, 40), 1e-3)
	f.Add(uint8(Int64), uint8(Min), uint8(7), uint8(0), bytes.Repeat([]byte{0, 0, 0, 0, 0, 0, 0, 0x80}, 20), 3.0)
	portable, l := Portable(), levels()
	f.Fuzz(func(t *testing.T, ty, op, at, from uint8, data []byte, factor float64) {
		ty, op = ty%uint8(NumTypes), op%uint8(NumOps)
		half := len(data) / 2
		half -= half % Type(ty).Size()
		place := [2]int{int(at % 64), int(from % 64)}
		for _, l := range l {
			fast := Portable()
			l.accelerate(fast)
			checkReduce(t, portable, fast, Type(ty), Op(op), data[:half], data[half:2*half], place)
			if factor == factor {
				checkScale(t, portable, fast, Type(ty), data[:half], factor, place)
			}
		}
	})
}
