package emulator

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/internal/shmring"
	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/plans/circuit"
)

// rig is a switch without clock and sockets: the test is the ranks and says what time it
// is.
type rig struct {
	t    *testing.T
	core *controller.Core
	c    *circuits
	dev  *faultyDevice
	now  int64
	s    []*rigRank
	mem  []*shmring.Memory
	page *rigRank // attached to no port
	// late delays each wake-up of the switch at random, as a busy host does.
	late *rand.Rand
	max  int64
	// each runs after every step, as ranks that react at once, until it reports that there
	// was nothing to do.
	each func() bool
}

// rigRank is what a front end knows of a rank.
type rigRank struct {
	controller.Attachment
	view    *portView
	epochs  map[int][]uint32
	maps    map[int]circuit.Permutation
	faults  map[int]error
	refused []error
	granted []uint64 // ids
	closed  error
}

func newRigRank() *rigRank {
	return &rigRank{epochs: map[int][]uint32{}, maps: map[int]circuit.Permutation{}, faults: map[int]error{}}
}

func (k *rigRank) Changed(plane int, epochs []uint32, m circuit.Permutation, fault error) {
	k.epochs[plane], k.maps[plane], k.faults[plane] = epochs, m, fault
}
func (k *rigRank) Refused(_ int, _ uint64, why error) { k.refused = append(k.refused, why) }
func (k *rigRank) Granted(id, _ uint64, _ error)      { k.granted = append(k.granted, id) }
func (*rigRank) Wanted(uint64, uint64)                {}
func (k *rigRank) Closed(err error)                   { k.closed = err }

// newRig makes a switch with every port attached, and port 0 holding the planes for all. The ring sizes are small by
// default.
func newRig(t *testing.T, c Config) *rig {
	t.Helper()
	if c.Slots == 0 {
		c.Slots = 4
	}
	cfg, err := c.complete()
	require.NoError(t, err)
	dev := &faultyDevice{memoryDevice: cfg.Device.(*memoryDevice), faults: map[int]*fault{}}
	cfg.Device = dev
	r := &rig{t: t, dev: dev, now: 1e9, c: newCircuits(cfg, nil), page: newRigRank()}
	cc := cfg.controller()
	cc.DataPath = r.c
	if r.core, err = controller.NewManual(cc, func() int64 { return r.now }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // the core first, which looks at the memory
		r.core.Close()
		for _, m := range r.mem {
			m.Close()
		}
	})
	if _, err := r.core.Attach(r.page, controller.AttachOptions{Port: -1}); err != nil {
		t.Fatal(err)
	}
	for p := range cfg.Ports {
		r.s = append(r.s, nil)
		r.attach(p)
	}
	r.hold()
	return r
}

func (r *rig) attach(number int) {
	r.t.Helper()
	bell, err := shmring.NewDoorbell(make([]byte, 128)[:shmring.DoorbellSize])
	require.NoError(r.t, err)
	k := newRigRank()
	mem, data, err := r.c.NewPort(number, bell, func(err error) { k.closed = err })
	require.NoError(r.t, err)
	r.mem = append(r.mem, mem)
	k.view = data.(*port).view
	if k.Attachment, err = r.core.Attach(k, controller.AttachOptions{Port: number, Data: data}); err != nil {
		r.t.Fatal(err)
	}
	r.s[number] = k
}

// plane returns what the controller says of a plane.
func (r *rig) plane(plane int) controller.PlaneSnapshot {
	r.t.Helper()
	s, err := r.core.Snapshot()
	require.NoError(r.t, err)
	return s.Planes[plane]
}

// run lets time pass up to end.
func (r *rig) run(end int64) {
	for {
		next := r.core.Step()
		for r.each != nil && r.each() {
			next = r.core.Step()
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
	require.NoError(r.t, err)
	if b == nil {
		return 0, false
	}
	id = binary.LittleEndian.Uint64(b)
	rx.Release()
	return id, true
}

// holder is the communicator of ranks in tests.
const holder = 7

// hold has port 0 obtain all planes.
func (r *rig) hold() {
	r.t.Helper()
	r.acquire(0, ocsctl.Lease{Mask: 1<<len(r.c.planes) - 1, Holder: holder})
}

// acquire has a port obtain planes that are free.
func (r *rig) acquire(port int, l ocsctl.Lease) {
	r.t.Helper()
	granted := len(r.s[port].granted)
	require.NoError(r.t, r.s[port].Acquire(1, l))
	if len(r.s[port].granted) != granted+1 {
		r.t.Fatalf("port %d is granted no planes", port)
	}
}

// pairRig makes a switch of one dark plane, which holders 20 and 21 have at two ports each.
func pairRig(t *testing.T) (r *rig, pairs [][]int) {
	t.Helper()
	r = newRig(t, Config{Ports: 4, Planes: planes(1, frameRate, 0)})
	require.NoError(t, r.s[0].Release(1, holder))
	pairs = [][]int{{0, 1}, {2, 3}}
	for i, ports := range pairs {
		r.acquire(ports[0], ocsctl.Lease{Mask: 1, Holder: uint64(20 + i), Ports: ports})
	}
	return r, pairs
}

func (r *rig) post(port, plane int, epoch uint32, target circuit.Permutation) {
	if err := r.s[port].Post(plane, epoch, holder, target); err != nil {
		r.t.Error(err)
	}
}

func (r *rig) postAll(plane int, epoch uint32, target circuit.Permutation) {
	for p := range r.s {
		r.post(p, plane, epoch, target)
	}
}

// epoch returns that of port 0.
func (r *rig) epoch(plane int) uint32 { return r.page.epochs[plane][0] }

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
