package emulator

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"lightpath/ocsctl/shmring"
	"lightpath/plans/circuit"
)

// rig is a switch without clock and sockets: the test is the ranks and says what time it
// is.
type rig struct {
	t   *testing.T
	f   *fabric
	dev *MemoryDevice
	now int64
	s   []*session
	// late delays each wake-up of the switch at random, as a busy host does.
	late *rand.Rand
	max  int64
	// each runs after every step, as ranks that react at once, until it reports that there
	// was nothing to do.
	each func() bool
}

// newRig makes a switch with every port attached. The ring sizes are small by default.
func newRig(t *testing.T, c Config) *rig {
	t.Helper()
	c.Socket = "unused"
	if c.Slots == 0 {
		c.Slots = 4
	}
	cfg, err := c.complete()
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, dev: NewMemoryDevice(cfg.Initial), now: 1e9}
	status := statusPage{make([]byte, statusSize(len(cfg.Planes), cfg.Ports)), cfg.Ports}
	r.f = newFabric(cfg, r.dev, status, nil)
	for p := range cfg.Ports {
		r.s = append(r.s, nil)
		r.attach(p)
	}
	return r
}

func (r *rig) attach(port int) {
	r.t.Helper()
	geo := r.f.geo
	mem, err := newMemory("rig", geo.size())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(mem.close)
	geo.format(mem.bytes)
	view, err := geo.view(mem.bytes)
	if err != nil {
		r.t.Fatal(err)
	}
	bell, err := shmring.NewDoorbell(make([]byte, 128)[:shmring.DoorbellSize])
	if err != nil {
		r.t.Fatal(err)
	}
	r.s[port] = &session{port: port, view: view, bell: bell, out: make(chan *message, 64)}
	if err := r.f.attach(r.s[port], r.now); err != nil {
		r.t.Fatal(err)
	}
}

// run lets time pass up to end.
func (r *rig) run(end int64) {
	for {
		next := r.f.step(r.now)
		for r.each != nil && r.each() {
			next = r.f.step(r.now)
		}
		if next > end {
			r.now = end
			return
		}
		if r.late != nil {
			next += r.late.Int64N(r.max)
		}
		r.now = min(max(next, r.now+1), max(end, r.now+1))
	}
}

func (r *rig) pass(d time.Duration) { r.run(r.now + int64(d)) }

// send puts a frame of data bytes into a port's ring; false where it is full.
func (r *rig) send(plane, port int, id uint64, data int, epoch uint32) bool {
	tx := r.s[port].view.tx[plane]
	b := tx.Reserve()
	if b == nil {
		return false
	}
	binary.LittleEndian.PutUint64(b, id)
	tx.Commit(LabelSize+data, epoch)
	return true
}

// recv takes a frame out of a port's ring.
func (r *rig) recv(plane, port int) (id uint64, ok bool) {
	rx := r.s[port].view.rx[plane]
	b, _, err := rx.Peek()
	if err != nil {
		r.t.Fatal(err)
	}
	if b == nil {
		return 0, false
	}
	id = binary.LittleEndian.Uint64(b)
	rx.Release()
	return id, true
}

func (r *rig) post(port, plane int, epoch uint32, target circuit.Permutation) {
	r.f.post(r.s[port], plane, epoch, target, r.now)
}

func (r *rig) postAll(plane int, epoch uint32, target circuit.Permutation) {
	for p := range r.s {
		r.post(p, plane, epoch, target)
	}
}

func (r *rig) epoch(plane int) uint32 { return r.f.status.epoch(plane) }

func (r *rig) lost(port, plane int, v Verdict) uint32 {
	return r.s[port].view.alarms[plane].lost[v].Load()
}

// wantLost checks every alarm of a port on a plane.
func (r *rig) wantLost(port, plane int, want map[Verdict]uint32) {
	r.t.Helper()
	for v := range numVerdicts {
		if got := r.lost(port, plane, v); got != want[v] {
			r.t.Errorf("port %d plane %d: %d frames lost to %v, want %d", port, plane, got, v, want[v])
		}
	}
}
