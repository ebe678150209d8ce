package cuda_test

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/shim/device"
)

// TestReduceLent compares the device with the CPU, in reductions whose words name sources and further targets, or none,
// with equal and with different alignments.
func TestReduceLent(t *testing.T) {
	const room = 3 << 10
	for _, typ := range []datatype.Type{datatype.Uint8, datatype.Float32, datatype.Bfloat16, datatype.Float8E4M3} {
		t.Run(typ.String(), func(t *testing.T) {
			b := newBench(t, 12*room)
			rng := rand.New(rand.NewPCG(uint64(typ), 1))
			for trial := range 40 {
				for i := range b.host {
					b.host[i] = byte(rng.Uint32()) & 0x3f // no NaN: the CPU's results may be other NaN
				}
				b.run(lentReduction(b, typ, room, trial, rng))
			}
		})
	}
}

// lentReduction returns a reduction whose words are in the last room. It has three sources, in rooms 0 to 2, or, if
// words name them, 3 to 5. Results go to room 6, and to 7 and 8 if these are targets, and the spare is room 9.
func lentReduction(b *bench, typ datatype.Type, room, trial int, rng *rand.Rand) *device.Reduction {
	apart, tag := int64(0), device.SaidTag(rng.Uint64())
	if trial%4 == 3 {
		apart = int64(typ.Size())
	}
	at := func(i int) unsafe.Pointer { return unsafe.Add(b.at, i*room+64) }
	words := 0
	word := func(says unsafe.Pointer) unsafe.Pointer {
		offset := 11*room + 8*words
		words++
		value := uint64(uintptr(says)) | tag
		switch {
		case says == nil:
			value = uint64(rng.IntN(2)) * (0xdeadbee0 | tag&0xf) // half a word
		case rng.IntN(8) == 0:
			value ^= 1 << [...]int{0, 3, 57, 62, 63}[rng.IntN(5)] // of another call
		}
		binary.NativeEndian.PutUint64(b.host[offset:], value)
		return unsafe.Add(b.at, offset)
	}
	r := &device.Reduction{Dst: at(6), N: 1 + rng.IntN(3), Type: typ, Count: int64(rng.IntN((room - 256) / typ.Size())),
		Tag:    tag,
		Offset: 32 + apart, TargetOffset: -16 + apart}
	for i := range r.N {
		r.Sources[i] = at(i)
		switch rng.IntN(3) {
		case 0:
			r.Found[i] = word(nil)
		case 1:
			r.Found[i] = word(at(3 + i))
		}
	}
	r.NumTargets = rng.IntN(3)
	for i := range r.NumTargets {
		switch rng.IntN(3) {
		case 0:
			r.Targets[i] = word(nil)
		case 1:
			r.Targets[i] = word(at(7 + i))
		}
	}
	if rng.IntN(4) > 0 {
		r.Spare = at(9)
	}
	return r
}
