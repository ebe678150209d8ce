package controller

import (
	"errors"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/ocsctl"
	"lightpath/plans/circuit"
)

func (r *testRig) beginJob(j Job, maps ...circuit.Permutation) *error {
	return r.ask(func(m *machine, done func(error), now int64) {
		if j.Mask == 0 {
			j.Mask = 1<<len(m.planes) - 1
		}
		if err := r.core.checkJob(&j, maps); err != nil {
			done(err)
			return
		}
		m.beginJob(j, maps, done, now)
	})
}

func (r *testRig) endJob(id string) *error {
	return r.ask(func(m *machine, done func(error), now int64) { m.endJob(id, "ann", done, now) })
}

func (r *testRig) jobs() []JobSnapshot {
	r.t.Helper()
	s, err := r.core.Snapshot()
	require.NoError(r.t, err)
	return s.Jobs
}

// at checks the map of a plane in service.
func (r *testRig) at(plane int, want circuit.Permutation) {
	r.t.Helper()
	if p := r.plane(plane); !p.Map.Equal(want) || p.State == Down {
		r.t.Fatalf("plane %d: %s, %v, want %v", plane, p.State, p.Map, want)
	}
}

// TestJobCircuits: a begin sets the circuits among a job's ports, in the order of its ranks, and leaves the circuits of
// other jobs alone. Ranks and operators cannot move them until it ends.
func TestJobCircuits(t *testing.T) {
	r := newTestRig(t, 6, 2, nil)
	swap := circuit.Shift(2, 1)
	a := r.beginJob(Job{ID: "1", Ports: []int{0, 1}, Who: "slurm"}, swap, swap)
	r.pass(10 * time.Millisecond)
	b := r.beginJob(Job{ID: "2", Ports: []int{4, 2, 3}, Who: "slurm"}, circuit.Shift(3, 1), nil)
	r.pass(10 * time.Millisecond)
	if *a != nil || *b != nil || len(r.jobs()) != 2 || r.jobs()[1].Waits != 0 {
		t.Fatalf("%v, %v, %+v", *a, *b, r.jobs())
	}
	const dark = circuit.Dark
	r.at(0, circuit.Permutation{1, 0, 3, 4, 2, dark})
	r.at(1, circuit.Permutation{1, 0, dark, dark, dark, dark}) // the job has no map there

	// Its ranks could not make the circuits that a second begin takes away.
	want(t, "without a map", *r.beginJob(Job{ID: "1", Ports: []int{0, 1}, Who: "slurm"}), ErrJob, "with circuits")
	r.at(0, circuit.Permutation{1, 0, 3, 4, 2, dark})

	r.hold(1)
	r.post(5, 0, r.plane(0).Epoch, circuit.Permutation{1, 0, 3, 4, 5, 2})
	want(t, "a port outside the job", r.s[5].refused[0], ocsctl.ErrPinned, "p0", "port 4", "job 2")
	r.post(2, 0, r.plane(0).Epoch, circuit.Permutation{1, 0, 4, 2, 3, dark})
	want(t, "a port of the job", r.s[2].refused[0], ocsctl.ErrPinned, "port 2", "job 2")
	r.release(1)
	set := r.set(0, circuit.Shift(6, 1))
	r.pass(10 * time.Millisecond)
	want(t, "set", *set, ocsctl.ErrPinned, "port 1", "job 1")
	if set := r.set(0, circuit.Permutation{1, 0, 3, 4, 2, 5}); true {
		r.pass(10 * time.Millisecond)
		require.NoError(t, *set)
	}

	if e := r.endJob("2"); *e != nil {
		t.Fatal(*e)
	}
	if e := r.endJob("2"); *e != nil || len(r.jobs()) != 1 {
		t.Fatalf("a second end: %v, %+v", *e, r.jobs())
	}
	r.at(0, circuit.Permutation{1, 0, 3, 4, 2, 5}) // an end moves nothing
	set = r.set(0, circuit.Permutation{1, 0, 2, 3, 4, 5})
	r.pass(10 * time.Millisecond)
	require.NoError(t, *set)
}

// TestJobWithoutMap: the ranks of a job move circuits among its ports, and no others do.
func TestJobWithoutMap(t *testing.T) {
	r := newTestRig(t, 4, 1, nil)
	r.beginJob(Job{ID: "7", Ports: []int{0, 1}})
	r.pass(10 * time.Millisecond)
	const dark = circuit.Dark
	r.at(0, circuit.Permutation{dark, dark, 3, dark})
	r.hold(1)
	own, epoch := circuit.Permutation{1, 0, 3, dark}, r.plane(0).Epoch
	r.post(2, 0, epoch, own)
	want(t, "another rank", r.s[2].refused[0], ocsctl.ErrPinned, "port 0", "job 7")
	r.post(0, 0, epoch, own)
	r.post(1, 0, epoch, own)
	r.pass(10 * time.Millisecond)
	r.at(0, own)
}

// TestJobRefused: one line names the job that has the id or the port.
func TestJobRefused(t *testing.T) {
	r := newTestRig(t, 4, 2, nil)
	for _, j := range []Job{
		{ID: "1", Ports: []int{0, 1}, Mask: 1}, {ID: "2", Ports: []int{0, 1}, Mask: 2}, // on another plane
		{ID: "1", Ports: []int{0, 1}, Mask: 1}, // its answer was lost
	} {
		began := r.beginJob(j)
		r.pass(10 * time.Millisecond)
		require.NoError(t, *began)
	}
	want(t, "id", *r.beginJob(Job{ID: "1", Ports: []int{2, 3}, Mask: 1}), ErrJob, "job 1", "0,1", "2,3")
	want(t, "name", *r.beginJob(Job{ID: "1", Name: "x", Ports: []int{0, 1}, Mask: 1}), ErrJob,
		`name "", planes p0, ports 0,1,`, `name "x", planes p0, ports 0,1:`)
	want(t, "port", *r.beginJob(Job{ID: "3", Ports: []int{2, 1}}), ErrJob, "job 3", "port 1", "plane p0", "job 1")
	for _, j := range []Job{
		{Ports: []int{1}}, {ID: "4"}, {ID: "4", Ports: []int{4}}, {ID: "4", Ports: []int{2, 2}},
		{ID: "4", Ports: []int{2}, Mask: 4},
	} {
		if e := r.beginJob(j); *e == nil {
			t.Errorf("%+v has begun", j)
		}
	}
	if e := r.beginJob(Job{ID: "4", Ports: []int{2, 3}}, circuit.Shift(3, 1), nil); *e == nil {
		t.Error("a map of another number of ranks")
	}
	if n := len(r.jobs()); n != 2 {
		t.Errorf("%d jobs", n)
	}
}

// TestJobWaitsForHolder: the circuits of a job are set when the communicator that uses a plane gives it back. The
// communicator is told; a request behind it waits until the circuits are set. A plane out of service gets them when it
// is back.
func TestJobWaitsForHolder(t *testing.T) {
	r := newTestRig(t, 4, 3, nil)
	r.disable(2)
	r.hold(1)
	swap := circuit.Shift(2, 1)
	began := r.beginJob(Job{ID: "1", Ports: []int{2, 3}}, swap, swap, swap)
	r.pass(10 * time.Millisecond)
	r.at(1, circuit.Permutation{1, circuit.Dark, 3, 2}) // the other planes do not wait
	if !errors.Is(*began, errNoAnswer) || r.jobs()[0].Waits != 1+4 || len(r.s[0].wanted) != 1 {
		t.Fatalf("%v, %+v, told %v", *began, r.jobs(), r.s[0].wanted)
	}
	r.postAll(0, r.plane(0).Epoch, circuit.Shift(4, 2)) // it goes on as before
	r.pass(10 * time.Millisecond)
	r.at(0, circuit.Shift(4, 2))
	require.NoError(t, r.s[1].Acquire(3, ocsctl.Lease{Mask: 1, Holder: 8}))
	r.release(1)
	if len(r.s[1].answers) != 0 {
		t.Fatal("the plane is granted before it moves")
	}
	r.pass(10 * time.Millisecond)
	if *began != nil || r.jobs()[0].Waits != 4 || len(r.s[1].answers) != 1 {
		t.Fatalf("%v, %+v, %v", *began, r.jobs(), r.s[1].answers)
	}
	r.at(0, circuit.Permutation{circuit.Dark, circuit.Dark, 3, 2})
	if p := r.plane(2); !p.Map.Equal(circuit.Shift(4, 1)) {
		t.Errorf("the disabled plane: %v", p.Map)
	}
	r.enable(2)
	r.pass(10 * time.Millisecond)
	r.at(2, circuit.Permutation{1, circuit.Dark, 3, 2})
}

// TestJobEndsWhileItWaits: the begin fails, and the plane is granted to others.
func TestJobEndsWhileItWaits(t *testing.T) {
	r := newTestRig(t, 4, 1, nil)
	r.hold(1)
	began := r.beginJob(Job{ID: "1", Ports: []int{2, 3}}, circuit.Shift(2, 1))
	r.pass(time.Millisecond)
	r.endJob("1")
	r.release(1)
	r.pass(10 * time.Millisecond)
	if *began == nil || errors.Is(*began, errNoAnswer) || len(r.jobs()) != 0 {
		t.Errorf("%v, %+v", *began, r.jobs())
	}
	r.hold(1)
}

// TestJobFails: a begin whose circuits cannot be set ends the job.
func TestJobFails(t *testing.T) {
	r := newTestRig(t, 4, 1, nil)
	r.dev.refuse[0] = true
	began := r.beginJob(Job{ID: "1", Ports: []int{2, 3}}, circuit.Shift(2, 1))
	r.pass(10 * time.Millisecond)
	want(t, "begin", *began, ocsctl.ErrReconfFailed, "job 1", "refuses")
	if len(r.jobs()) != 0 {
		t.Errorf("%+v", r.jobs())
	}
}

// TestJobLease: leases name the job of their port.
func TestJobLease(t *testing.T) {
	r := newTestRig(t, 4, 1, nil)
	r.beginJob(Job{ID: "9", Ports: []int{0, 1}})
	r.pass(10 * time.Millisecond)
	r.hold(1)
	require.NoError(t, r.s[3].Acquire(3, ocsctl.Lease{Mask: 1, Holder: 8}))
	s, err := r.core.Snapshot()
	require.NoError(t, err)
	if s.Planes[0].Holders[0].Job != "9" || s.Queue[0].Job != "" {
		t.Errorf("%+v, %+v", s.Planes[0].Holders, s.Queue)
	}
}

// TestJobTakeover: the next controller knows the jobs of the journal, and keeps their circuits.
func TestJobTakeover(t *testing.T) {
	j := Job{ID: "1", Ports: []int{0, 1}, Mask: 3, Fixed: true}
	r := newTestRig(t, 4, 2, func(_ *testRig, c *Config) {
		c.Recovered = []Recovered{{Map: circuit.Shift(4, 1), Jobs: []Job{j}}, {Map: circuit.Shift(4, 1)}}
	})
	r.pass(10 * time.Millisecond)
	if len(r.jobs()) != 1 || r.jobs()[0].ID != "1" {
		t.Fatalf("%+v", r.jobs())
	}
	want(t, "set", *r.set(1, circuit.Shift(4, 2)), ocsctl.ErrPinned, "job 1")
	want(t, "begin", *r.beginJob(Job{ID: "2", Ports: []int{1}}), ErrJob, "job 1")
	require.NoError(t, *r.endJob("1"))
}

// TestJobJournalFails: a job whose begin is not in the journal has not begun, and blocks no plane.
func TestJobJournalFails(t *testing.T) {
	var j *testJournal
	r := newTestRig(t, 4, 1, func(r *testRig, c *Config) {
		j = &testJournal{now: &r.now, planes: make([]Recovered, 1)}
		c.Journal = j
	})
	j.answer(r)
	j.err = errors.New("disk full")
	began := r.beginJob(Job{ID: "1", Ports: []int{2, 3}}, circuit.Shift(2, 1))
	j.answer(r)
	want(t, "begin", *began, ErrJournal, "job 1", "disk full")
	j.answer(r)
	if len(r.jobs()) != 0 || !r.plane(0).Map.Equal(circuit.Shift(4, 1)) {
		t.Errorf("%+v", r.jobs())
	}
	r.hold(1)
}
