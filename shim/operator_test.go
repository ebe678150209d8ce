package shim

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/errdefs"
)

// product multiplies every element by the scalar: integers modulo their width, by way of
// unbounded ones, and floats that are small enough to be exact.
func product(t datatype.Type, buf, scalar []byte) []byte {
	out, size := make([]byte, len(buf)), t.Size()
	for i := 0; i < len(buf); i += size {
		if t.Float() {
			putFloat(t, out[i:], getFloat(t, buf[i:])*getFloat(t, scalar))
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

func getFloat(t datatype.Type, b []byte) float64 {
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

// scalars returns a scalar per rank, unaligned: floats that keep sums exact, integers of any
// bits.
func scalars(rng *rand.Rand, t datatype.Type, n int) [][]byte {
	all := make([][]byte, n)
	for r := range all {
		all[r] = make([]byte, 1+t.Size())[1:]
		if t.Float() {
			putFloat(t, all[r], []float64{-1, 0.5, 2, 1}[rng.IntN(4)])
			continue
		}
		for i := range all[r] {
			all[r][i] = byte(rng.Uint32())
		}
	}
	return all
}

var reducingKinds = []calls.Kind{calls.AllReduce, calls.Reduce, calls.ReduceScatter}

// TestPreMulSum: every type under every reducing collective, each rank with a scalar of its own,
// on one rank and several.
func TestPreMulSum(t *testing.T) {
	for _, transport := range []string{"inproc", "shm"} {
		t.Run(transport, func(t *testing.T) { preMulSum(t, transport) })
	}
}

func preMulSum(t *testing.T, transport string) {
	t.Setenv("LIGHTPATH_TRANSPORT", transport)
	rng := rand.New(rand.NewPCG(5, 5))
	for _, n := range []int{1, 3, 4} {
		w := newWorld(t, n)
		for _, kind := range reducingKinds {
			for typ := range datatype.NumTypes {
				for i, count := range []int{0, 1, 19, 5000} {
					k := collectiveCase{
						kind: kind, typ: typ, op: calls.OpPreMulSum, root: n - 1, count: count, inPlace: i%2 == 1, scalars: scalars(rng, typ, n),
					}
					if err := k.run(w, rng); err != nil {
						t.Errorf("%d ranks, %v: %v", n, k, err)
					}
				}
			}
		}
	}
}

// TestPreMulSumOnCircuits: the same under plans.
func TestPreMulSumOnCircuits(t *testing.T) {
	t.Setenv("LIGHTPATH_PLANNER", "perstep")
	t.Setenv("LIGHTPATH_PLAN_WAIT", "1")
	lightFabric(t, 4, 2, nil)
	rng := rand.New(rand.NewPCG(6, 6))
	w := newWorld(t, 4)
	for _, kind := range reducingKinds {
		for _, typ := range []datatype.Type{datatype.Float32, datatype.Bfloat16, datatype.Uint64} {
			k := collectiveCase{kind: kind, typ: typ, op: calls.OpPreMulSum, root: 1, count: 1000, inPlace: kind == calls.Reduce, scalars: scalars(rng, typ, 4)}
			if err := k.run(w, rng); err != nil {
				t.Errorf("%v: %v", k, err)
			}
		}
	}
	if len(circuits.Of(w.comms[0]).Known.Plans()) == 0 {
		t.Error("no call ran on circuits")
	}
}

// TestOperators: what belongs to a communicator, and to a type, is of no use elsewhere.
func TestOperators(t *testing.T) {
	t.Setenv("LIGHTPATH_TRANSPORT", "inproc")
	a, b := newWorld(t, 1).comms[0], newWorld(t, 1).comms[0]
	scalar := float32(3)
	now, err := calls.CreatePreMulSum(a, datatype.Float32, unsafe.Pointer(&scalar), false)
	if err != nil || now < int32(datatype.NumOps) {
		t.Fatal(now, err)
	}
	later, err := calls.CreatePreMulSum(a, datatype.Float32, unsafe.Pointer(&scalar), true)
	if err != nil || later == now {
		t.Fatal(later, err)
	}
	scalar = 5
	op, err := calls.FindOperator(a, now, datatype.Float32)
	if err != nil || getFloat(datatype.Float32, op.Scalar[:]) != 3 || op.At != nil {
		t.Errorf("immediate: %+v, %v", op, err)
	}
	if op, err = calls.FindOperator(a, later, datatype.Float32); err != nil || op.At != unsafe.Pointer(&scalar) {
		t.Errorf("later: %+v, %v", op, err)
	}
	_, err = calls.FindOperator(a, now, datatype.Float64)
	wantError(t, err, errdefs.ErrInvalidArgument, "float", "double")
	_, err = calls.FindOperator(b, now, datatype.Float32)
	wantError(t, err, errdefs.ErrInvalidArgument, fmt.Sprintf("op %d", now), "belongs to another")
	wantError(t, calls.DestroyOp(b, now), errdefs.ErrInvalidArgument, "belongs to another")
	wantError(t, calls.DestroyOp(a, int32(datatype.Sum)), errdefs.ErrInvalidArgument, "op 0")
	if err := calls.DestroyOp(a, now); err != nil {
		t.Error(err)
	}
	wantError(t, calls.DestroyOp(a, now), errdefs.ErrInvalidArgument, "destroyed")
	_, err = calls.FindOperator(a, now, datatype.Float32)
	wantError(t, err, errdefs.ErrInvalidArgument, "destroyed")
	_, err = calls.CreatePreMulSum(a, datatype.NumTypes, unsafe.Pointer(&scalar), false)
	wantError(t, err, errdefs.ErrInvalidArgument, "datatype")
	_, err = calls.CreatePreMulSum(a, datatype.Float32, nil, false)
	wantError(t, err, errdefs.ErrInvalidArgument, "scalar is NULL")
}

// TestPreMulSumAllocatesNothing: a scalar of the call's own costs the hot path nothing.
func TestPreMulSumAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	t.Setenv("LIGHTPATH_TRANSPORT", "inproc")
	c := newWorld(t, 1).comms[0]
	in, out, scalar := []float32{1, 2}, make([]float32, 2), float32(4)
	calls := []calls.Call{{
		Comm: c, Kind: calls.AllReduce, Type: datatype.Float32, Op: calls.OpPreMulSum, Count: 2,
		Send: unsafe.Pointer(&in[0]), Recv: unsafe.Pointer(&out[0]), Scalar: unsafe.Pointer(&scalar),
	}}
	if n := testing.AllocsPerRun(100, func() {
		if err := Run(calls); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations per call", n)
	}
	if out[1] != 8 {
		t.Errorf("%v", out)
	}
}
