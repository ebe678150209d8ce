package datatype

import (
	"math"
	"math/rand/v2"
	"sort"
	"testing"
)

// format is the definition of a narrow float.
type format struct {
	t              Type
	name           string
	exp, man, bias int
	saturate       bool // no result is an infinity
	fn             bool // no code is an infinity; only all ones is NaN
	decode         func(uint32) float32
	encode         func(float32) uint32
}

var formats = []format{
	{Float16, "f16", 5, 10, 15, false, false,
		func(c uint32) float32 { return F16ToF32(uint16(c)) }, func(f float32) uint32 { return uint32(F32ToF16(f)) }},
	{Bfloat16, "bf16", 8, 7, 127, false, false,
		func(c uint32) float32 { return BF16ToF32(uint16(c)) }, func(f float32) uint32 { return uint32(F32ToBF16(f)) }},
	{Float8E4M3, "e4m3", 4, 3, 7, true, true,
		func(c uint32) float32 { return E4M3ToF32(uint8(c)) }, func(f float32) uint32 { return uint32(F32ToE4M3(f)) }},
	{Float8E5M2, "e5m2", 5, 2, 15, true, false,
		func(c uint32) float32 { return E5M2ToF32(uint8(c)) }, func(f float32) uint32 { return uint32(F32ToE5M2(f)) }},
}

func (f *format) signBit() uint32 { return 1 << (f.exp + f.man) }

// value returns the value of a code, by definition.
func (f *format) value(code uint32) float64 {
	sign := 1.0
	if code&f.signBit() != 0 {
		sign = -1
	}
	e, m := int(code>>f.man)&(1<<f.exp-1), int(code)&(1<<f.man-1)
	top := 1<<f.exp - 1
	switch {
	case f.fn && e == top && m == 1<<f.man-1:
		return math.NaN()
	case !f.fn && e == top && m != 0:
		return math.NaN()
	case !f.fn && e == top:
		return math.Inf(int(sign))
	case e == 0:
		return sign * math.Ldexp(float64(m), 1-f.bias-f.man)
	}
	return sign * math.Ldexp(float64(m+1<<f.man), e-f.bias-f.man)
}

// magnitudes returns the codes of the finite non-negative values, which are in order.
func (f *format) magnitudes() []float64 {
	var v []float64
	for c := uint32(0); c < f.signBit(); c++ {
		x := f.value(c)
		if math.IsNaN(x) || math.IsInf(x, 0) {
			break
		}
		v = append(v, x)
	}
	return v
}

// nearest rounds to the nearest code, ties to even, by comparison with the neighbouring values.
func (f *format) nearest(mags []float64, x float64) uint32 {
	sign := uint32(0)
	if math.Signbit(x) {
		sign, x = f.signBit(), -x
	}
	last := len(mags) - 1
	hi := sort.SearchFloat64s(mags, x)
	if hi > last {
		// Without saturation, rounding overflows half a step above the largest value.
		if beyond := 2*mags[last] - mags[last-1]; !f.saturate && x >= (mags[last]+beyond)/2 {
			return sign | uint32(last+1)
		}
		return sign | uint32(last)
	}
	if mags[hi] == x {
		return sign | uint32(hi)
	}
	lo := hi - 1
	switch d := (x - mags[lo]) - (mags[hi] - x); {
	case d < 0 || d == 0 && lo%2 == 0:
		return sign | uint32(lo)
	default:
		return sign | uint32(hi)
	}
}

func TestDecodeEveryCode(t *testing.T) {
	for _, f := range formats {
		for c := range 2 * f.signBit() {
			got, want := f.decode(c), f.value(c)
			if math.IsNaN(want) {
				if got == got || math.Signbit(float64(got)) != (c&f.signBit() != 0) {
					t.Fatalf("%s %#x is %v, want NaN with its sign", f.name, c, got)
				}
				if back := f.encode(got); f.value(back) == f.value(back) || back&f.signBit() != c&f.signBit() {
					t.Fatalf("%s NaN %#x encodes to %#x", f.name, c, back)
				}
				continue
			}
			if float64(got) != want || math.Signbit(float64(got)) != math.Signbit(want) {
				t.Fatalf("%s %#x is %v, want %v", f.name, c, got, want)
			}
			if back := f.encode(got); back != c && !(f.saturate && math.IsInf(want, 0)) {
				t.Fatalf("%s %#x encodes to %#x", f.name, c, back)
			}
		}
	}
}

func TestEncodeRoundsToNearestEven(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, f := range formats {
		mags := f.magnitudes()
		check := func(x float32) {
			if x != x {
				return
			}
			for _, v := range []float32{x, -x} {
				if got, want := f.encode(v), f.nearest(mags, float64(v)); got != want {
					t.Fatalf("%s of %v (%#x) is %#x, want %#x", f.name, v, math.Float32bits(v), got, want)
				}
			}
		}
		// Every boundary between two values, and its neighbours.
		for i := range mags {
			mid := float32(2*mags[i] - mags[max(i, 1)-1])
			if i+1 < len(mags) {
				mid = float32((mags[i] + mags[i+1]) / 2)
			}
			check(float32(mags[i]))
			check(mid)
			check(math.Nextafter32(mid, 0))
			check(math.Nextafter32(mid, float32(math.Inf(1))))
		}
		last := mags[len(mags)-1]
		edge := float32(last + (last-mags[len(mags)-2])/2)
		for _, x := range []float32{
			edge, math.Nextafter32(edge, 0), math.Nextafter32(edge, math.MaxFloat32), math.MaxFloat32,
			float32(math.Inf(1)), 0, math.SmallestNonzeroFloat32,
		} {
			check(x)
		}
		samples := 100_000
		if testing.Short() {
			samples = 5_000
		}
		for range samples {
			check(math.Float32frombits(rng.Uint32()))
		}
	}
}

// TestDefinedValues checks values that the definitions of the formats list.
func TestDefinedValues(t *testing.T) {
	for _, c := range []struct{ got, want any }{
		{F32ToE4M3(448), uint8(0x7e)}, {F32ToE4M3(1e9), uint8(0x7e)}, {F32ToE4M3(float32(math.Inf(-1))), uint8(0xfe)},
		{F32ToE5M2(57344), uint8(0x7b)}, {F32ToE5M2(float32(math.Inf(1))), uint8(0x7b)},
		{F32ToF16(65504), uint16(0x7bff)}, {F32ToF16(65520), uint16(0x7c00)}, {F32ToF16(1), uint16(0x3c00)},
		{F32ToBF16(1), uint16(0x3f80)}, {E4M3ToF32(1), float32(1.0 / 512)}, {F16ToF32(1), float32(1.0 / (1 << 24))},
		{math.IsInf(float64(E5M2ToF32(0x7c)), 1), true},
		// F16C and AVX512_BF16 make a NaN quiet and keep the leading bits of its payload.
		{math.Float32bits(F16ToF32(0xfc01)), uint32(0xffc02000)},
		{F32ToF16(math.Float32frombits(0xff802000)), uint16(0xfe01)},
		{F32ToBF16(math.Float32frombits(0xff800001)), uint16(0xffc0)},
	} {
		if c.got != c.want {
			t.Errorf("got %v, want %v", c.got, c.want)
		}
	}
}
