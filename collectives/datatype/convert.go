package datatype

import "math"

// Conversions to narrow types round to nearest, ties to even, and keep the sign of zero. Conversions to float32 are
// exact. A NaN stays a NaN of the same sign. In the 16-bit types it becomes quiet and keeps the leading bits of its
// payload, as with F16C and AVX512_BF16. In the 8-bit types it becomes the canonical NaN.

const (
	signF32 = 1 << 31
	infF32  = 255 << 23
)

// F16ToF32 converts from IEEE half precision.
func F16ToF32(h uint16) float32 {
	sign, abs := uint32(h&0x8000)<<16, uint32(h&0x7fff)
	if abs >= 0x7c00 {
		if abs > 0x7c00 {
			abs |= 0x200
		}
		return math.Float32frombits(sign | infF32 | (abs&0x3ff)<<13)
	}
	// Taken as float32, the bits are 2^(15-127) times the value, also for subnormals.
	f := math.Float32frombits(abs<<13) * (1 << 112)
	return math.Float32frombits(sign | math.Float32bits(f))
}

// F32ToF16 converts to IEEE half precision. Values that are too large become infinities.
func F32ToF16(f float32) uint16 {
	b := math.Float32bits(f)
	sign, abs := uint16(b>>16)&0x8000, b&^signF32
	switch {
	case abs > infF32:
		return sign | 0x7e00 | uint16(abs>>13)&0x3ff
	case abs >= (127+16)<<23:
		return sign | 0x7c00
	}
	return sign | uint16(narrow(abs, 10, 15))
}

// BF16ToF32 converts from bfloat16.
func BF16ToF32(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// F32ToBF16 converts to bfloat16. Values that are too large become infinities.
func F32ToBF16(f float32) uint16 {
	b := math.Float32bits(f)
	if b&^signF32 > infF32 {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// E4M3ToF32 converts from the FP8 format E4M3, which has no infinities.
func E4M3ToF32(v uint8) float32 {
	sign, abs := uint32(v&0x80)<<24, uint32(v&0x7f)
	if abs == 0x7f {
		return math.Float32frombits(sign | 0x7fc00000)
	}
	f := math.Float32frombits(abs<<20) * (1 << 120)
	return math.Float32frombits(sign | math.Float32bits(f))
}

// F32ToE4M3 converts to E4M3 with saturation: infinities and values above 448 become 448.
func F32ToE4M3(f float32) uint8 {
	b := math.Float32bits(f)
	sign, abs := uint8(b>>24)&0x80, b&^signF32
	if abs > infF32 {
		return sign | 0x7f
	}
	return sign | uint8(min(narrow(abs, 3, 7), 0x7e))
}

// E5M2ToF32 converts from the FP8 format E5M2, which is the leading byte of a half.
func E5M2ToF32(v uint8) float32 { return F16ToF32(uint16(v) << 8) }

// F32ToE5M2 converts to E5M2 with saturation: infinities and values above 57344 become 57344.
func F32ToE5M2(f float32) uint8 {
	b := math.Float32bits(f)
	sign, abs := uint8(b>>24)&0x80, b&^signF32
	if abs > infF32 {
		return sign | 0x7e
	}
	return sign | uint8(min(narrow(abs, 2, 15), 0x7b))
}

// narrow rounds the bits of a non-negative float32, not NaN, to a format with the given mantissa bits and exponent
// bias. The result may exceed the largest exponent of the format.
func narrow(abs, mantissa, bias uint32) uint32 {
	shift := 23 - mantissa
	if abs < (127-bias+1)<<23 {
		// A subnormal result. The hardware rounds the sum with a number whose last bit is the format's smallest value.
		magic := (127 - bias + shift + 1) << 23
		return math.Float32bits(math.Float32frombits(abs)+math.Float32frombits(magic)) - magic
	}
	abs += 1<<(shift-1) - 1 + abs>>shift&1
	return abs>>shift - (127-bias)<<mantissa
}
