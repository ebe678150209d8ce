package device

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unsafe"

	"lightpath/collectives/datatype"
)

// MaxSources is how many sources one kernel combines.
const MaxSources = 16

// Limits of the parts of one kernel.
const (
	MaxCopies = 32
	MaxStores = 64 // before and after it together
)

// maxDivisor is the largest number that a kernel divides by.
const maxDivisor = math.MaxInt32

// ErrReduction reports a reduction that no kernel can make.
var ErrReduction = errors.New("device: impossible reduction")

// Reduction is what one kernel does: a reduction, copies beside it, and writes of words before and after. For every
// element i the reduction computes:
//
//	Dst[i] = (Sources[0][i]*Scale Op Sources[1][i]*Scale Op ... Sources[N-1][i]*Scale) / Divisor
//
// (only sums, and one source alone, are scaled or divided) from left to right. Every result is rounded to the type, as
// in package datatype: the same sources in the same order give the same bits as its kernels. A NaN is a NaN in both,
// but may differ in sign and payload. One source alone is copied, bit for bit, or multiplied.
//
// Sources are only read. Dst may be one of them, and overlaps nothing else. All buffers must be memory that the
// stream's device reaches. Any alignment works; kernels are fast if all addresses are equal modulo 16. The driver reads
// the structure only during the call.
type Reduction struct {
	Dst     unsafe.Pointer
	Sources [MaxSources]unsafe.Pointer
	N       int   // sources, 1 to MaxSources; 0 only if Count is
	Count   int64 // elements; 0 is no reduction
	Type    datatype.Type
	Op      datatype.Op // Avg combines as Sum does; see Average
	Scale   Scale
	Divisor int64 // of integers, truncating towards zero; 0 and 1 divide by nothing, at most math.MaxInt32

	// Words of 8 bytes in device memory, which the kernel reads when it runs. A word with Tag ([SaidTag]) holds an
	// address, a multiple of 16. A word with another tag, or nil, holds none; it may change while the kernel runs. If a
	// source's word holds an address, the source is Offset bytes after that address, not at Sources[i]. The kernel
	// stores results at Dst and at the addresses of all Targets. If the word of a target holds no address, it stores
	// them at Spare, too.
	Tag          uint64
	Found        [MaxSources]unsafe.Pointer
	Offset       int64
	Targets      [MaxSources]unsafe.Pointer
	NumTargets   int
	TargetOffset int64
	Spare        unsafe.Pointer // nil: nowhere

	Copies []Copy
	// The kernel writes Before before it uses memory, and After when it has used all of it. A rank that sees a word of
	// After sees all that the kernel and earlier work of the stream have written. Each list is written in any order.
	// Blocks is a word of the device's memory, 0 before and after each kernel with After.
	Before, After []Store
	Blocks        Address
}

// Copy is a copy of elements, beside a reduction. No other part of the kernel uses what it writes.
type Copy struct {
	Dst, Src      unsafe.Pointer
	Found         unsafe.Pointer // word that may hold another source, as for sources of the reduction
	Offset, Count int64
	Scaled        bool // elements are multiplied by Scale's factor. The sources of the reduction then are not
}

// Store is a write of a word by a kernel, in device memory or registered memory: of 4 bytes, or of 8 bytes if Wide is
// set. If Counter is not 0, it is a word of the device's memory, and Of kernels that are to write the same word count
// there. The last one writes it, and sets the counter to 0. Such a word has 4 bytes.
type Store struct {
	At      Address
	Value   uint64
	Wide    bool
	Of      uint32
	Counter Address
}

// SaidBits are the bits of a word, without its tag, that must be 0 in an address. Streams write such a word in two
// halves, the lower one first. They take it back with a 0 in the upper half. Tags have the upper bit set, so a
// half-written word has no meaning.
const SaidBits uint64 = 0xfe<<56 | 0xf

// SaidTag is the tag of words with one meaning: the writer of an address and its reader use the same tag. Two meanings
// have equal tags with probability 1/1024.
func SaidTag(meaning uint64) uint64 {
	mixed := meaning * 0x9e3779b97f4a7c15 // 2^64 / the golden ratio
	return 1<<63 | mixed>>1&(SaidBits&^0xf) | mixed>>54&0xf
}

// Scale multiplies all sources before they are combined; the zero value does not.
type Scale struct {
	Set    bool
	Factor [8]byte        // an element of the type, in its first bytes; used if At is nil
	At     unsafe.Pointer // address of the element in device memory, of any alignment; read when the kernel runs
}

// ScaleBy returns the multiplication by a factor, rounded as [datatype.ScaleFunc] rounds it.
func ScaleBy(t datatype.Type, factor float64) Scale {
	s := Scale{Set: true}
	b, f := binary.NativeEndian, float32(factor)
	switch t {
	case datatype.Float16:
		b.PutUint16(s.Factor[:], datatype.F32ToF16(f))
	case datatype.Bfloat16:
		b.PutUint16(s.Factor[:], datatype.F32ToBF16(f))
	case datatype.Float8E4M3:
		s.Factor[0] = datatype.F32ToE4M3(f)
	case datatype.Float8E5M2:
		s.Factor[0] = datatype.F32ToE5M2(f)
	case datatype.Float32:
		b.PutUint32(s.Factor[:], math.Float32bits(f))
	case datatype.Float64:
		b.PutUint64(s.Factor[:], math.Float64bits(factor))
	default:
		// little-endian, as all hosts of CUDA are: its low bytes are the element
		b.PutUint64(s.Factor[:], uint64(int64(factor)))
	}
	return s
}

// Average returns the parameters that turn a sum over n ranks into an average: floats are multiplied by 1/n before they
// are added, sums of integers are divided by n.
func Average(t datatype.Type, n int) (before Scale, divisor int64) {
	switch {
	case n <= 1:
		return Scale{}, 1
	case t.Float():
		return ScaleBy(t, 1/float64(n)), 1
	}
	return Scale{}, int64(n)
}

// Check returns an error, wrapping [ErrReduction], that names the field with which no kernel can compute r.
func (r *Reduction) Check() error {
	switch {
	case !r.Type.Valid():
		return fmt.Errorf("%w: type %v", ErrReduction, r.Type)
	case !r.Op.Valid():
		return fmt.Errorf("%w: operator %v", ErrReduction, r.Op)
	case r.N < 0 || r.N < 1 && r.Count > 0 || r.N > MaxSources:
		return fmt.Errorf("%w: %d sources, 1 to %d are possible", ErrReduction, r.N, MaxSources)
	case r.NumTargets < 0 || r.NumTargets > MaxSources:
		return fmt.Errorf("%w: %d targets, at most %d are possible", ErrReduction, r.NumTargets, MaxSources)
	case len(r.Copies) > MaxCopies || len(r.Before)+len(r.After) > MaxStores:
		return fmt.Errorf("%w: %d copies, %d words, at most %d and %d are possible", ErrReduction, len(r.Copies),
			len(r.Before)+len(r.After), MaxCopies, MaxStores)
	case r.Count < 0 || r.Count > math.MaxInt64/int64(r.Type.Size()):
		return fmt.Errorf("%w: %d elements", ErrReduction, r.Count)
	case r.Divisor < 0 || r.Divisor > maxDivisor:
		return fmt.Errorf("%w: divisor %d, at most %d is possible", ErrReduction, r.Divisor, maxDivisor)
	case (r.Scale.Set || r.Divisor > 1) && r.N > 1 && r.Op != datatype.Sum && r.Op != datatype.Avg:
		return fmt.Errorf("%w: %v of scaled or divided sources, only sums are possible", ErrReduction, r.Op)
	case r.Divisor > 1 && r.Type.Float():
		return fmt.Errorf("%w: divisor %d of %v, only integers are divided", ErrReduction, r.Divisor, r.Type)
	}
	return nil
}

// Empty reports whether the kernel would do nothing.
func (r *Reduction) Empty() bool {
	return r.Count == 0 && len(r.Copies)+len(r.Before)+len(r.After) == 0
}
