package shim

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule"
	"lightpath/collectives/schedule/oracle"
	"lightpath/shim/calls"
)

var (
	oracleKinds = []calls.Kind{calls.AllReduce, calls.Broadcast, calls.Reduce, calls.AllGather, calls.ReduceScatter, calls.AllToAll, calls.Gather, calls.Scatter}
	oracleSizes = []int{0, 1, 7, 1023, 65537}
)

// collectiveCase is one collective call on all ranks.
type collectiveCase struct {
	kind    calls.Kind
	typ     datatype.Type
	op      datatype.Op
	root    int
	count   int
	inPlace bool
	skew    int      // misalignment of all buffers, bytes
	scalars [][]byte // by rank, of OpPreMulSum
	options calls.Options
	// memory is where a rank's buffers are; nil: on the heap.
	memory func(rank, n int) []byte
}

func (k collectiveCase) room(rank, n int) []byte {
	if k.memory == nil {
		return make([]byte, n)
	}
	return k.memory(rank, n)
}

// scalarOf is a rank's scalar, NULL without.
func (k collectiveCase) scalarOf(rank int) unsafe.Pointer {
	if k.scalars == nil {
		return nil
	}
	return unsafe.Pointer(unsafe.SliceData(k.scalars[rank]))
}

func (k collectiveCase) String() string {
	return fmt.Sprintf("%v %v %v root %d count %d inPlace %v skew %d", k.kind, k.typ, k.op, k.root, k.count, k.inPlace, k.skew)
}

// fill makes inputs for which every reduction is exact in its type, whatever the order:
// whole numbers up to the ranks for sums, powers of two for products, and for averages of
// floats one contribution other than zero per element.
func (k collectiveCase) fill(rng *rand.Rand, buf []byte, rank, n int) {
	size := k.typ.Size()
	switch {
	case !k.typ.Float() || !calls.Kinds[k.kind].Reduces:
		for i := range buf {
			buf[i] = byte(rng.Uint32())
		}
		return
	case k.op == datatype.Max, k.op == datatype.Min, k.op == datatype.Sum, k.op == calls.OpPreMulSum:
		for i := 0; i < len(buf); i += size {
			putFloat(k.typ, buf[i:], float64(rng.IntN(2)))
		}
	case k.op == datatype.Prod:
		for i := 0; i < len(buf); i += size {
			putFloat(k.typ, buf[i:], float64(1+rng.IntN(2)))
		}
	default:
		for i := 0; i < len(buf); i += size {
			if v := 0.0; i/size%n == rank {
				v = float64(1 + rng.IntN(3))
				putFloat(k.typ, buf[i:], v)
			}
		}
	}
}

const guard = 0xa5

// rankBuffers are one rank's memory for a case, with guard bytes round the output.
type rankBuffers struct {
	input, output []byte
	guarded       []byte
	skew          int
}

// deed is what all ranks of a world do together: the calls of each, and what must be so afterwards.
type deed struct {
	name     string
	messages bool           // the calls are sends and receives
	calls    [][]calls.Call // by rank
	check    func() error
	right    func(rank int) error // the part of check that is about one rank
}

// everyRank has check say of n ranks what right says of one.
func (d *deed) everyRank(n int, right func(rank int) error) {
	d.right = right
	d.check = func() error {
		for r := range n {
			if err := right(r); err != nil {
				return fmt.Errorf("rank %d: %w", r, err)
			}
		}
		return nil
	}
}

// run has every rank of w make its calls as one group, after the delay for the rank, and checks.
func (d *deed) run(w *world, delay func(rank int) time.Duration) error {
	for r, err := range concurrently(w.t, len(w.comms), func(r int) error {
		time.Sleep(delay(r))
		return Run(d.calls[r])
	}) {
		if err != nil {
			return fmt.Errorf("rank %d: %w", r, err)
		}
	}
	return d.check()
}

func noDelay(int) time.Duration { return 0 }

// run executes the case on every rank of w and compares with the oracle.
func (k collectiveCase) run(w *world, rng *rand.Rand) error {
	d, err := k.prepare(w, rng)
	if err != nil {
		return err
	}
	return d.run(w, noDelay)
}

// prepare makes the buffers and the calls of all ranks of w, and asks the oracle.
func (k collectiveCase) prepare(w *world, rng *rand.Rand) (*deed, error) {
	n := len(w.comms)
	inputs := make([][]byte, n)
	bufs := make([]rankBuffers, n)
	d := &deed{name: k.String(), calls: make([][]calls.Call, n)}
	for r := range n {
		call := calls.Call{
			Comm: w.comms[r], Kind: k.kind, Type: k.typ, Op: k.op, Peer: int32(k.root), Count: uint64(k.count),
			Scalar: k.scalarOf(r), Options: k.options,
		}
		_ = call.Resolve()
		send, recv := call.Extents()
		// Every rank gets full buffers; those that the call gives it none of stay untouched.
		block := int64(k.count * k.typ.Size())
		inputs[r] = make([]byte, calls.Blocks(calls.Kinds[k.kind].Send, n)*block)
		k.fill(rng, inputs[r], r, n)
		b := &bufs[r]
		*b = k.layout(inputs[r], send, recv, r)
		call.Send, call.Recv = unsafe.Pointer(unsafe.SliceData(b.input)), unsafe.Pointer(unsafe.SliceData(b.output))
		d.calls[r] = []calls.Call{call}
	}
	op, summands := k.op, inputs
	if k.op == calls.OpPreMulSum {
		op, summands = datatype.Sum, make([][]byte, n)
		for r := range n {
			summands[r] = product(k.typ, inputs[r], k.scalars[r])
		}
	}
	want, err := oracle.Expected(oracle.Call{Collective: calls.Kinds[k.kind].Collective, Type: k.typ, Op: op, Root: k.root}, summands)
	if err != nil {
		return nil, err
	}
	d.everyRank(n, func(r int) error { return k.compare(&bufs[r], inputs[r], want[r]) })
	return d, nil
}

// compare holds what a rank has got against what it should have, nil where the call gives it nothing.
func (k collectiveCase) compare(b *rankBuffers, input, want []byte) error {
	if k.count > 0 && want != nil && !bytes.Equal(b.output, want) {
		at := 0
		for at < len(want) && b.output[at] == want[at] {
			at++
		}
		return fmt.Errorf("element %d of %d differs: % x, want % x", at/k.typ.Size(), len(want)/k.typ.Size(),
			b.output[at:min(at+8, len(want))], want[at:min(at+8, len(want))])
	}
	if err := b.check(); err != nil {
		return err
	}
	if !k.inPlace && !bytes.Equal(b.input, input[:len(b.input)]) {
		return errors.New("input was written")
	}
	return nil
}

// layout places a rank's buffers: apart, or as NCCL defines in place.
func (k collectiveCase) layout(input []byte, send, recv int64, rank int) rankBuffers {
	size := max(send, recv, int64(len(input)))
	mem := k.room(rank, int(size)+128+k.skew)
	for i := range mem {
		mem[i] = guard
	}
	body := mem[64+k.skew:][:size:size]
	b := rankBuffers{guarded: mem, skew: k.skew}
	if !k.inPlace || send == 0 || recv == 0 {
		b.input = k.room(rank, k.skew+len(input))[k.skew:]
		copy(b.input, input)
		b.output = body[:recv]
		return b
	}
	own := int64(rank) * int64(k.count*k.typ.Size())
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

// TestOracle samples every dimension: collective, type, operator, root, size, in place or
// not, alignment, ranks, transport and number of planes.
func TestOracle(t *testing.T) {
	for _, transport := range []string{"inproc", "shm", "tcp"} {
		for _, n := range []int{1, 2, 3, 5, 8} {
			if testing.Short() && n > 3 {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d", transport, n), func(t *testing.T) {
				t.Setenv("LIGHTPATH_TRANSPORT", transport)
				t.Setenv("LIGHTPATH_PLANES", fmt.Sprint(1+n%3))
				rng := rand.New(rand.NewPCG(uint64(n), uint64(len(transport))))
				w := newWorld(t, n)
				for _, size := range oracleSizes {
					for _, kind := range oracleKinds {
						k := collectiveCase{
							kind: kind, typ: datatype.Type(rng.IntN(int(datatype.NumTypes))), op: datatype.Op(rng.IntN(int(datatype.NumOps))),
							root: rng.IntN(n), count: size, inPlace: rng.IntN(3) == 0, skew: rng.IntN(2) * rng.IntN(8),
						}
						if err := k.run(w, rng); err != nil {
							t.Fatalf("%v: %v", k, err)
						}
					}
				}
			})
		}
	}
}

// TestEveryTypeAndOperator is exhaustive in what a kernel is chosen by, in programs and through
// shared memory: in one exchange, and where ranks reduce a part each.
func TestEveryTypeAndOperator(t *testing.T) {
	for _, transport := range []string{"inproc", "shm"} {
		for _, count := range []int{19, 40009} {
			if transport == "inproc" && count > 19 {
				continue // the program is the same
			}
			t.Run(fmt.Sprintf("%s/%d", transport, count), func(t *testing.T) {
				t.Setenv("LIGHTPATH_TRANSPORT", transport)
				everyTypeAndOperator(t, count)
			})
		}
	}
}

func everyTypeAndOperator(t *testing.T, count int) {
	rng := rand.New(rand.NewPCG(1, 1))
	w := newWorld(t, 3)
	for _, kind := range oracleKinds {
		if count > 1000 && kind != calls.AllReduce && kind != calls.Reduce {
			continue
		}
		for typ := range datatype.NumTypes {
			for op := range datatype.NumOps {
				if op > 0 && !calls.Kinds[kind].Reduces {
					continue
				}
				k := collectiveCase{kind: kind, typ: typ, op: op, root: 1, count: count, inPlace: op%2 == 1}
				if err := k.run(w, rng); err != nil {
					t.Errorf("%v: %v", k, err)
				}
			}
		}
	}
}

// TestEveryAlgorithm runs each algorithm by its override.
func TestEveryAlgorithm(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	for _, kind := range oracleKinds {
		coll := calls.Kinds[kind].Collective
		for _, name := range append(schedule.Algorithms(coll), "bruck:3", "swing:2x2", "pairwise:2@3.1.2", "rabenseifner@1.0") {
			if !schedule.Defined(coll, name, 4) {
				continue
			}
			t.Run(coll.String()+"/"+name, func(t *testing.T) {
				t.Setenv("LIGHTPATH_TRANSPORT", "inproc")
				t.Setenv("LIGHTPATH_ALGORITHM", coll.String()+":"+name)
				w := newWorld(t, 4)
				for _, inPlace := range []bool{false, true} {
					k := collectiveCase{kind: kind, typ: datatype.Int32, root: 2, count: 101, inPlace: inPlace}
					if err := k.run(w, rng); err != nil {
						t.Errorf("%v: %v", k, err)
					}
				}
			})
		}
	}
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
