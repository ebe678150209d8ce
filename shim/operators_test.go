package shim_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/internal/assert"
	"lightpath/shim/calls"
	"lightpath/shim/errdefs"
	"lightpath/shim/shimtest"
)

// TestPreMulSum: every type under every reducing collective, each rank with a scalar of its own, on one rank and
// several, of no, one and many elements. The tests of path/host have all operators on every path.
func TestPreMulSum(t *testing.T) {
	t.Setenv("LIGHTPATH_TRANSPORT", "inproc")
	rng := rand.New(rand.NewPCG(5, 5))
	for _, n := range []int{1, 4} {
		w := shimtest.NewWorld(t, n)
		for _, kind := range []calls.Kind{calls.AllReduce, calls.Reduce, calls.ReduceScatter} {
			for typ := range datatype.NumTypes {
				for i, count := range []int{0, 1, 19, 5000} {
					k := shimtest.Collective{
						Kind: kind, Type: typ, Op: calls.OpPreMulSum, Root: n - 1, Count: count, InPlace: i%2 == 1,
						Scalars: shimtest.Scalars(rng, typ, n),
					}
					assert.NoError(t, k.Run(w, rng))
				}
			}
		}
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
