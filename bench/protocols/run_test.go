package protocols

import (
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/plans/circuit"
	"lightpath/shim/circuits"
	"lightpath/shim/control"
	"lightpath/shim/ticket"
)

// TestSimulation runs worlds of several sizes with all faults.
func TestSimulation(t *testing.T) {
	operations := 60_000 // the end of each run adds as many again
	switch {
	case os.Getenv("LIGHTPATH_TEST_LONG") != "":
		operations = 5_000_000
	case testing.Short():
		operations = 20_000
	}
	all := Coverage{}
	for name, k := range map[string]struct {
		share int // of the operations, in percent
		cfg   Config
	}{
		"two jobs":         {25, Config{}},
		"a communicator":   {5, Config{Ports: 2, Jobs: 1}},
		"communicators":    {10, Config{Ports: 4, Jobs: 2}},
		"one job":          {5, Config{Jobs: 1, Planes: 1, Ports: 4}},
		"four controllers": {10, Config{Controllers: 4, Members: 5, Planes: 3, Ports: 9, Jobs: 3}},
		"pairs":            {5, Config{Ports: 6, Jobs: 3, Planes: 4}},
		"light":            {5, Config{Planes: 1, Jobs: 1, Ports: 2, Faults: []string{"switch-lost-light"}}},
		"light, takeovers": {10, Config{Planes: 1, Jobs: 1, Ports: 2,
			Faults: []string{"controller-crash", "rank-killed", "rank-pause", "switch-lost-light"}}},
		"leaders":        {10, Config{Faults: []string{"clock-jump", "controller-isolated", "controller-pause"}}},
		"without fences": {20, Config{Unfenced: 1}},
		"shared":         {10, Config{Share: 1, Ports: 8, Jobs: 4, Planes: 1}},
		"shared, planes": {10, Config{Share: 1, Ports: 6, Jobs: 3}},
		"parts":          {10, Config{Share: 1, Ports: 4, Jobs: 1}},
		"parts by turns": {10, Config{Share: 1, Ports: 5, Jobs: 1, Planes: 1, Turns: 1}},
		"turns":          {10, Config{Turns: 1}},
		"turns of a job": {10, Config{Turns: 1, Ports: 3, Jobs: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			k.cfg.Operations = 200
			runs := operations / 100 * k.share / k.cfg.Operations
			sum, failed := Search(t.Context(), Run, k.cfg, 1, runs, runtime.GOMAXPROCS(0), nil)
			all.Add(sum.Coverage)
			t.Logf("%d runs, %d operations in %v of simulated time, %d tickets used ahead, %d moves beside others",
				sum.Runs, sum.Operations, sum.Simulated.Round(time.Second), sum.Ahead, sum.Beside)
			least := sum.Operations / 10 // of jobs, which are side by side at any time
			if k.cfg.Jobs == 1 {
				least = k.cfg.Share // the parts of a job now and then
			}
			if sum.Beside < least {
				t.Errorf("%d operations, %d moves beside others", sum.Operations, sum.Beside)
			}
			if failed != nil {
				text, err := failed.Encode()
				t.Errorf("seed %d: %v (%v) %s", failed.Seed, Run(failed.Config, failed.Chooser()).Violation, err, text)
			}
		})
	}
	for _, fault := range FaultNames() {
		states := 0
		for cell, n := range all {
			if cell.Fault == fault && n > 0 {
				states++
			}
		}
		if states < 3 && !t.Failed() && !testing.Short() {
			t.Errorf("%s happened in %d states only", fault, states)
		}
	}
}

// TestSameSeed checks that a seed gives one trace.
func TestSameSeed(t *testing.T) {
	run := func(seed uint64, lines bool) uint64 {
		return Run(Config{Operations: 100, Lines: lines}, Random(seed)).Trace.Hash
	}
	if again := run(1, true); run(1, false) != again || run(1, true) != again {
		t.Error("a seed gives different traces")
	}
	if run(1, false) == run(2, false) {
		t.Error("two seeds give one trace")
	}
}

// TestWithoutFaults checks that nothing fails while the chooser makes the plain choices only.
func TestWithoutFaults(t *testing.T) {
	for _, cfg := range []Config{{Operations: 50}, {Operations: 50, Ports: 2, Jobs: 1}} {
		r := Run(cfg, Replay(nil))
		if r.Violation != nil || len(r.Coverage) != 0 {
			t.Errorf("%v, faults %v", r.Violation, r.Coverage)
		}
		if cfg.Jobs == 1 && r.Ahead < r.Operations {
			t.Errorf("of %d operations, ranks of one communicator began %d ahead", r.Operations, r.Ahead)
		}
	}
}

// TestInvariants breaks each invariant in a running world. docs/assurance.md lists all invariants.
func TestInvariants(t *testing.T) {
	page, err := os.ReadFile("../../docs/assurance.md")
	if err != nil {
		t.Fatal(err)
	}
	dark := circuit.AllDark(6)
	for invariant, do := range map[string]func(w *world, g *group){
		movingCircuit: func(w *world, g *group) {
			w.planes[0].frames[2] = &frame{g: g, to: 3}
			w.planes[0].taken(7, []circuit.Pair{{From: 2, To: 3}}, nil)
		},
		oldWriter: func(w *world, _ *group) {
			w.planes[0].newest++
			w.planes[0].taken(0, nil, nil)
		},
		darkSuccess: func(w *world, g *group) {
			w.planes[0].leaves(0, &frame{g: g, to: (w.planes[0].lit()[0] + 2) % 6})
		},
		twoMaps: func(w *world, g *group) {
			h := g.members[0].host
			h.planes[0] = news{epoch: 5000, m: dark}
			w.told(h, &news{epoch: 5000, m: circuit.Shift(6, 1)})
		},
		epochBack: func(w *world, g *group) {
			h := g.members[0].host
			h.planes[0].epoch = 5000
			w.told(h, &news{plane: 0, epoch: 4999, m: dark})
		},
		twoHolders: func(w *world, g *group) {
			other := newGroup(w, g.cfg, func(p int) *host { return w.ports[p].host })
			other.machine, w.groups[99] = g.machine, other
			w.ticket(g.members[0], &circuits.Ticket{Seq: g.members[0].asked.Seq})
		},
		twoPlans: func(w *world, g *group) {
			for version := range uint32(2) {
				w.ticket(g.members[0], &circuits.Ticket{Seq: g.members[0].asked.Seq, Ticket: ticket.Ticket{Version: version}})
			}
		},
		notGranted: func(w *world, g *group) {
			m := g.members[0]
			sent := ticket.Ticket{Use: 1 << 60, Planes: make([]ticket.Plane, 61)}
			w.ticket(m, &circuits.Ticket{Seq: m.asked.Seq, Ticket: sent})
		},
		returnsItself: func(w *world, _ *group) {
			down := &news{fault: controller.ErrMoving}
			w.planes[0].published(w.leader(), down, &news{m: w.planes[0].lit(), epochs: slices.Repeat([]uint32{9000}, 6)})
			w.planes[0].disabled = true
			w.granted(w.leader().sessions[0], 1, 1)
		},
		adopts: func(w *world, _ *group) {
			w.planes[0].good, w.planes[0].intents = &news{m: dark}, nil
			w.planes[0].disturb()
			w.planes[0].published(w.leader(), &news{}, &news{m: circuit.Shift(6, 1), epoch: 9000})
		},
		acknowledged: func(w *world, _ *group) {
			w.planes[1].disabled = true
			w.tookOver(w.leader())
		},
		unanswered: func(w *world, g *group) {
			h := g.members[0].host
			h.posts = append(h.posts, agree{since: w.now(h).Add(-time.Hour)})
			w.answers(h)
		},
		waitsForever: func(w *world, _ *group) {
			w.healing = w.clock - int64(healTime) - 1
			w.served()
		},
		unfair:        func(w *world, g *group) { w.waited(g, time.Minute) },
		failsOnItsOwn: func(_ *world, g *group) { g.fail(ocsctl.ErrConflict) },
		panics: func(w *world, _ *group) {
			g := w.groups[1]
			g.ground.violate(panics, "%v", control.ErrMessage)
		},
	} {
		if !strings.Contains(string(page), "| "+invariant+" |") {
			t.Errorf("docs/assurance.md does not list %q", invariant)
		}
		w, err := newWorld(Config{Operations: 1 << 20}.complete(), Replay(nil))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range w.processes {
			p.start()
		}
		for _, j := range w.jobs {
			j.start()
		}
		for w.result.Operations < 20 || invariant == twoHolders && w.groups[1].machine.Held() == 0 {
			w.next()
		}
		if w.step(func() { do(w, w.groups[1]) }); InvariantOf(w.result.Violation) != invariant {
			t.Errorf("%s: %v", invariant, w.result.Violation)
		}
		for _, p := range w.processes {
			p.crash()
		}
	}
}
