package shim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"lightpath/collectives/datatype"
	"lightpath/shim/calls"
)

// TestEveryTypeAndOperatorOnEveryPath holds all collectives of every type, under every operator that it
// has, those of users included, against the oracle on each way that calls can go, as groups of
// all calls of a type. LIGHTPATH_TEST_LONG has it leave out none.
func TestEveryTypeAndOperatorOnEveryPath(t *testing.T) {
	circuits := func(t *testing.T) {
		lightFabric(t, 3, 2, nil)
		t.Setenv("LIGHTPATH_PLANNER", "perstep")
		t.Setenv("LIGHTPATH_PLAN_WAIT", "1")
	}
	for _, path := range []struct {
		name  string
		ranks int
		count int
		setup func(t *testing.T)
		down  uint64 // planes out of service
	}{
		{"arena, one exchange", 3, 19, func(t *testing.T) { t.Setenv("LIGHTPATH_TRANSPORT", "shm") }, 0},
		{"arena, parts and single copies", 3, 22_501, func(t *testing.T) { t.Setenv("LIGHTPATH_TRANSPORT", "shm") }, 0},
		{"arena, two ranks", 2, 16_411, func(t *testing.T) { t.Setenv("LIGHTPATH_TRANSPORT", "shm") }, 0},
		{"one process", 3, 1023, func(t *testing.T) { t.Setenv("LIGHTPATH_TRANSPORT", "inproc") }, 0},
		{"tcp, two planes", 3, 1023, func(t *testing.T) {
			t.Setenv("LIGHTPATH_TRANSPORT", "tcp")
			t.Setenv("LIGHTPATH_PLANES", "2")
		}, 0},
		{"circuits", 3, 101, circuits, 0},
		{"circuits, one plane down", 3, 101, circuits, 2},
		{"circuits, all planes down", 3, 101, circuits, 3},
	} {
		t.Run(path.name, func(t *testing.T) {
			path.setup(t)
			rng := rand.New(rand.NewPCG(uint64(path.count), 11))
			w := newWorld(t, path.ranks)
			if path.down > 0 {
				var out outage
				out.over(w)
				out.down.Store(path.down)
			}
			step := datatype.Type(1)
			if path.count > 10_000 && os.Getenv("LIGHTPATH_TEST_LONG") == "" {
				step = 4 // the oracle is slow: types of every width, others for other ranks
			}
			for typ := datatype.Type(path.ranks) % step; typ < datatype.NumTypes; typ += step {
				if err := everyCallOf(typ, path.count, w, rng); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// everyCallOf makes all calls of a type in one group.
func everyCallOf(typ datatype.Type, count int, w *world, rng *rand.Rand) error {
	n := len(w.comms)
	group := &deed{calls: make([][]calls.Call, n)}
	var deeds []*deed
	for _, kind := range oracleKinds {
		for op := datatype.Op(0); op <= calls.OpPreMulSum; op++ {
			k := collectiveCase{kind: kind, typ: typ, op: op, root: n - 1, count: count, inPlace: op%2 == 1}
			switch {
			case op > 0 && !calls.Kinds[kind].Reduces, op >= datatype.NumOps && op != calls.OpPreMulSum:
				continue
			case op == calls.OpPreMulSum:
				k.scalars = scalars(rng, typ, n)
			}
			d, err := k.prepare(w, rng)
			if err != nil {
				return err
			}
			deeds = append(deeds, d)
			for r := range n {
				group.calls[r] = append(group.calls[r], d.calls[r]...)
			}
		}
	}
	group.check = func() error {
		var wrong []error
		for _, d := range deeds {
			if err := d.check(); err != nil {
				wrong = append(wrong, fmt.Errorf("%s: %w", d.name, err))
			}
		}
		return errors.Join(wrong...)
	}
	return group.run(w, noDelay)
}
