package histories

import (
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"lightpath/ocsctl"
	"lightpath/plans/circuit"
)

// TestSideBySide: jobs of disjoint ports have planes together and move their own circuits, and controllers and journals
// fail. The model of other tests has one holder, so here each rank checks what it sees.
func TestSideBySide(t *testing.T) {
	seeds := uint64(12)
	if os.Getenv("LIGHTPATH_TEST_LONG") != "" {
		seeds = 500
	}
	for seed := range seeds {
		w := newWorld(t, 1000+seed)
		w.beside = &beside{circuits: map[portEpoch]int{}}
		w.run(4, 60)
		if w.beside.together.Load() == 0 {
			t.Errorf("seed %d: no plane has had two holders", w.seed)
		}
	}
}

// beside checks what ranks see of planes with several holders.
type beside struct {
	mu       sync.Mutex
	circuits map[portEpoch]int
	together atomic.Int64 // snapshots of planes with several holders
}

type portEpoch struct {
	plane, port int
	epoch       uint32
}

// check checks the news of a plane in service, before the rank takes them. Epochs do not go back. No port has two
// circuits inside its job at one epoch; it may have none, since controllers end during moves. While the job has the
// plane, only its moves change its circuits and its epoch. The caller holds the rank's mutex.
func (b *beside) check(r *rank, plane int, at ocsctl.PlaneState) {
	was, fault := r.planes[plane], r.faults[plane]
	to := inside(at.Map, r.port)
	fail := func(what string) {
		r.world.t.Errorf("seed %d life %d plane %d port %d: %s: epoch %d %v after epoch %d %v", r.world.seed,
			r.life.number, plane, r.port, what, at.Epoch, at.Map, was.Epoch, was.Map)
	}
	if at.Epoch < was.Epoch {
		fail("the epoch goes back")
	}
	if to != circuit.Dark {
		b.mu.Lock()
		before, known := b.circuits[portEpoch{plane, r.port, at.Epoch}]
		if known && before != to {
			fail("another circuit at the same epoch")
		}
		b.circuits[portEpoch{plane, r.port, at.Epoch}] = to
		b.mu.Unlock()
	}
	if r.held>>plane&1 == 0 || was.Map == nil || fault != nil {
		return
	}
	x := r.wanted
	own := x != nil && x.plane == plane && x.epoch == was.Epoch && at.Epoch == was.Epoch+1 && r.arrived(at.Map, x.target)
	leads := r.port%jobPorts == 0 // and knows the moves of the job
	if at.Epoch == was.Epoch && to != inside(was.Map, r.port) || at.Epoch != was.Epoch && leads && !own {
		fail("not a move of the job")
	}
}

// arrived reports whether the job's circuits are those of a move's target.
func (r *rank) arrived(m, target circuit.Permutation) bool {
	if r.world.beside == nil {
		return m.Equal(target)
	}
	return m[r.port] == target[r.port] && m[r.port^1] == target[r.port^1]
}

// inside returns the circuit of a port to a port of its job.
func inside(m circuit.Permutation, port int) int {
	if to := m[port]; to == port || to == port^1 {
		return to
	}
	return circuit.Dark
}

// lease returns the job's lease of planes.
func (j *job) lease(mask uint64) ocsctl.Lease {
	l := ocsctl.Lease{Mask: mask, Holder: j.holder}
	if !j.all {
		l.Ports = j.ports()
	}
	return l
}

// ports returns the ports of the job's ranks.
func (j *job) ports() []int { return []int{int(j.holder-1) * jobPorts, int(j.holder-1)*jobPorts + 1} }

// hold tells the ranks which planes the job has.
func (j *job) hold(mask uint64) {
	j.held = mask
	for _, r := range j.ranks {
		r.change(func() { r.held = mask })
	}
}

// target returns where the job moves a plane.
func (j *job) target(at ocsctl.PlaneState) circuit.Permutation {
	if j.all {
		return j.swapped(at.Map)
	}
	m, p := circuit.AllDark(ports), j.ports()
	if at.Epoch%3 > 0 {
		m[p[0]] = p[at.Epoch%3-1]
	}
	if at.Epoch%3 == 2 {
		m[p[1]] = p[0]
	}
	return m
}
