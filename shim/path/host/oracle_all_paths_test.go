package host_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"lightpath/collectives/datatype"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/shimtest"
)

// TestEveryTypeAndOperatorOnEveryPath compares all collectives of every type with the oracle. It tries every operator
// of the type, including operators of users, on each path of calls. A group has all calls of a type.
// LIGHTPATH_TEST_LONG has it leave out none.
func TestEveryTypeAndOperatorOnEveryPath(t *testing.T) {
	onCircuits := func(t *testing.T) {
		shimtest.UseEmulator(t, 3, 2, nil)
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
		{"circuits", 3, 101, onCircuits, 0},
		{"circuits, one plane down", 3, 101, onCircuits, 2},
		{"circuits, all planes down", 3, 101, onCircuits, 3},
	} {
		t.Run(path.name, func(t *testing.T) {
			path.setup(t)
			rng := rand.New(rand.NewPCG(uint64(path.count), 11))
			w := shimtest.NewWorld(t, path.ranks)
			if path.down > 0 {
				var out shimtest.Outage
				out.Apply(w)
				out.Down.Store(path.down)
			}
			step := datatype.Type(1)
			if (path.count > 10_000 || testing.Short()) && os.Getenv("LIGHTPATH_TEST_LONG") == "" {
				step = 4 // the oracle is slow: types of every width, others for other ranks
			}
			for typ := datatype.Type(path.ranks) % step; typ < datatype.NumTypes; typ += step {
				if err := everyCallOf(typ, path.count, w, rng); err != nil {
					t.Fatal(err)
				}
			}
			if path.name == "circuits" && len(circuits.Of(w.Comms[0]).Known.Plans()) == 0 {
				t.Error("no call ran on circuits")
			}
		})
	}
}

// everyCallOf makes all calls of a type in one group.
func everyCallOf(typ datatype.Type, count int, w *shimtest.World, rng *rand.Rand) error {
	n := len(w.Comms)
	group := &shimtest.Operation{Calls: make([][]calls.Call, n)}
	var deeds []*shimtest.Operation
	for _, kind := range shimtest.OracleKinds {
		for op := datatype.Op(0); op <= calls.OpPreMulSum; op++ {
			k := shimtest.Collective{Kind: kind, Type: typ, Op: op, Root: n - 1, Count: count, InPlace: op%2 == 1}
			switch {
			case op > 0 && !calls.Kinds[kind].Reduces, op >= datatype.NumOps && op != calls.OpPreMulSum:
				continue
			case op == calls.OpPreMulSum:
				k.Scalars = shimtest.Scalars(rng, typ, n)
			}
			d, err := k.Prepare(w, rng)
			if err != nil {
				return err
			}
			deeds = append(deeds, d)
			for r := range n {
				group.Calls[r] = append(group.Calls[r], d.Calls[r]...)
			}
		}
	}
	group.Check = func() error {
		var wrong []error
		for _, d := range deeds {
			if err := d.Check(); err != nil {
				wrong = append(wrong, fmt.Errorf("%s: %w", d.Name, err))
			}
		}
		return errors.Join(wrong...)
	}
	return group.Run(w, shimtest.NoDelay)
}
