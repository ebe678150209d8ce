package combine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"lightpath/collectives/datatype"
	"lightpath/collectives/sharedmem"
	"lightpath/shim/device"
)

var versions = map[Kernels]string{Vectors: "vectors", Plain: "plain"}

// codes returns values of a type whose arithmetic is special, and some between them. Floats have zeros, subnormals,
// powers of two far apart, the greatest value, infinities and NaN with payloads, of both signs; types of 8 bits all
// values.
func codes(t datatype.Type) []uint64 {
	var mantissa int
	switch t {
	case datatype.Float16:
		mantissa = 10
	case datatype.Bfloat16:
		mantissa = 7
	case datatype.Float32:
		mantissa = 23
	case datatype.Float64:
		mantissa = 52
	}
	bits := 8 * t.Size()
	var v []uint64
	switch {
	case bits == 8:
		for i := range uint64(256) {
			v = append(v, i)
		}
		return v
	case mantissa == 0:
		v = []uint64{0, 1, 2, 3, 7, 0xff, 0xffff, 1 << 31, 1<<31 - 1, 1<<32 - 1, 1 << 32, 1<<63 - 1, 1 << 63}
	default:
		greatest := uint64(1)<<(bits-1-mantissa) - 1 // the exponent of infinities
		for _, e := range []uint64{0, 1, greatest / 2, greatest/2 - 1, greatest/2 + 9, greatest - 1, greatest} {
			for _, m := range []uint64{0, 1, 2, 1 << (mantissa - 1), 1<<mantissa - 1, 1<<(mantissa-1) | 5} {
				v = append(v, e<<mantissa|m)
			}
		}
	}
	for _, x := range slices.Clone(v) {
		v = append(v, x^1<<(bits-1), ^x)
	}
	return v
}

func put(t datatype.Type, b []byte, i int, v uint64) {
	var w [8]byte
	binary.LittleEndian.PutUint64(w[:], v)
	copy(b[i*t.Size():(i+1)*t.Size()], w[:])
}

// isNaN reports whether an element is a NaN.
func isNaN(t datatype.Type, b []byte) bool {
	var f float64
	switch t {
	case datatype.Float16:
		f = float64(datatype.F16ToF32(binary.LittleEndian.Uint16(b)))
	case datatype.Bfloat16:
		f = float64(datatype.BF16ToF32(binary.LittleEndian.Uint16(b)))
	case datatype.Float32:
		f = float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	case datatype.Float64:
		f = math.Float64frombits(binary.LittleEndian.Uint64(b))
	case datatype.Float8E4M3:
		f = float64(datatype.E4M3ToF32(b[0]))
	case datatype.Float8E5M2:
		f = float64(datatype.E5M2ToF32(b[0]))
	}
	return f != f
}

// check compares all elements of a op b. If free, a result of two NaN may be any NaN.
func check(t *testing.T, what string, ty datatype.Type, free bool, got, want, a, b []byte) {
	t.Helper()
	if bytes.Equal(got, want) {
		return
	}
	size := ty.Size()
	for i := 0; i < len(got); i += size {
		g, w, x, y := got[i:i+size], want[i:i+size], a[i:i+size], b[i:i+size]
		if bytes.Equal(g, w) || free && isNaN(ty, x) && isNaN(ty, y) && isNaN(ty, g) && isNaN(ty, w) {
			continue
		}
		t.Fatalf("%v %s, element %d of %d: %x and %x is %x, not %x", ty, what, i/size, len(got)/size, x, y, g, w)
	}
}

// each runs f for every version and type.
func each(t *testing.T, f func(t *testing.T, k Kernels, ty datatype.Type, rng *rand.Rand)) {
	for k, name := range versions {
		for ty := range datatype.NumTypes {
			t.Run(fmt.Sprintf("%s/%v", name, ty), func(t *testing.T) {
				f(t, k, ty, rand.New(rand.NewPCG(uint64(k), uint64(ty))))
			})
		}
	}
}

func combineBoth(t *testing.T, k Kernels, ty datatype.Type, a, b []byte) {
	t.Helper()
	got, want := make([]byte, len(a)), make([]byte, len(a))
	for op := range datatype.Avg {
		k.Combine(ty, op, got, a, b)
		datatype.Combine(op, ty)(want, a, b)
		check(t, op.String(), ty, op < datatype.Max, got, want, a, b)
	}
}

// TestPairs combines every pair of special values (for types of 8 bits every pair of values), and every value of 16
// bits with some others: with 4096 if LIGHTPATH_TEST_LONG=1.
func TestPairs(t *testing.T) {
	partners := 32
	if os.Getenv("LIGHTPATH_TEST_LONG") != "" {
		partners = 4096
	}
	each(t, func(t *testing.T, k Kernels, ty datatype.Type, rng *rand.Rand) {
		special := codes(ty)
		n := len(special)
		a, b := make([]byte, n*n*ty.Size()), make([]byte, n*n*ty.Size())
		for i := range n * n {
			put(ty, a, i, special[i/n])
			put(ty, b, i, special[i%n])
		}
		combineBoth(t, k, ty, a, b)
		if ty.Size() != 2 {
			return
		}
		a, b = make([]byte, 1<<17), make([]byte, 1<<17)
		for range partners {
			// Every value, with those at a distance in this order: near ones show differences, far ones rounding.
			distance := rng.Uint64()
			for i := range 1 << 16 {
				put(ty, a, i, uint64(i))
				put(ty, b, i, (uint64(i)^distance)*(distance|1))
			}
			combineBoth(t, k, ty, a, b)
		}
	})
}

// TestRandom combines random bits, and numbers near each other, of any length and alignment, also in place.
func TestRandom(t *testing.T) {
	each(t, func(t *testing.T, k Kernels, ty datatype.Type, rng *rand.Rand) {
		size, special := ty.Size(), codes(ty)
		memory := make([]byte, 3*(5000*size+64))
		draw := func(n, at int) []byte {
			b := memory[at:][: n*size : n*size]
			for i := range n {
				switch v := rng.Uint64(); v % 3 {
				case 0:
					put(ty, b, i, rng.Uint64())
				case 1:
					put(ty, b, i, special[rng.IntN(len(special))])
				default:
					put(ty, b, i, special[3%len(special)]^v>>8&0xffffff)
				}
			}
			return b
		}
		for _, n := range append([]int{1000, 4099}, rng.Perm(130)...) {
			third := len(memory) / 3
			a, b, dst := draw(n, rng.IntN(64)), draw(n, third+rng.IntN(64)), memory[2*third+rng.IntN(64):][:n*size]
			want := make([]byte, n*size)
			for op := range datatype.Avg {
				datatype.Combine(op, ty)(want, a, b)
				free := op < datatype.Max
				k.Combine(ty, op, dst, a, b)
				check(t, op.String(), ty, free, dst, want, a, b)
				copy(dst, a)
				k.Combine(ty, op, dst, dst, b)
				check(t, op.String()+" over the first", ty, free, dst, want, a, b)
				copy(dst, b)
				k.Combine(ty, op, dst, a, dst)
				check(t, op.String()+" over the second", ty, free, dst, want, a, b)
			}
		}
	})
}

// TestScale scales by the factors of averages, and by elements, as operators of the user have them.
func TestScale(t *testing.T) {
	each(t, func(t *testing.T, k Kernels, ty datatype.Type, rng *rand.Rand) {
		size, special := ty.Size(), codes(ty)
		n := len(special) + 1000
		src, got, want, same := make([]byte, n*size), make([]byte, n*size), make([]byte, n*size), make([]byte, n*size)
		for i := range n {
			put(ty, src, i, rng.Uint64())
			if i < len(special) {
				put(ty, src, i, special[i])
			}
		}
		var factors []float64
		if ty.Float() {
			for n := 2; n <= sharedmem.MaxRanks; n++ {
				factors = append(factors, 1/float64(n))
			}
		}
		for _, f := range append(factors, -3, 0, 100) {
			if f < 0 && (ty == datatype.Uint8 || ty == datatype.Uint32 || ty == datatype.Uint64) {
				continue // not a value of the type
			}
			factor := device.ScaleBy(ty, f).Factor
			k.Scale(ty, got, src, factor[:size])
			datatype.Scale(ty)(want, src, f)
			for i := range n {
				copy(same[i*size:], factor[:size])
			}
			check(t, fmt.Sprint("x ", f), ty, true, got, want, src, same)
		}
	})
}

func TestDivide(t *testing.T) {
	each(t, func(t *testing.T, k Kernels, ty datatype.Type, rng *rand.Rand) {
		special := codes(ty)
		got := make([]byte, (len(special)+1000)*ty.Size())
		for n := 1; n <= 127; n++ {
			for i := range len(got) / ty.Size() {
				put(ty, got, i, rng.Uint64())
				if i < len(special) {
					put(ty, got, i, special[i])
				}
			}
			want := slices.Clone(got)
			divide := datatype.DivInt(ty)
			if done := k.Divide(ty, got, n); done != (divide != nil) {
				t.Fatalf("division %v", done)
			} else if done {
				divide(want, int64(n))
			}
			if !bytes.Equal(got, want) {
				t.Fatalf("by %d: differs", n)
			}
		}
	})
}

// BenchmarkCombine compares the kernels' speed to that of the Go and assembly kernels, with data in the first cache.
func BenchmarkCombine(b *testing.B) {
	const n = 8 << 10
	dst, x, y := make([]byte, n), bytes.Repeat([]byte{0x3c}, n), bytes.Repeat([]byte{0x3c}, n)
	for ty := range datatype.NumTypes {
		for op := range datatype.Avg {
			b.Run(fmt.Sprintf("%v/%v/c", ty, op), func(b *testing.B) {
				b.SetBytes(n)
				for b.Loop() {
					Vectors.Combine(ty, op, dst, x, y)
				}
			})
			b.Run(fmt.Sprintf("%v/%v/go", ty, op), func(b *testing.B) {
				b.SetBytes(n)
				combine := datatype.Combine(op, ty)
				for b.Loop() {
					combine(dst, x, y)
				}
			})
		}
	}
}

// TestCopyPast copies from and to all alignments.
func TestCopyPast(t *testing.T) {
	from := make([]byte, 1024)
	for i := range from {
		from[i] = byte(i*7 + 1)
	}
	for at := 0; at < 64; at += 3 {
		for n := 0; n <= 900; n += 1 + n/140*52 {
			to, src := make([]byte, 64+len(from)), from[at%5:][:n]
			CopyPast(to[at:at+n], src)
			if !bytes.Equal(to[at:at+n], src) || !bytes.Equal(bytes.Trim(to[:at], "\x00"), nil) || to[at+n] != 0 {
				t.Fatalf("%d bytes to %d", n, at)
			}
		}
	}
}
