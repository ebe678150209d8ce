package protocols

import (
	"os"
	"slices"
	"strings"
	"testing"

	"lightpath/bench/protocols/explore"
	"lightpath/plans/circuit"
)

// TestExplore enumerates every order of messages, and every moment of a crash, in small worlds.
func TestExplore(t *testing.T) {
	long := os.Getenv("LIGHTPATH_TEST_LONG") != ""
	pair := func(operations int) smallComm { return smallComm{[]int{0, 1}, operations, nil} }
	whole := func(operations int) smallComm { return smallComm{[]int{0, 1, 2}, operations, nil} }
	part := smallComm{[]int{0, 1}, 1, nil}
	calls := func(shapes ...int) smallComm { return smallComm{[]int{0, 1}, len(shapes), shapes} }
	// by returns a world of ranks that call two communicators in an order of their program. The choices begin when each
	// rank has called each twice.
	by := func(a, b []int, order ...string) smallConfig {
		cfg := smallConfig{warm: 2, repeats: 2}
		for _, ports := range [][]int{a, b} {
			id := byte('A' + len(cfg.comms))
			cfg.comms = append(cfg.comms, smallComm{ports, strings.Count(order[ports[0]], string(id)), nil})
		}
		for _, o := range order {
			var list []int
			for _, c := range o {
				list = append(list, int(c-'A'))
			}
			cfg.order = append(cfg.order, list)
		}
		return cfg
	}
	both := []int{0, 1}
	// side returns a world of two communicators side by side. The choices begin with the last call of each. If it moves no
	// circuits, each asks for the plane again.
	side := func(a, b []int) smallConfig {
		return smallConfig{share: true, warm: 2, busy: a[2] == 0, comms: []smallComm{{[]int{0, 1}, len(a), a},
			{[]int{2, 3}, len(b), b}}}
	}
	// overlapping returns a world of two communicators with one port in common, so the controller makes circuits for each
	// operation. Each has made one; the second one makes so many.
	overlapping := func(second int) smallConfig {
		return smallConfig{share: true, warm: 1, busy: true,
			comms: []smallComm{calls(0, 0), {[]int{1, 2}, second, make([]int, second)}}}
	}
	for name, k := range map[string]struct {
		long bool
		cfg  smallConfig
	}{
		"tickets: two communicators": {cfg: smallConfig{comms: []smallComm{pair(1), pair(1)}}},
		"tickets: takeover":          {cfg: smallConfig{comms: []smallComm{pair(1)}, crash: true}},
		"tickets: takeover while planes are given back": {cfg: smallConfig{comms: []smallComm{pair(2)}, warm: 1,
			crashed: true, busy: true}},
		"tickets: loop":                {cfg: smallConfig{comms: []smallComm{pair(2)}}},
		"tickets: two planes":          {true, smallConfig{planes: 2, comms: []smallComm{pair(1)}}},
		"tickets: planes change hands": {true, smallConfig{comms: []smallComm{pair(2), pair(1)}, busy: true}},
		"tickets: takeover in a loop":  {true, smallConfig{comms: []smallComm{pair(2)}, crash: true}},
		"tickets: takeover, two communicators": {true, smallConfig{comms: []smallComm{pair(1), pair(1)},
			crash: true}},
		"ahead: loop":               {true, smallConfig{comms: []smallComm{calls(0, 0, 0)}, warm: 2, repeats: 2}},
		"ahead: from the beginning": {true, smallConfig{comms: []smallComm{calls(0, 0, 0)}, warm: 1, repeats: 2}},
		"ahead: another call":       {cfg: smallConfig{comms: []smallComm{calls(0, 0, 1)}, warm: 2, repeats: 2}},
		"ahead: prepared": {cfg: smallConfig{comms: []smallComm{calls(0, 0, 1)}, warm: 2, repeats: 2,
			prepare: true}},
		"ahead: takeover": {true, smallConfig{comms: []smallComm{calls(0, 0, 0)}, warm: 2, crash: true,
			repeats: 2}},
		"shared: loops": {cfg: side([]int{0, 0, 0}, []int{0, 0, 0})},
		"shared: common ports": {cfg: smallConfig{share: true, warm: 2, busy: true,
			comms: []smallComm{calls(0, 0, 0), calls(0, 0, 0)}}},
		"shared: the controller makes circuits": {cfg: overlapping(1)},
		"shared: both need circuits":            {true, overlapping(2)},
		"shared: one moves":                     {true, side([]int{0, 0, 1}, []int{0, 0, 0})},
		"shared: both move":                     {true, side([]int{0, 0, 1}, []int{0, 0, 1})},
		"order: by turns":                       {true, by(both, both, "ABABA", "ABABA")},
		"order: another order":                  {cfg: by(both, both, "ABABB", "ABABB")},
		"order: another one of one rank":        {true, by(both, []int{1, 2}, "AAA", "ABABBA", "BBB")},
		"leftover: part":                        {cfg: smallConfig{comms: []smallComm{whole(0), part}}},
		"leftover: part, after a crash":         {true, smallConfig{comms: []smallComm{whole(0), part}, crash: true}},
		"leftover: part and whole at one time":  {true, smallConfig{comms: []smallComm{whole(1), part}}},
	} {
		t.Run(name, func(t *testing.T) {
			if k.long && !long {
				t.Skip("set LIGHTPATH_TEST_LONG")
			}
			cfg := k.cfg
			cfg.ports = max(len(cfg.order), len(cfg.comms[0].ports))
			if cfg.share {
				cfg.ports = 4
			}
			cfg.planes = max(cfg.planes, 1)
			if cfg.start = circuit.AllDark(cfg.ports); len(cfg.comms[0].ports) > 2 {
				// A circuit leads into the part from outside.
				cfg.start = circuit.Shift(cfg.ports, 1)
			}
			cfg.together, cfg.beside = new(bool), new(bool)
			exploreSmall(t, cfg)
			side := cfg.share && cfg.comms[1].ports[0] > 1
			moves := side && slices.Contains(cfg.comms[0].shapes, 1)
			if side != *cfg.together || moves != *cfg.beside {
				t.Errorf("the communicators share a plane: %v, and move it: %v", *cfg.together, *cfg.beside)
			}
		})
	}
}

// exploreSmall searches all runs of a world, and reports the steps to the first violation.
func exploreSmall(t *testing.T, cfg smallConfig) {
	t.Helper()
	start := smallStart(cfg)
	x, err := explore.Run(start)
	if err != nil {
		t.Fatal(err)
	}
	if x.Error == nil {
		t.Logf("%d states, %d runs, at most %d steps", x.States, x.Runs, x.Depth)
		return
	}
	t.Errorf("%v (after %d steps; %d states, %d runs)", x.Error, len(x.Choices), x.States, x.Runs)
	if err := x.Name(start); err != nil {
		t.Error(err)
	}
	for i, s := range x.Trace {
		t.Logf("%3d %s", i, s)
	}
}
