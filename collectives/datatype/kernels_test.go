package datatype

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"testing"
)

func TestNames(t *testing.T) {
	for ty := range NumTypes {
		if got, err := ParseType(ty.String()); got != ty || err != nil {
			t.Errorf("type %v: %v, %v", ty, got, err)
		}
	}
	for op := range NumOps {
		if got, err := ParseOp(op.String()); got != op || err != nil {
			t.Errorf("op %v: %v, %v", op, got, err)
		}
	}
	if _, err := ParseType("float3"); !errors.Is(err, ErrType) {
		t.Error(err)
	}
	if _, err := ParseOp(""); !errors.Is(err, ErrOp) {
		t.Error(err)
	}
	if NumTypes.Size() != 0 || NumTypes.Valid() || NumOps.Valid() || NumTypes.String() == "" || NumOps.String() == "" {
		t.Error("NumTypes or NumOps is valid, or has no name")
	}
	if Reduce(NumOps, Int8) != nil || Reduce(Sum, NumTypes) != nil || Scale(NumTypes) != nil ||
		DivInt(Float32) != nil || DivInt(NumTypes) != nil {
		t.Error("a kernel for an invalid operator or type")
	}
}

// slowFloat computes an operator in float64, as the comment of ReduceFunc defines it.
func slowFloat(op Op, a, b float64) float64 {
	switch op {
	case Max, Min:
		if math.IsNaN(a) {
			return b
		}
		if math.IsNaN(b) {
			return a
		}
		if op == Max {
			return math.Max(a, b)
		}
		return math.Min(a, b)
	case Prod:
		return a * b
	}
	return a + b
}

func sameFloat(a, b float64) bool {
	return a != a && b != b || a == b && math.Signbit(a) == math.Signbit(b)
}

// TestNarrowReductions reduces every pair of 8-bit values, and every 16-bit value with a sample of partners.
//
// The reference computes in float64, whose sums and products of halves and 8-bit floats are exact. A sum of bfloat16 is
// exact enough for the tie rule if the exponents differ by less than 40; the test skips other sums.
func TestNarrowReductions(t *testing.T) {
	for _, f := range formats {
		mags := f.magnitudes()
		size := f.t.Size()
		n := int(2 * f.signBit())
		rng := rand.New(rand.NewPCG(3, uint64(f.t)))
		partners := 256
		switch {
		case testing.Short():
			partners = 256 / 16 / size / size
		case size == 2:
			partners = 8
			if os.Getenv("LIGHTPATH_TEST_LONG") != "" {
				partners = 100
			}
		}
		want := func(x float64) uint32 {
			if math.IsInf(x, 0) && !f.saturate {
				return f.encode(float32(x))
			}
			return f.nearest(mags, x)
		}
		for op := range NumOps {
			kernel := Reduce(op, f.t)
			for p := range partners {
				b := uint32(p)
				if size == 2 {
					b = uint32(rng.UintN(uint(n)))
				}
				dst, src := make([]byte, n*size), make([]byte, n*size)
				for i := range n {
					if size == 1 {
						dst[i], src[i] = byte(i), byte(b)
					} else {
						binary.NativeEndian.PutUint16(dst[2*i:], uint16(i))
						binary.NativeEndian.PutUint16(src[2*i:], uint16(b))
					}
				}
				kernel(dst, src)
				for i := range n {
					got := uint32(dst[i*size])
					if size == 2 {
						got = uint32(binary.NativeEndian.Uint16(dst[2*i:]))
					}
					x, y := f.value(uint32(i)), f.value(b)
					if f.t == Bfloat16 && (op == Sum || op == Avg) && math.Abs(math.Log2(math.Abs(x/y))) > 40 {
						continue
					}
					r := slowFloat(op, x, y)
					if r != r {
						if v := f.value(got); v == v {
							t.Fatalf("%s: %v %v %v is %v, want NaN", f.name, x, op, y, v)
						}
						continue
					}
					if w := want(r); got != w {
						t.Fatalf("%s: %v %v %v is %#x (%v), want %#x (%v)",
							f.name, x, op, y, got, f.value(got), w, f.value(w))
					}
				}
			}
		}
	}
}

// slowInt combines two integers as big integers and wraps the result.
func slowInt(t Type, op Op, a, b []byte) []byte {
	x, y := toBig(t, a), toBig(t, b)
	switch op {
	case Sum, Avg:
		x.Add(x, y)
	case Prod:
		x.Mul(x, y)
	case Max:
		if x.Cmp(y) < 0 {
			x = y
		}
	case Min:
		if x.Cmp(y) > 0 {
			x = y
		}
	}
	return fromBig(t, x)
}

func toBig(t Type, b []byte) *big.Int {
	v := new(big.Int)
	for i := len(b) - 1; i >= 0; i-- {
		v.Or(v.Lsh(v, 8), big.NewInt(int64(b[i])))
	}
	if signed := t == Int8 || t == Int32 || t == Int64; signed && b[len(b)-1]&0x80 != 0 {
		v.Sub(v, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	return v
}

func fromBig(t Type, v *big.Int) []byte {
	b := make([]byte, t.Size())
	v = new(big.Int).And(v, new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))), big.NewInt(1)))
	for i := range b {
		b[i] = byte(new(big.Int).Rsh(v, uint(8*i)).Uint64())
	}
	return b
}

func littleEndian() bool { return binary.NativeEndian.Uint16([]byte{1, 0}) == 1 }

func TestIntegers(t *testing.T) {
	if !littleEndian() {
		t.Skip("the reference reads little-endian integers")
	}
	rng := rand.New(rand.NewPCG(4, 4))
	for ty := Int8; ty <= Uint64; ty++ {
		size := ty.Size()
		for op := range NumOps {
			dst, src := random(rng, 300*size), random(rng, 300*size)
			got := bytes.Clone(dst)
			Reduce(op, ty)(got, src)
			for i := 0; i < len(dst); i += size {
				if want := slowInt(ty, op, dst[i:i+size], src[i:i+size]); !bytes.Equal(got[i:i+size], want) {
					t.Fatalf("%v %v: %x, %x is %x, want %x",
						ty, op, dst[i:i+size], src[i:i+size], got[i:i+size], want)
				}
			}
		}
		for _, n := range []int64{1, 2, 3, 200, 4096} {
			dst := random(rng, 300*size)
			got := bytes.Clone(dst)
			DivInt(ty)(got, n)
			scaled := bytes.Clone(dst)
			Scale(ty)(scaled, dst, float64(n))
			for i := 0; i < len(dst); i += size {
				x := toBig(ty, dst[i:i+size])
				if want := fromBig(ty, new(big.Int).Quo(x, big.NewInt(n))); !bytes.Equal(got[i:i+size], want) {
					t.Fatalf("%v: %v / %d is %x, want %x", ty, x, n, got[i:i+size], want)
				}
				if want := fromBig(ty, new(big.Int).Mul(x, big.NewInt(n))); !bytes.Equal(scaled[i:i+size], want) {
					t.Fatalf("%v: %v x %d is %x, want %x", ty, x, n, scaled[i:i+size], want)
				}
			}
		}
	}
}

func random(rng *rand.Rand, n int) []byte {
	b := make([]byte, 0, n+8)
	for len(b) < n {
		b = binary.NativeEndian.AppendUint64(b, rng.Uint64())
	}
	return b[:n]
}

// special are the special values of floats, and some ordinary ones.
var special = []float64{
	0, math.Copysign(0, -1), 1, -1, math.Inf(1), math.Inf(-1), math.NaN(), 5e-324, 1e-45,
	math.MaxFloat32, math.MaxFloat64, math.Pi,
}

func TestWideFloats(t *testing.T) {
	for op := range NumOps {
		for _, a := range special {
			for _, b := range special {
				dst := binary.NativeEndian.AppendUint64(nil, math.Float64bits(a))
				Reduce(op, Float64)(dst, binary.NativeEndian.AppendUint64(nil, math.Float64bits(b)))
				got, want := math.Float64frombits(binary.NativeEndian.Uint64(dst)), slowFloat(op, a, b)
				if !sameFloat(got, want) {
					t.Errorf("double: %v %v %v is %v, want %v", a, op, b, got, want)
				}
				// float64 has more than twice the bits of float32, so rounding twice equals rounding once.
				x, y := float32(a), float32(b)
				dst = binary.NativeEndian.AppendUint32(nil, math.Float32bits(x))
				Reduce(op, Float32)(dst, binary.NativeEndian.AppendUint32(nil, math.Float32bits(y)))
				got32 := math.Float32frombits(binary.NativeEndian.Uint32(dst))
				want32 := float32(slowFloat(op, float64(x), float64(y)))
				if !sameFloat(float64(got32), float64(want32)) {
					t.Errorf("float: %v %v %v is %v, want %v", x, op, y, got32, want32)
				}
			}
		}
	}
}

func TestScaleFloats(t *testing.T) {
	for _, f := range formats {
		mags := f.magnitudes()
		for _, n := range []float64{2, 3, 5, 7, 1000} {
			factor := f.value(f.encode(float32(1 / n)))
			for c := range 2 * f.signBit() {
				b := binary.NativeEndian.AppendUint16(nil, uint16(c))
				if f.t.Size() == 1 {
					b = []byte{byte(c)}
				}
				x := f.value(c) * factor
				if math.IsNaN(x) || math.IsInf(x, 0) {
					continue
				}
				Scale(f.t)(b, b, 1/n)
				got := uint32(b[0])
				if f.t.Size() == 2 {
					got = uint32(binary.NativeEndian.Uint16(b))
				}
				if want := f.nearest(mags, x); got != want {
					t.Fatalf("%s: %v / %v is %#x, want %#x", f.name, f.value(c), n, got, want)
				}
			}
		}
	}
	b := binary.NativeEndian.AppendUint32(nil, math.Float32bits(10))
	Scale(Float32)(b, b, 1.0/3)
	if got := math.Float32frombits(binary.NativeEndian.Uint32(b)); got != 10*float32(1.0/3) {
		t.Errorf("float: %v", got)
	}
	b = binary.NativeEndian.AppendUint64(nil, math.Float64bits(10))
	Scale(Float64)(b, b, 1.0/3)
	if got, third := math.Float64frombits(binary.NativeEndian.Uint64(b)), 1.0/3; got != 10*third {
		t.Errorf("double: %v", got)
	}
}

// TestAlignmentAndCuts checks that results do not depend on alignment or length, and that no byte beyond the last whole
// element changes.
func TestAlignmentAndCuts(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for ty := range NumTypes {
		size := ty.Size()
		for _, n := range []int{0, 1, 7, 8, 9, 255, 256, 257, 600} {
			dst, src := random(rng, n*size+size-1), random(rng, n*size+size-1)
			run := map[string]func(d, s []byte){}
			for op := range NumOps {
				run[op.String()] = Reduce(op, ty)
			}
			run["scale"] = func(d, s []byte) { Scale(ty)(d, s, 3) }
			if div := DivInt(ty); div != nil {
				run["div"] = func(d, _ []byte) { div(d, 3) }
			}
			for name, f := range run {
				want := bytes.Clone(dst)
				for i := 0; i+size <= len(dst); i += size {
					f(want[i:i+size], src[i:i+size])
				}
				for _, off := range [][2]int{{0, 0}, {1, 0}, {0, 1}, {3, 5}} {
					d := append(make([]byte, off[0], off[0]+len(dst)), dst...)[off[0]:]
					s := append(make([]byte, off[1], off[1]+len(src)), src...)[off[1]:]
					f(d, s)
					if !bytes.Equal(d, want) && !onlyNaN(ty, d, want) {
						t.Fatalf("%v %s of %d elements at offsets %v differs from single elements", ty, name, n, off)
					}
				}
			}
		}
	}
}

// TestElementsRejectsUnaligned checks that elements never returns unaligned slices, which some CPUs cannot read.
func TestElementsRejectsUnaligned(t *testing.T) {
	words := make([]uint64, 3)
	b := bytesOf(words)
	if s, ok := elements[uint64](b); !ok || len(s) != 3 {
		t.Errorf("aligned: %d elements, %v", len(s), ok)
	}
	for off := 1; off < 8; off++ {
		if _, ok := elements[uint64](b[off:]); ok {
			t.Errorf("offset %d: accepted as aligned", off)
		}
	}
	if s, ok := elements[uint64](b[1:8]); !ok || len(s) != 0 {
		t.Errorf("7 bytes: %d elements, %v", len(s), ok)
	}
}

// onlyNaN reports whether a and b differ only in payloads of NaN.
func onlyNaN(t Type, a, b []byte) bool {
	if t != Float32 && t != Float64 {
		return false
	}
	for i := 0; i+t.Size() <= len(a); i += t.Size() {
		x, y := a[i:i+t.Size()], b[i:i+t.Size()]
		if bytes.Equal(x, y) {
			continue
		}
		nan := func(v []byte) bool {
			if t == Float32 {
				return math.IsNaN(float64(math.Float32frombits(binary.NativeEndian.Uint32(v))))
			}
			return math.IsNaN(math.Float64frombits(binary.NativeEndian.Uint64(v)))
		}
		if !nan(x) || !nan(y) {
			return false
		}
	}
	return bytes.Equal(a[len(a)-len(a)%t.Size():], b[len(b)-len(b)%t.Size():])
}

func TestKernelsDoNotAllocate(t *testing.T) {
	buf := make([]byte, 4097)
	src := make([]byte, 4097)
	for ty := range NumTypes {
		for op := range NumOps {
			f, scale, div := Reduce(op, ty), Scale(ty), DivInt(ty)
			for _, off := range []int{0, 1} {
				if n := testing.AllocsPerRun(5, func() {
					f(buf[off:], src)
					scale(buf[off:], src, 0.5)
					if div != nil {
						div(buf[off:], 3)
					}
				}); n != 0 {
					t.Errorf("%v %v at offset %d: %v allocations", ty, op, off, n)
				}
			}
		}
	}
}
