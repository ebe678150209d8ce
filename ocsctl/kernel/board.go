package kernel

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"lightpath/plans/circuit"
)

// View reads the circuits and counters of a fabric from the memory of the kernel's programs. Methods may be called
// concurrently. After Close they return an error, and [Counters] of the view must not be read.
type View struct {
	state *State

	mapped   sync.RWMutex // held while the memory is accessed
	circuits []circuitEntry
	counters []Counters
	unmap    []func() error
}

// Look opens a view.
func Look(s *State) (*View, error) {
	v := new(View)
	if err := v.open(s, unix.PROT_READ); err != nil {
		return nil, fmt.Errorf("kernel: fabric %s: %w", s.Name, errors.Join(err, v.Close()))
	}
	return v, nil
}

func (v *View) open(s *State, protection int) error {
	v.state = s
	counters, unmap, err := s.mapCounters()
	if err != nil {
		return err
	}
	v.counters, v.unmap = counters, append(v.unmap, unmap)
	m, err := ebpf.LoadPinnedMap(s.pin(circuitsPin), nil)
	if err != nil {
		return fmt.Errorf("circuits: %w", err)
	}
	defer shut(m)
	v.circuits, unmap, err = mapArray[circuitEntry](m, s.slot(len(s.Planes), 0), protection)
	if err != nil {
		return fmt.Errorf("circuits: %w", err)
	}
	v.unmap = append(v.unmap, unmap)
	return nil
}

// Close ends the view.
func (v *View) Close() error {
	v.mapped.Lock()
	defer v.mapped.Unlock()
	var err error
	for _, unmap := range v.unmap {
		err = errors.Join(err, unmap())
	}
	v.circuits, v.counters, v.unmap = nil, nil, nil
	return err
}

// State returns the fabric of the view.
func (v *View) State() *State { return v.state }

// Map returns the circuits of a plane, Dark where there is none.
func (v *View) Map(plane int) (circuit.Permutation, error) {
	if err := v.state.check(plane); err != nil {
		return nil, err
	}
	v.mapped.RLock()
	defer v.mapped.RUnlock()
	if v.circuits == nil {
		return nil, v.closed()
	}
	m := make(circuit.Permutation, v.state.Ranks)
	for r := range m {
		m[r] = v.entry(plane, r).to()
	}
	return m, nil
}

func (v *View) closed() error { return fmt.Errorf("kernel: fabric %s: %w", v.state.Name, os.ErrClosed) }

// Counters returns the counters of a port.
func (v *View) Counters(plane, port int) (*Counters, error) {
	if err := v.state.check(plane, port); err != nil {
		return nil, err
	}
	v.mapped.RLock()
	defer v.mapped.RUnlock()
	if v.counters == nil {
		return nil, v.closed()
	}
	return &v.counters[v.state.slot(plane, port)], nil
}

// entry reads a port's entry; the caller holds mapped.
func (v *View) entry(plane, port int) circuitEntry {
	return circuitEntry(atomic.LoadUint64((*uint64)(&v.circuits[v.state.slot(plane, port)])))
}

// check returns an error for a plane or ports that the fabric does not have.
func (s *State) check(plane int, ports ...int) error {
	if plane < 0 || plane >= len(s.Planes) {
		return fmt.Errorf("kernel: fabric %s: plane %d is outside 0..%d", s.Name, plane, len(s.Planes)-1)
	}
	for _, p := range ports {
		if p < 0 || p >= s.Ranks {
			return fmt.Errorf("kernel: fabric %s: plane %s: port %d is outside 0..%d", s.Name,
				s.Planes[plane].Name, p, s.Ranks-1)
		}
	}
	return nil
}

// Panel is the writer's view of the circuits of a fabric: a [Board], or the boards of several hosts combined (package
// agent). Safe for concurrent use.
type Panel interface {
	// State returns the fabric. It does not change.
	State() *State
	// Map returns the circuits of a plane. A board of other hosts returns the maps that it read last.
	Map(plane int) (circuit.Permutation, error)
	// Install sets the circuits of a plane to the map to. Circuits of both maps carry frames without interruption.
	Install(plane int, to circuit.Permutation) error
}

var _ Panel = (*Board)(nil)

// Board is the only writer of the circuits of planes: the patch panel behind device models. A change applies to every
// frame that a program handles after the method has returned. It costs a few stores and no system call. Safe for
// concurrent use.
type Board struct {
	View
	mu    sync.Mutex       // changes
	locks map[int]*os.File // by plane
}

// Open becomes the writer of some planes, or of all if none are named. If another process, or another Board, writes one
// of them, the error wraps ErrBusy. Open and Close do not change circuits.
func Open(s *State, planes ...int) (*Board, error) {
	if len(planes) == 0 {
		for j := range s.Planes {
			planes = append(planes, j)
		}
	}
	b := &Board{View: View{state: s}, locks: make(map[int]*os.File)}
	fail := func(err error) (*Board, error) {
		return nil, fmt.Errorf("kernel: fabric %s: %w", s.Name, errors.Join(err, b.Close()))
	}
	if err := b.open(s, unix.PROT_READ|unix.PROT_WRITE); err != nil {
		return fail(err)
	}
	for _, j := range planes {
		if err := b.state.check(j); err != nil {
			return nil, errors.Join(err, b.Close())
		}
		f, err := lock(s.Name, writeLock(j))
		if err != nil {
			return fail(fmt.Errorf("plane %s: %w", s.Planes[j].Name, err))
		}
		b.locks[j] = f
	}
	return b, nil
}

// Close lets another process write.
func (b *Board) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	err := b.View.Close()
	for _, f := range b.locks {
		unlock(f)
	}
	b.locks = nil
	return err
}

// Install sets the circuits of a plane to the map to. Circuits of both maps carry frames without interruption. It
// removes circuits before it adds any, so that two ports never lead to one.
func (b *Board) Install(plane int, to circuit.Permutation) error {
	if err := b.state.check(plane); err != nil {
		return err
	}
	if err := to.Validate(b.state.Ranks); err != nil {
		return fmt.Errorf("kernel: fabric %s: plane %s: map %w", b.state.Name, b.state.Planes[plane].Name, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.locks == nil {
		return b.closed()
	}
	if b.locks[plane] == nil {
		return fmt.Errorf("kernel: fabric %s: plane %s: not a plane of this writer", b.state.Name, b.state.Planes[plane].Name)
	}
	common, err := b.Map(plane)
	if err != nil {
		return err
	}
	for r := range common {
		if common[r] != to[r] {
			common[r] = circuit.Dark
		}
	}
	b.mapped.RLock() // and open: Close takes mu, too
	defer b.mapped.RUnlock()
	b.store(plane, common)
	b.store(plane, to)
	return nil
}

// store writes the entries that differ from m.
func (b *Board) store(plane int, m circuit.Permutation) {
	from := m.Inverse()
	for r := range m {
		if e := newEntry(m[r], from[r]); e != b.entry(plane, r) {
			atomic.StoreUint64((*uint64)(&b.circuits[b.state.slot(plane, r)]), uint64(e))
		}
	}
}
