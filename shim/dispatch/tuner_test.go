package dispatch

import (
	"errors"
	"reflect"
	"testing"

	"lightpath/collectives/schedule"
	"lightpath/internal/assert"
	"lightpath/shim/comm"
	"lightpath/shim/control"
)

// scripted is a tuner that answers by a function.
type scripted func(size int64, costs *Costs)

func (f scripted) Name() string { return "scripted" }
func (f scripted) Close()       {}
func (f scripted) Ask(_ schedule.Collective, size int64, costs *Costs) error {
	f(size, costs)
	return nil
}

// TestAsk: the answers of a tuner, in ranges of bytes of a block.
func TestAsk(t *testing.T) {
	lower := func(costs *Costs, algorithm int) { costs[algorithm][1] = 100 }
	for name, c := range map[string]struct {
		coll    schedule.Collective
		tuner   scripted
		want    []tuned
		unknown []string
	}{
		"nothing":                {schedule.AllReduce, func(int64, *Costs) {}, nil, nil},
		"one protocol is slower": {schedule.AllReduce, func(_ int64, costs *Costs) { costs[ring][2] *= 2 }, nil, nil},
		"ring is forbidden": {schedule.Broadcast, func(_ int64, costs *Costs) { costs[ring] = [3]float32{-1, -1, -1} },
			[]tuned{{schedule.Broadcast, 0, anySize, "double-binary-tree"}}, nil},
		"with a gap": {schedule.AllReduce, func(size int64, costs *Costs) {
			if size <= 1024 {
				lower(costs, tree)
			} else if size > 4096 {
				lower(costs, ring)
			}
		}, []tuned{{schedule.AllReduce, 0, 1024, "double-binary-tree"}, {schedule.AllReduce, 4097, anySize, "ring"}}, nil},
		"bytes of all ranks": {schedule.AllGather, func(size int64, costs *Costs) {
			if size <= 1024 {
				lower(costs, pat)
			}
		}, []tuned{{schedule.AllGather, 0, 341, "bruck"}}, nil},
		"not here": {schedule.AllGather, func(_ int64, costs *Costs) { lower(costs, tree) }, nil, []string{"TREE"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, unknown, err := ask(c.tuner, c.coll, 3)
			if err != nil || !reflect.DeepEqual(got, c.want) || !reflect.DeepEqual(unknown, c.unknown) {
				t.Errorf("got %v, %v, %v, want %v, %v", got, unknown, err, c.want, c.unknown)
			}
		})
	}
}

// TestAdopt: sizes without an answer have the usual choices, and answers that are no algorithms are refused.
func TestAdopt(t *testing.T) {
	c := comm.New(comm.Identity{Ranks: 3})
	assert.NoError(t, Adopt(c, "tcp", []byte(`[{"Collective":0,"Min":1025,"Max":4096,"Algorithm":"ring"}]`)))
	for block, want := range map[int64]string{
		1024: "recursive-doubling-xor", 1025: "ring", 4096: "ring", 4097: "recursive-doubling-xor",
	} {
		if got := Choose(schedule.AllReduce, block, 3, PacketsOf(c), nil); got != want {
			t.Errorf("%d bytes: %s, want %s", block, got, want)
		}
	}
	for _, body := range []string{"{", `[{"Collective":99,"Algorithm":"ring"}]`, `[{"Collective":0,"Algorithm":"rung"}]`} {
		if err := Adopt(c, "tcp", []byte(body)); !errors.Is(err, control.ErrMessage) {
			t.Errorf("%s: %v", body, err)
		}
	}
}
