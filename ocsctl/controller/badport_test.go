package controller

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/ocsctl"
	"lightpath/ocsctl/driver"
	"lightpath/plans/circuit"
)

// pairs are the circuits of two jobs, on ports 0 and 1 and on ports 2 and 3.
var pairs = circuit.Permutation{1, 0, 3, 2}

// badRig has one plane with the circuits of two jobs, and a journal. Its device reports ports.
func badRig(t *testing.T) (*testRig, *testJournal) {
	j := &testJournal{planes: make([]Recovered, 1), delay: time.Millisecond}
	r := newTestRig(t, 4, 1, func(r *testRig, c *Config) {
		withTimed(r, c)
		r.dev.maps[0] = pairs
		j.now, c.Journal = &r.now, j
	})
	j.answer(r)
	return r, j
}

// missedRig is a badRig after a move of ports 2 and 3, each to itself. The device has another map, and port 2 is bad.
func missedRig(t *testing.T, has circuit.Permutation) (*testRig, *testJournal) {
	r, j := badRig(t)
	r.job(2)
	for p := 2; p < 4; p++ {
		require.NoError(t, r.s[p].Post(0, 0, 12, circuit.Permutation{1, 0, 2, 3}))
	}
	j.answer(r)
	r.dev.next[0] = has
	r.report(2)
	return r, j
}

// report has the device report bad ports; none: all are good.
func (r *testRig) report(ports ...int) {
	r.timed.unwell[0] = nil
	if len(ports) > 0 {
		b := &BadPorts{Why: map[int]string{}, Err: driver.ErrUnwell}
		for _, p := range ports {
			b.Why[p] = "no light"
		}
		r.timed.unwell[0] = b
	}
	r.timed.news(0)
	r.pass(0)
}

// job asks for the plane for the job of two ports, which has the first port's number plus 10 as its holder.
func (r *testRig) job(port int) {
	r.t.Helper()
	l := ocsctl.Lease{Mask: 1, Holder: uint64(port + 10), Ports: []int{port, port + 1}}
	require.NoError(r.t, r.s[port].Acquire(1, l))
	r.pass(0)
}

// sees expects that the plane is out of service for exactly these ports.
func (r *testRig) sees(out ...int) {
	r.t.Helper()
	for p, s := range r.s {
		fault := s.faults[0]
		if slices.Contains(out, p) != (fault != nil) || fault != nil && !errors.Is(fault, ocsctl.ErrPlaneDown) {
			r.t.Fatalf("port %d sees %v, want ports %v out", p, fault, out)
		}
	}
	b, some := errors.AsType[*BadPorts](r.page.faults[0])
	if some != (len(out) > 0) || r.page.faults[0] != nil && !some || some && len(b.Why) != len(out) {
		r.t.Fatalf("the page sees %v, want ports %v out", r.page.faults[0], out)
	}
}

// TestBadPort: a port fails while the other job has the plane, which goes on. The plane is out of service for the job
// of the port until the port is good again.
func TestBadPort(t *testing.T) {
	r, j := badRig(t)
	r.job(0)
	r.report(3)
	r.sees(2, 3) // the circuits between them stay
	j.answer(r)
	r.job(2)
	if a := r.s[2].answers; len(a) != 1 || !errors.Is(a[0].err, ocsctl.ErrPlaneDown) ||
		!strings.Contains(a[0].err.Error(), "port 3 is out") {
		t.Fatalf("the job of the port is granted: %+v", a)
	}
	to := circuit.Permutation{-1, -1, 3, 2}
	for p := range 2 {
		require.NoError(t, r.s[p].Post(0, 0, 10, to))
	}
	j.answer(r)
	r.timed.news(0)
	r.pass(0)
	if p := r.plane(0); !p.Map.Equal(to) || p.Epoch != 1 || p.Failures != 0 || len(p.Out) != 2 || r.s[0].faults[0] != nil {
		t.Fatalf("the other job: %+v", p)
	}
	require.NoError(t, r.s[2].Post(0, 1, 10, circuit.AllDark(4))) // a fault is the answer
	if len(r.s[2].refused) != 0 {
		t.Errorf("a post of a bad port: %v", r.s[2].refused)
	}
	r.report()
	r.sees()
	require.NoError(t, r.s[0].Release(1, 10))
	r.job(2)
	want(t, "the job of the port", r.s[2].answers[1].err, nil)
	var kinds []EventKind
	for _, e := range j.events {
		if e.Kind == Excluded || e.Kind == Included {
			kinds = append(kinds, e.Kind)
		}
	}
	if !slices.Equal(kinds, []EventKind{Excluded, Included}) {
		t.Errorf("events %v", kinds)
	}
}

// TestBadPortInUse: a port of the holder fails. All ranks of the holder see it until they have given the plane back,
// even if the port is good again before.
func TestBadPortInUse(t *testing.T) {
	r, _ := badRig(t)
	r.job(2)
	r.dev.maps[0] = pairs
	r.report(3)
	r.report()
	r.sees(2, 3)
	require.NoError(t, r.s[2].Release(1, 12))
	r.sees()

	// All ports are the holder's, also those whose circuits are good.
	r.hold(1)
	r.report(3)
	r.sees(0, 1, 2, 3)
	r.release(1)
	r.sees(2, 3)
}

// TestBadPortStopsMove: a port fails after the last post, while the journal writes the intent. The plane does not move.
func TestBadPortStopsMove(t *testing.T) {
	r, j := badRig(t)
	r.job(2)
	for p := 2; p < 4; p++ {
		require.NoError(t, r.s[p].Post(0, 0, 12, circuit.Permutation{1, 0, -1, -1}))
	}
	r.report(3)
	j.answer(r)
	if len(r.dev.moves) != 0 {
		t.Errorf("moves %+v", r.dev.moves)
	}
}

// TestMissedPort: a move fails at some ports. The plane goes out of service, and returns with a new epoch when the
// journal has the failure and the holder has given it back. The ports wait for an operator.
func TestMissedPort(t *testing.T) {
	for name, first := range map[string]string{"released first": "release", "journal first": "journal"} {
		t.Run(name, func(t *testing.T) {
			r, j := missedRig(t, circuit.Permutation{1, 0, -1, 3})
			for _, s := range r.s {
				want(t, "fault", s.faults[0], ocsctl.ErrReconfFailed)
			}
			release := func() { require.NoError(t, r.s[2].Release(1, 12)) }
			journal := func() { j.answer(r) }
			if first == "journal" {
				release, journal = journal, release
			}
			release()
			if r.plane(0).State != Down {
				t.Fatal("the plane is in service too early")
			}
			journal()
			if p := r.plane(0); p.State != Resident || p.Epoch != 1 || !p.Map.Equal(circuit.Permutation{1, 0, -1, 3}) {
				t.Fatalf("%+v", p)
			}
			r.report()
			r.sees(2)
			j.answer(r)
			answer := r.enable(0)
			j.answer(r)
			want(t, "enable", *answer, nil)
			r.sees()
		})
	}
}

// TestMissedElsewhere: after a move fails at some ports, the map is not one on the way to the target. It is drift.
func TestMissedElsewhere(t *testing.T) {
	r, j := missedRig(t, circuit.Permutation{0, 1, -1, 3})
	j.answer(r)
	require.NoError(t, r.s[2].Release(1, 12))
	j.answer(r)
	if p := r.plane(0); p.State != Down {
		t.Errorf("%+v", p)
	}
}

// TestMissedPortTakeover: the next controller knows from the journal that a move has failed at port 2. An enable ends
// that. A port that the device reports as bad is out until the device reports it as good.
func TestMissedPortTakeover(t *testing.T) {
	before, j := missedRig(t, circuit.Permutation{1, 0, -1, 3})
	require.NoError(t, before.s[2].Release(1, 12))
	j.answer(before)
	next := func() *testRig {
		return newTestRig(t, 4, 1, func(r *testRig, c *Config) {
			withTimed(r, c)
			r.dev.maps[0] = j.planes[0].Map
			j.now, c.Journal, c.Recovered = &r.now, j, slices.Clone(j.planes)
		})
	}
	r := next()
	r.sees(2)
	r.report(2)
	want(t, "enable", enabled(r, j), ocsctl.ErrPlaneDown)
	r.sees(2)
	r.report()
	r.sees()
	next().sees()
}

func enabled(r *testRig, j *testJournal) error {
	answer := r.enable(0)
	j.answer(r)
	return *answer
}

// TestBadPortTakeover: the next controller finds the port bad, and serves the others.
func TestBadPortTakeover(t *testing.T) {
	r := newTestRig(t, 4, 1, func(r *testRig, c *Config) {
		withTimed(r, c)
		r.dev.maps[0] = pairs
		r.timed.unwell[0] = &BadPorts{Why: map[int]string{3: "no light"}, Err: driver.ErrUnwell}
		c.Recovered, c.Grace = []Recovered{{Epoch: 5, Map: pairs}}, time.Second
	})
	r.sees(2, 3)
	if p := r.plane(0); p.Epoch != 5 || p.State != Resident {
		t.Errorf("%+v", p)
	}
}

// TestBadPortOfJob: the begin of a scheduler's job does not wait for a port that is out, and other requests do not wait
// for the job's circuits. The job gets them when the port is good.
func TestBadPortOfJob(t *testing.T) {
	r, j := badRig(t)
	r.dev.maps = append(r.dev.maps, pairs)
	r.report(3)
	begun := r.ask(func(m *machine, done func(error), now int64) {
		m.beginJob(Job{ID: "42", Ports: []int{2, 3}, Mask: 1}, nil, done, now)
	})
	j.answer(r)
	want(t, "begin of a job without a plane", *begun, ocsctl.ErrPlaneDown)
	r.report()
	begun = r.ask(func(m *machine, done func(error), now int64) {
		m.beginJob(Job{ID: "42", Ports: []int{2, 3}, Mask: 1}, nil, done, now)
	})
	r.report(3) // before the journal has the begin
	j.answer(r)
	want(t, "begin", *begun, nil)
	r.job(0)
	want(t, "the other job", r.s[0].answers[0].err, nil)
	require.NoError(t, r.s[0].Release(1, 10))
	r.report()
	j.answer(r)
	r.timed.news(0)
	r.pass(0)
	if p := r.plane(0); !p.Map.Equal(circuit.Permutation{1, 0, -1, -1}) {
		t.Errorf("%+v", p)
	}
}

// TestSetWithBadPort: a set fails if its map has a circuit of a bad port. Another set leaves the port out.
func TestSetWithBadPort(t *testing.T) {
	r, j := badRig(t)
	r.report(3)
	for _, c := range []struct {
		to   circuit.Permutation
		want error
	}{{circuit.Permutation{1, 0, -1, 3}, ocsctl.ErrReconfFailed}, {circuit.Permutation{0, 1, 2, -1}, nil}} {
		answer := r.set(0, c.to)
		j.answer(r)
		r.timed.news(0)
		r.pass(0)
		j.answer(r)
		want(t, "set", *answer, c.want)
		r.sees(3)
	}
	r.report()
	r.sees(3) // a move of it has failed
	answer := r.set(0, pairs)
	j.answer(r)
	r.timed.news(0)
	j.answer(r)
	want(t, "set", *answer, nil)
	r.sees()
}
