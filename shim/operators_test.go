package shim_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/errdefs"
	"lightpath/shim/shimtest"
)

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
		w := shimtest.NewWorld(t, n)
		for _, kind := range reducingKinds {
			for typ := range datatype.NumTypes {
				for i, count := range []int{0, 1, 19, 5000} {
					k := shimtest.Collective{
						Kind: kind, Type: typ, Op: calls.OpPreMulSum, Root: n - 1, Count: count, InPlace: i%2 == 1,
						Scalars: shimtest.Scalars(rng, typ, n),
					}
					if err := k.Run(w, rng); err != nil {
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
	shimtest.UseEmulator(t, 4, 2, nil)
	rng := rand.New(rand.NewPCG(6, 6))
	w := shimtest.NewWorld(t, 4)
	for _, kind := range reducingKinds {
		for _, typ := range []datatype.Type{datatype.Float32, datatype.Bfloat16, datatype.Uint64} {
			k := shimtest.Collective{Kind: kind, Type: typ, Op: calls.OpPreMulSum, Root: 1, Count: 1000,
				InPlace: kind == calls.Reduce, Scalars: shimtest.Scalars(rng, typ, 4)}
			if err := k.Run(w, rng); err != nil {
				t.Errorf("%v: %v", k, err)
			}
		}
	}
	if len(circuits.Of(w.Comms[0]).Known.Plans()) == 0 {
		t.Error("no call ran on circuits")
	}
}

// TestOperators: what belongs to a communicator, and to a type, is of no use elsewhere.
func TestOperators(t *testing.T) {
	t.Setenv("LIGHTPATH_TRANSPORT", "inproc")
	a, b := shimtest.NewWorld(t, 1).Comms[0], shimtest.NewWorld(t, 1).Comms[0]
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
	if err != nil || shimtest.GetFloat(datatype.Float32, op.Scalar[:]) != 3 || op.At != nil {
		t.Errorf("immediate: %+v, %v", op, err)
	}
	if op, err = calls.FindOperator(a, later, datatype.Float32); err != nil || op.At != unsafe.Pointer(&scalar) {
		t.Errorf("later: %+v, %v", op, err)
	}
	_, err = calls.FindOperator(a, now, datatype.Float64)
	shimtest.WantError(t, err, errdefs.ErrInvalidArgument, "float", "double")
	_, err = calls.FindOperator(b, now, datatype.Float32)
	shimtest.WantError(t, err, errdefs.ErrInvalidArgument, fmt.Sprintf("op %d", now), "belongs to another")
	shimtest.WantError(t, calls.DestroyOp(b, now), errdefs.ErrInvalidArgument, "belongs to another")
	shimtest.WantError(t, calls.DestroyOp(a, int32(datatype.Sum)), errdefs.ErrInvalidArgument, "op 0")
	if err := calls.DestroyOp(a, now); err != nil {
		t.Error(err)
	}
	shimtest.WantError(t, calls.DestroyOp(a, now), errdefs.ErrInvalidArgument, "destroyed")
	_, err = calls.FindOperator(a, now, datatype.Float32)
	shimtest.WantError(t, err, errdefs.ErrInvalidArgument, "destroyed")
	_, err = calls.CreatePreMulSum(a, datatype.NumTypes, unsafe.Pointer(&scalar), false)
	shimtest.WantError(t, err, errdefs.ErrInvalidArgument, "datatype")
	_, err = calls.CreatePreMulSum(a, datatype.Float32, nil, false)
	shimtest.WantError(t, err, errdefs.ErrInvalidArgument, "scalar is NULL")
}

// TestPreMulSumAllocatesNothing: a scalar of the call's own costs the hot path nothing.
func TestPreMulSumAllocatesNothing(t *testing.T) {
	t.Setenv("LIGHTPATH_TRANSPORT", "inproc")
	w := shimtest.NewWorld(t, 1)
	in, out, scalar := []float32{1, 2}, make([]float32, 2), float32(4)
	w.AllocatesNothing(t, []calls.Call{{
		Comm: w.Comms[0], Kind: calls.AllReduce, Type: datatype.Float32, Op: calls.OpPreMulSum, Count: 2,
		Send: unsafe.Pointer(&in[0]), Recv: unsafe.Pointer(&out[0]), Scalar: unsafe.Pointer(&scalar),
	}})
	if out[1] != 8 {
		t.Errorf("%v", out)
	}
}
