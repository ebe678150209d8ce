package cuda_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"
	"unsafe"

	"lightpath/cgo/cuda"
	"lightpath/cgo/cuda/cudatest"
	"lightpath/collectives/datatype"
	"lightpath/shim/device"
	"lightpath/shim/device/devicetest"
)

func TestMain(m *testing.M) {
	if !cudatest.Real() {
		_ = os.Setenv("STUB_CUDA_DEVICES", "16") // tests that break a context use devices of their own
	}
	if err := cudatest.Open(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

var driver cuda.Library

// bench is device memory with a copy on the host, and a stream.
type bench struct {
	t      *testing.T
	at     unsafe.Pointer
	host   []byte
	stream device.Stream
}

func newBench(t *testing.T, size int) *bench {
	t.Helper()
	return newBenchOn(t, 0, size)
}

func newBenchOn(t *testing.T, number, size int) *bench {
	t.Helper()
	cudatest.Use(number)
	b := &bench{t: t, at: cudatest.Alloc(size), host: make([]byte, size), stream: cudatest.NewStream()}
	t.Cleanup(func() {
		cudatest.Sync(b.stream)
		cudatest.Free(b.at)
	})
	return b
}

// kinds returns devices with different kernels of a type, if there are such.
func kinds(typ datatype.Type) []int {
	if cudatest.Real() || !cuda.Native(typ) {
		return []int{0}
	}
	return []int{0, 1} // of the stub: sm_90 and sm_70
}

// reach returns the host's copy of device memory.
func (b *bench) reach(p unsafe.Pointer, size int64) []byte {
	offset := int64(uintptr(p) - uintptr(b.at))
	return b.host[offset : offset+size]
}

// run makes a reduction on the device and on the host, and compares all memory: nothing else may have changed.
func (b *bench) run(r *device.Reduction) {
	b.t.Helper()
	cudatest.Write(b.at, b.host)
	b.enqueue(r)
	if rc := cudatest.Sync(b.stream); rc != 0 {
		b.t.Fatalf("the stream ends with error %d", rc)
	}
	got := make([]byte, len(b.host))
	cudatest.Read(got, b.at)
	devicetest.Reduce(r, b.reach)
	if bytes.Equal(got, b.host) {
		return
	}
	size := r.Type.Size()
	first := int(uintptr(r.Dst) - uintptr(b.at))
	for i := first; i < first+int(r.Count)*size; i += size {
		g, w := got[i:i+size], b.host[i:i+size]
		if !bytes.Equal(g, w) && (!isNaN(r.Type, g) || !isNaN(r.Type, w)) {
			b.t.Fatalf("%v %v of %d sources, count %d: element %d is %x, not %x", r.Type, r.Op, r.N, r.Count, (i-first)/size,
				g, w)
		}
		copy(w, g)
	}
	if !bytes.Equal(got, b.host) {
		b.t.Fatalf("%v %v of %d sources, count %d: memory beside the result has changed", r.Type, r.Op, r.N, r.Count)
	}
}

func (b *bench) enqueue(r *device.Reduction) {
	b.t.Helper()
	if err := b.try(r); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) try(r *device.Reduction) error {
	if _, err := driver.Enter(b.stream); err != nil {
		return err
	}
	defer driver.Leave()
	return driver.Reduce(r, b.stream)
}

func isNaN(t datatype.Type, v []byte) bool {
	b := binary.NativeEndian
	switch t {
	case datatype.Float16:
		return b.Uint16(v)&0x7fff > 0x7c00
	case datatype.Bfloat16:
		return b.Uint16(v)&0x7fff > 0x7f80
	case datatype.Float32:
		return b.Uint32(v)&math.MaxInt32 > 0x7f800000
	case datatype.Float64:
		return b.Uint64(v)&math.MaxInt64 > 0x7ff<<52
	case datatype.Float8E4M3:
		return v[0]&0x7f == 0x7f
	case datatype.Float8E5M2:
		return v[0]&0x7f > 0x7c
	}
	return false
}

// fill writes elements with random bits, and some zeros, ones and small numbers.
func fill(b []byte, rng *rand.Rand) {
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	for range len(b) / 16 {
		i := rng.IntN(len(b))
		b[i] = [...]byte{0, 0x80, 0x7f, 0xff, 1, 0x3c, 0x7c, 0xfc}[rng.IntN(8)]
	}
}

// TestReduce compares the kernels with the CPU's: all types, operators, counts, alignments and numbers of sources.
func TestReduce(t *testing.T) {
	const room = 9 << 10
	for typ := range datatype.NumTypes {
		for op := range datatype.NumOps {
			t.Run(fmt.Sprintf("%v_%v", typ, op), func(t *testing.T) {
				for _, number := range kinds(typ) {
					b := newBenchOn(t, number, 18*room)
					rng := rand.New(rand.NewPCG(uint64(typ), uint64(op)))
					for trial := range 16 {
						r := someReduction(b, typ, op, trial, room, rng)
						fill(b.host, rng)
						b.run(r)
					}
				}
			})
		}
	}
}

// TestReduceLong is so long that every thread of the device takes several turns, with vectors and with elements.
func TestReduceLong(t *testing.T) {
	const room = 128 << 10 // more than the threads of the stub's device take in one turn
	for typ := range datatype.NumTypes {
		for op := range datatype.Avg {
			t.Run(fmt.Sprintf("%v_%v", typ, op), func(t *testing.T) {
				b := newBenchOn(t, int(op)%len(kinds(typ)), 3*room)
				rng := rand.New(rand.NewPCG(uint64(typ), uint64(op)))
				for _, apart := range []int{0, typ.Size()} {
					fill(b.host, rng)
					r := &device.Reduction{Dst: b.at, N: 2, Type: typ, Op: op, Count: int64(room/typ.Size() - 3)}
					r.Sources[0], r.Sources[1] = unsafe.Add(b.at, room), unsafe.Add(b.at, 2*room+apart)
					if op == datatype.Sum {
						r.Scale = device.ScaleBy(typ, 3)
					}
					if op == datatype.Sum && !typ.Float() {
						r.Divisor = 7
					}
					b.run(r)
				}
			})
		}
	}
}

// someReduction returns a random reduction with a room of memory for Dst and for each source.
func someReduction(b *bench, typ datatype.Type, op datatype.Op, trial, room int, rng *rand.Rand) *device.Reduction {
	size := typ.Size()
	r := &device.Reduction{Type: typ, Op: op, N: 1 + rng.IntN(4)}
	if trial%8 == 7 {
		r.N = device.MaxSources
	}
	counts := []int{0, 1, 2, 3, 15, 16, 17, 33, 100, 1023}
	r.Count = int64(counts[rng.IntN(len(counts))])
	if trial%4 == 3 {
		r.Count = int64((room - 64) / size)
	}
	offset := func() int { return rng.IntN(32/size) * size }
	switch trial % 3 {
	case 0: // equal alignments
		o := offset()
		if trial%2 == 1 {
			o = rng.IntN(32)
		}
		offset = func() int { return o }
	case 1: // not aligned to elements
		offset = func() int { return rng.IntN(32) }
	}
	at := func(i int) unsafe.Pointer { return unsafe.Add(b.at, i*room+offset()) }
	r.Dst = at(0)
	for i := range r.N {
		r.Sources[i] = at(i + 1)
	}
	if trial%5 == 4 {
		r.Dst = r.Sources[rng.IntN(r.N)]
	}
	if r.N > 1 && op != datatype.Sum && op != datatype.Avg {
		return r
	}
	switch rng.IntN(4) {
	case 0:
		r.Scale, r.Divisor = device.Average(typ, 1+rng.IntN(300))
	case 1:
		r.Scale = device.Scale{Set: true, At: unsafe.Add(b.at, 17*room+rng.IntN(9))}
	case 2:
		r.Scale = device.ScaleBy(typ, float64(rng.IntN(9)-4)/2)
	}
	return r
}

// TestSpecials compares all pairs of numbers at the ends of ranges: zeros of both signs, subnormals, infinities, NaN.
func TestSpecials(t *testing.T) {
	layouts := map[datatype.Type]uint{datatype.Float16: 10, datatype.Bfloat16: 7, datatype.Float32: 23,
		datatype.Float64: 52}
	for typ, mantissa := range layouts {
		size := typ.Size()
		one := uint64(1) << mantissa // of the exponent's last digit
		infinity := uint64(1)<<(8*size-1) - one
		numbers := []uint64{0, 1, 2, one - 1, one, one + 1, infinity / 2, infinity/2 + 1, infinity/2 + one/2,
			infinity - one, infinity - 1, infinity, infinity | one>>1, infinity + 1}
		for _, v := range numbers {
			numbers = append(numbers, v|1<<(8*size-1))
		}
		for op := range datatype.Avg {
			t.Run(fmt.Sprintf("%v_%v", typ, op), func(t *testing.T) {
				pairs := len(numbers) * len(numbers)
				room := pairs * size
				for _, number := range kinds(typ) {
					b := newBenchOn(t, number, 3*room)
					for i := range pairs {
						put := func(source int, v uint64) {
							var raw [8]byte
							binary.NativeEndian.PutUint64(raw[:], v)
							copy(b.host[source*room+i*size:], raw[:size])
						}
						put(1, numbers[i/len(numbers)])
						put(2, numbers[i%len(numbers)])
					}
					b.run(b.pair(typ, op, room, pairs))
				}
			})
		}
	}
}

// TestFP8 compares the kernels on all pairs of FP8 numbers.
func TestFP8(t *testing.T) {
	const pairs = 1 << 16
	for _, typ := range []datatype.Type{datatype.Float8E4M3, datatype.Float8E5M2} {
		for op := range datatype.Avg {
			t.Run(fmt.Sprintf("%v_%v", typ, op), func(t *testing.T) {
				for _, number := range kinds(typ) {
					b := newBenchOn(t, number, 3*pairs)
					for i := range pairs {
						p := i * 40503 % pairs // so that neighbours differ
						b.host[pairs+i], b.host[2*pairs+i] = byte(p>>8), byte(p)
					}
					b.run(b.pair(typ, op, pairs, pairs))
				}
			})
		}
	}
}

// TestBfloat16 compares the kernels on pairs of every bfloat16 with some of every exponent.
func TestBfloat16(t *testing.T) {
	const all = 1 << 16
	for op := range datatype.Avg {
		t.Run(op.String(), func(t *testing.T) {
			for _, number := range kinds(datatype.Bfloat16) {
				b := newBenchOn(t, number, 3*2*all)
				rng := rand.New(rand.NewPCG(uint64(op), 16))
				for i := range all {
					other := uint16(rng.Uint32())
					if i%2 == 0 { // near enough that sums are rounded
						other = uint16(i) + uint16(rng.IntN(20)-10)<<7 + uint16(rng.IntN(2))<<15
					}
					binary.NativeEndian.PutUint16(b.host[2*all+2*i:], uint16(i))
					binary.NativeEndian.PutUint16(b.host[4*all+2*i:], other)
				}
				b.run(b.pair(datatype.Bfloat16, op, 2*all, all))
			}
		})
	}
}
