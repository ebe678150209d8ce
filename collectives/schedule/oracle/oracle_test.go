package oracle

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule"
	"lightpath/internal/require"
)

func i32(v ...int32) []byte {
	var b []byte
	for _, x := range v {
		b = binary.NativeEndian.AppendUint32(b, uint32(x))
	}
	return b
}

// TestExpected compares results for two ranks with results worked out by hand.
func TestExpected(t *testing.T) {
	a, b := i32(7, -5), i32(2, 3)
	for _, c := range []struct {
		coll schedule.Collective
		op   datatype.Op
		root int
		want [][]byte
	}{
		{schedule.AllReduce, datatype.Sum, 0, [][]byte{i32(9, -2), i32(9, -2)}},
		{schedule.AllReduce, datatype.Prod, 0, [][]byte{i32(14, -15), i32(14, -15)}},
		{schedule.AllReduce, datatype.Max, 0, [][]byte{i32(7, 3), i32(7, 3)}},
		{schedule.AllReduce, datatype.Min, 0, [][]byte{i32(2, -5), i32(2, -5)}},
		{schedule.AllReduce, datatype.Avg, 0, [][]byte{i32(4, -1), i32(4, -1)}},
		{schedule.Reduce, datatype.Sum, 1, [][]byte{nil, i32(9, -2)}},
		{schedule.ReduceScatter, datatype.Sum, 0, [][]byte{i32(9), i32(-2)}},
		{schedule.Broadcast, datatype.Sum, 1, [][]byte{b, b}},
		{schedule.AllGather, datatype.Sum, 0, [][]byte{i32(7, -5, 2, 3), i32(7, -5, 2, 3)}},
		{schedule.Gather, datatype.Sum, 1, [][]byte{nil, i32(7, -5, 2, 3)}},
		{schedule.Scatter, datatype.Sum, 1, [][]byte{i32(2), i32(3)}},
		{schedule.AllToAll, datatype.Sum, 0, [][]byte{i32(7, 2), i32(-5, 3)}},
		{schedule.SendRecv, datatype.Sum, 0, [][]byte{b, a}},
	} {
		got, err := Expected(Call{c.coll, datatype.Int32, c.op, c.root}, [][]byte{a, b})
		if err != nil || !equal(got, c.want) {
			t.Errorf("%v %v root %d: %v, %v; want %v", c.coll, c.op, c.root, got, err, c.want)
		}
	}
}

func equal(a, b [][]byte) bool {
	for r := range a {
		if !bytes.Equal(a[r], b[r]) || (a[r] == nil) != (b[r] == nil) {
			return false
		}
	}
	return len(a) == len(b)
}

func TestExpectedErrors(t *testing.T) {
	four := make([]byte, 4)
	for _, c := range []struct {
		call Call
		in   [][]byte
	}{
		{Call{Collective: schedule.NumCollectives}, [][]byte{four}},
		{Call{Type: datatype.NumTypes}, [][]byte{four}},
		{Call{Op: datatype.NumOps}, [][]byte{four}},
		{Call{Root: 1}, [][]byte{four}},
		{Call{}, nil},
		{Call{}, [][]byte{four, four[:3]}},
		{Call{Type: datatype.Int64}, [][]byte{four}},
		{Call{Collective: schedule.AllToAll, Type: datatype.Int32}, [][]byte{four, four}},
	} {
		if _, err := Expected(c.call, c.in); !errors.Is(err, ErrInput) {
			t.Errorf("%+v of %v: %v", c.call, c.in, err)
		}
	}
}

// TestOrderedMatchesExpected compares both for every algorithm, type and operator, with numbers for which the order
// does not matter.
func TestOrderedMatchesExpected(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	for c := range schedule.NumCollectives {
		for _, alg := range schedule.Algorithms(c) {
			for _, n := range []int{1, 2, 4, 5, 8} {
				s, err := schedule.Build(c, alg, n, n-1)
				if errors.Is(err, schedule.ErrRanks) {
					continue
				}
				require.NoError(t, err)
				for ty := range datatype.NumTypes {
					for op := range datatype.NumOps {
						if op == datatype.Avg && ty.Float() && n == 5 {
							continue // a fifth of a whole number is not exact
						}
						call := Call{c, ty, op, s.Root}
						in := make([][]byte, n)
						for r := range in {
							for range 7 * s.Blocks[schedule.Input] {
								in[r] = appendNumber(in[r], ty, number(rng, ty, op))
							}
						}
						want, err := Expected(call, in)
						require.NoError(t, err)
						got, err := Ordered(s, ty, op, in)
						if err != nil || !equal(got, want) {
							t.Fatalf("%v %s n=%d %v %v: %v, %v; want %v", c, alg, n, ty, op, got, err, want)
						}
					}
				}
			}
		}
	}
}

// number returns a random number. Combinations of 8 such numbers are exact in the type, in any order.
func number(rng *rand.Rand, t datatype.Type, op datatype.Op) int {
	switch {
	case op == datatype.Prod:
		return 1 + rng.IntN(2)
	case t.Size() == 1:
		return rng.IntN(2)
	default:
		return rng.IntN(20)
	}
}

func appendNumber(b []byte, t datatype.Type, v int) []byte {
	if t.Float() {
		return appendFloat(b, t, float64(v))
	}
	return appendInt(b, t, int64(v))
}

// TestOrderMatters checks that Ordered distinguishes algorithms that add in different orders: adding 1 to 2^24 loses
// the 1.
func TestOrderMatters(t *testing.T) {
	var in [][]byte
	for _, v := range []float32{1, 1 << 24, 1, -(1 << 24)} {
		in = append(in, binary.NativeEndian.AppendUint32(nil, math.Float32bits(v)))
	}
	results := map[float32]bool{}
	for _, alg := range []string{"binomial", "direct"} {
		s, err := schedule.Build(schedule.Reduce, alg, 4, 0)
		require.NoError(t, err)
		out, err := Ordered(s, datatype.Float32, datatype.Sum, in)
		require.NoError(t, err)
		results[math.Float32frombits(binary.NativeEndian.Uint32(out[0]))] = true
	}
	// (1 + 2^24) + (1 - 2^24) = 2^24 + (1 - 2^24) = 1; ((1 + 2^24) + 1) - 2^24 = 0.
	if !results[1] || !results[0] || len(results) != 2 {
		t.Errorf("results %v", results)
	}
}
