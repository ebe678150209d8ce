package shimtest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"time"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule/oracle"
	"lightpath/shim"
	"lightpath/shim/calls"
)

// product multiplies every element by the scalar. Integers wrap; floats are small enough to be exact.
func product(t datatype.Type, buf, scalar []byte) []byte {
	out, size := make([]byte, len(buf)), t.Size()
	for i := 0; i < len(buf); i += size {
		if t.Float() {
			putFloat(t, out[i:], GetFloat(t, buf[i:])*GetFloat(t, scalar))
			continue
		}
		a, b := littleEndian(buf[i:i+size]), littleEndian(scalar)
		p := a.Mul(a, b)
		p.And(p, new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), uint(8*size)), big.NewInt(1)))
		be := p.FillBytes(make([]byte, size))
		for j := range be {
			out[i+j] = be[size-1-j]
		}
	}
	return out
}

func littleEndian(b []byte) *big.Int {
	be := make([]byte, len(b))
	for i := range b {
		be[len(b)-1-i] = b[i]
	}
	return new(big.Int).SetBytes(be)
}

// GetFloat returns an element of a float type.
func GetFloat(t datatype.Type, b []byte) float64 {
	le := binary.LittleEndian
	switch t {
	case datatype.Float16:
		return float64(datatype.F16ToF32(le.Uint16(b)))
	case datatype.Bfloat16:
		return float64(datatype.BF16ToF32(le.Uint16(b)))
	case datatype.Float32:
		return float64(math.Float32frombits(le.Uint32(b)))
	case datatype.Float64:
		return math.Float64frombits(le.Uint64(b))
	case datatype.Float8E4M3:
		return float64(datatype.E4M3ToF32(b[0]))
	default:
		return float64(datatype.E5M2ToF32(b[0]))
	}
}

// Scalars returns an unaligned scalar per rank. Floats differ in sign only, so that sums of up to eight ranks are exact
// in every type; integers have any bits.
func Scalars(rng *rand.Rand, t datatype.Type, n int) [][]byte {
	all, unit := make([][]byte, n), []float64{0.5, 1, 2}[rng.IntN(3)]
	for r := range all {
		all[r] = make([]byte, 1+t.Size())[1:]
		if t.Float() {
			putFloat(t, all[r], unit*float64(1-2*rng.IntN(2)))
			continue
		}
		for i := range all[r] {
			all[r][i] = byte(rng.Uint32())
		}
	}
	return all
}

var (
	// OracleKinds are the collectives that the oracle knows.
	OracleKinds = []calls.Kind{calls.AllReduce, calls.Broadcast, calls.Reduce, calls.AllGather, calls.ReduceScatter,
		calls.AllToAll, calls.Gather, calls.Scatter}
	// OracleSizes are numbers of elements, from none to several frames.
	OracleSizes = []int{0, 1, 7, 1023, 65537}
)

// RandomCollective draws all but the kind and the count of a collective of n ranks.
func RandomCollective(rng *rand.Rand, kind calls.Kind, n, count int) Collective {
	return Collective{
		Kind: kind, Type: datatype.Type(rng.IntN(int(datatype.NumTypes))), Op: datatype.Op(rng.IntN(int(datatype.NumOps))),
		Root: rng.IntN(n), Count: count, InPlace: rng.IntN(3) == 0, Skew: rng.IntN(2) * rng.IntN(8),
	}
}

// Collective is one collective call on all ranks.
type Collective struct {
	Kind    calls.Kind
	Type    datatype.Type
	Op      datatype.Op
	Root    int
	Count   int
	InPlace bool
	Skew    int      // misalignment of all buffers, bytes
	Scalars [][]byte // by rank, of OpPreMulSum
	Options calls.Options
	// memory is where a rank's buffers are; nil: on the heap.
	Memory func(rank, n int) []byte
}

func (k Collective) room(rank, n int) []byte {
	if k.Memory == nil {
		return make([]byte, n)
	}
	return k.Memory(rank, n)
}

// scalarOf returns the scalar of a rank, nil if the call has none.
func (k Collective) scalarOf(rank int) unsafe.Pointer {
	if k.Scalars == nil {
		return nil
	}
	return unsafe.Pointer(unsafe.SliceData(k.Scalars[rank]))
}

func (k Collective) String() string {
	return fmt.Sprintf("%v %v %v root %d count %d inPlace %v skew %d", k.Kind, k.Type, k.Op, k.Root,
		k.Count, k.InPlace, k.Skew)
}

// fill makes inputs whose reduction is exact in their type, in every order. Sums have whole numbers up to the number of
// ranks; products have powers of two. Averages of floats have one nonzero contribution per element.
func (k Collective) fill(rng *rand.Rand, buf []byte, rank, n int) {
	size := k.Type.Size()
	switch {
	case !k.Type.Float() || !calls.Kinds[k.Kind].Reduces:
		randomBytes(rng, buf)
		return
	case k.Op == datatype.Max, k.Op == datatype.Min, k.Op == datatype.Sum, k.Op == calls.OpPreMulSum:
		twoValues(rng, k.Type, buf, 0, 1)
	case k.Op == datatype.Prod:
		twoValues(rng, k.Type, buf, 1, 2)
	default:
		for i := 0; i < len(buf); i += size {
			if v := 0.0; i/size%n == rank {
				v = float64(1 + rng.IntN(3))
				putFloat(k.Type, buf[i:], v)
			}
		}
	}
}

// randomBytes fills buf with random bytes.
func randomBytes(rng *rand.Rand, buf []byte) {
	for ; len(buf) >= 8; buf = buf[8:] {
		binary.LittleEndian.PutUint64(buf, rng.Uint64())
	}
	for i := range buf {
		buf[i] = byte(rng.Uint32())
	}
}

// twoValues fills buf with random elements, each of which is a or b.
func twoValues(rng *rand.Rand, t datatype.Type, buf []byte, a, b float64) {
	size := t.Size()
	var either [2][8]byte
	putFloat(t, either[0][:], a)
	putFloat(t, either[1][:], b)
	var bits uint64
	for i := 0; i < len(buf); i += size {
		if i/size%64 == 0 {
			bits = rng.Uint64()
		}
		copy(buf[i:i+size], either[bits&1][:])
		bits >>= 1
	}
}

// fillWith fills buf with one value.
func fillWith(buf []byte, v byte) {
	if len(buf) == 0 {
		return
	}
	buf[0] = v
	for n := 1; n < len(buf); n *= 2 {
		copy(buf[n:], buf[:n])
	}
}

const guard = 0xa5

// rankBuffers are the memory of one rank, with guard bytes around the output.
type rankBuffers struct {
	input, output []byte
	guarded       []byte
}

// Operation is calls of all ranks of a world, and the check of their results.
type Operation struct {
	Name      string
	Messages  bool           // the calls are sends and receives
	Calls     [][]calls.Call // by rank
	Check     func() error
	CheckRank func(rank int) error // the part of check that is about one rank
}

// checkRanks makes right the check of each of n ranks.
func (d *Operation) checkRanks(n int, right func(rank int) error) {
	d.CheckRank = right
	d.Check = func() error {
		for r := range n {
			if err := right(r); err != nil {
				return fmt.Errorf("rank %d: %w", r, err)
			}
		}
		return nil
	}
}

// Run makes the calls of every rank as one group, after a delay by rank, and checks the results.
func (d *Operation) Run(w *World, delay func(rank int) time.Duration) error {
	for r, err := range Concurrently(w.t, len(w.Comms), func(r int) error {
		time.Sleep(delay(r))
		return shim.Run(d.Calls[r])
	}) {
		if err != nil {
			return fmt.Errorf("rank %d: %w", r, err)
		}
	}
	return d.Check()
}

// NoDelay is the delay of ranks that call at once.
func NoDelay(int) time.Duration { return 0 }

// Run makes the call on every rank of w and compares the results with the oracle. Errors begin with the call.
func (k Collective) Run(w *World, rng *rand.Rand) error {
	d, err := k.Prepare(w, rng)
	if err == nil {
		err = d.Run(w, NoDelay)
	}
	if err != nil {
		return fmt.Errorf("%v: %w", k, err)
	}
	return nil
}

// Prepare makes the buffers and calls of all ranks of w and asks the oracle for the results.
func (k Collective) Prepare(w *World, rng *rand.Rand) (*Operation, error) {
	n := len(w.Comms)
	inputs := make([][]byte, n)
	bufs := make([]rankBuffers, n)
	d := &Operation{Name: k.String(), Calls: make([][]calls.Call, n)}
	for r := range n {
		call := calls.Call{
			Comm: w.Comms[r], Kind: k.Kind, Type: k.Type, Op: k.Op, Peer: int32(k.Root), Count: uint64(k.Count),
			Scalar: k.scalarOf(r), Options: k.Options,
		}
		_ = call.Resolve()
		send, recv := call.Extents()
		// Every rank gets full buffers; buffers that the call does not use stay unchanged.
		block := int64(k.Count * k.Type.Size())
		inputs[r] = make([]byte, calls.Blocks(calls.Kinds[k.Kind].Send, n)*block)
		k.fill(rng, inputs[r], r, n)
		b := &bufs[r]
		*b = k.layout(inputs[r], send, recv, r)
		call.Send, call.Recv = unsafe.Pointer(unsafe.SliceData(b.input)), unsafe.Pointer(unsafe.SliceData(b.output))
		d.Calls[r] = []calls.Call{call}
	}
	op, summands := k.Op, inputs
	if k.Op == calls.OpPreMulSum {
		op, summands = datatype.Sum, make([][]byte, n)
		for r := range n {
			summands[r] = product(k.Type, inputs[r], k.Scalars[r])
		}
	}
	want, err := oracle.Expected(oracle.Call{Collective: calls.Kinds[k.Kind].Collective, Type: k.Type, Op: op,
		Root: k.Root}, summands)
	if err != nil {
		return nil, err
	}
	d.checkRanks(n, func(r int) error { return k.compare(&bufs[r], inputs[r], want[r]) })
	return d, nil
}

// compare checks the memory of a rank. want is nil if the call gives the rank nothing.
func (k Collective) compare(b *rankBuffers, input, want []byte) error {
	if k.Count > 0 && want != nil && !bytes.Equal(b.output, want) {
		at := 0
		for at < len(want) && b.output[at] == want[at] {
			at++
		}
		return fmt.Errorf("element %d of %d differs: % x, want % x", at/k.Type.Size(), len(want)/k.Type.Size(),
			b.output[at:min(at+8, len(want))], want[at:min(at+8, len(want))])
	}
	if err := b.check(); err != nil {
		return err
	}
	if !k.InPlace && !bytes.Equal(b.input, input[:len(b.input)]) {
		return errors.New("input was written")
	}
	return nil
}

// layout places the buffers of a rank: apart, or in place as NCCL defines it.
func (k Collective) layout(input []byte, send, recv int64, rank int) rankBuffers {
	size := max(send, recv, int64(len(input)))
	mem := k.room(rank, int(size)+128+k.Skew)
	fillWith(mem, guard)
	body := mem[64+k.Skew:][:size:size]
	b := rankBuffers{guarded: mem}
	if !k.InPlace || send == 0 || recv == 0 {
		b.input = k.room(rank, k.Skew+len(input))[k.Skew:]
		copy(b.input, input)
		b.output = body[:recv]
		return b
	}
	own := int64(rank) * int64(k.Count*k.Type.Size())
	switch {
	case send == recv:
		copy(body, input)
		b.input, b.output = body[:send], body[:recv]
	case send < recv:
		copy(body[own:], input)
		b.input, b.output = body[own:own+send], body[:recv]
	default:
		copy(body, input)
		b.input, b.output = body[:send], body[own:own+recv]
	}
	return b
}

func (b *rankBuffers) check() error {
	for i := range 64 {
		if b.guarded[i] != guard || b.guarded[len(b.guarded)-1-i] != guard {
			return errors.New("wrote outside its buffer")
		}
	}
	return nil
}

// putFloat writes v as an element of a float type.
func putFloat(t datatype.Type, b []byte, v float64) {
	le := binary.LittleEndian
	switch t {
	case datatype.Float16:
		le.PutUint16(b, datatype.F32ToF16(float32(v)))
	case datatype.Bfloat16:
		le.PutUint16(b, datatype.F32ToBF16(float32(v)))
	case datatype.Float32:
		le.PutUint32(b, math.Float32bits(float32(v)))
	case datatype.Float64:
		le.PutUint64(b, math.Float64bits(v))
	case datatype.Float8E4M3:
		b[0] = datatype.F32ToE4M3(float32(v))
	case datatype.Float8E5M2:
		b[0] = datatype.F32ToE5M2(float32(v))
	}
}
