package journal

import (
	"context"
	"fmt"
	"sync"

	"lightpath/ocsctl/controller"
)

// Memory is a store in memory. It ends with its process, so an intent counts as durable at once. All methods may be
// called from any goroutine.
type Memory struct {
	name string
	free chan struct{} // holds one element while no controller rules

	mu     sync.Mutex
	seq    uint64             // number of the newest event
	ring   []controller.Event // the newest events; the oldest of them is at next
	next   int
	full   bool
	planes map[int]*State
	token  uint64
	ruling bool
}

var _ Store = (*Memory)(nil)

// NewMemory returns a store for the controller name. It keeps the newest keep events, or [DefaultHistory] if keep is
// not positive.
func NewMemory(name string, keep int) *Memory {
	if keep <= 0 {
		keep = DefaultHistory
	}
	m := &Memory{
		name: name, free: make(chan struct{}, 1), ring: make([]controller.Event, keep), planes: make(map[int]*State),
	}
	m.free <- struct{}{}
	return m
}

// Campaign implements [Store]. It waits for the end of an earlier rule.
func (m *Memory) Campaign(ctx context.Context) (Leadership, error) {
	select {
	case <-m.free:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.token++
	m.ruling = true
	return &memoryRule{store: m, token: m.token, last: m.seq, done: make(chan struct{})}, nil
}

// Leader implements [Store].
func (m *Memory) Leader() Leader {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.ruling {
		return Leader{}
	}
	return Leader{Name: m.name, Token: m.token}
}

// Close implements [Store]. It does nothing.
func (m *Memory) Close() error { return nil }

// History implements [controller.History].
func (m *Memory) History(_ context.Context, q controller.Query) ([]controller.Event, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.next
	if m.full {
		n = len(m.ring)
	}
	limit := Limit(q)
	var events []controller.Event
	for i := 1; i <= n && len(events) < limit; i++ {
		if e := &m.ring[(m.next-i+len(m.ring))%len(m.ring)]; q.Match(e) {
			events = append(events, *e)
		}
	}
	return events, nil
}

// MaxEvents is the most events that a query returns.
const MaxEvents = 1000

// Limit returns the most events to return for a query: its own limit, at most [MaxEvents].
func Limit(q controller.Query) int {
	if q.Limit <= 0 {
		return MaxEvents
	}
	return min(q.Limit, MaxEvents)
}

// plane returns the state of a plane. The caller holds m.mu.
func (m *Memory) plane(j int) *State {
	if m.planes[j] == nil {
		m.planes[j] = new(State)
	}
	return m.planes[j]
}

// record applies an event. The caller holds m.mu.
func (m *Memory) record(e controller.Event) {
	if e.Plane >= 0 {
		m.plane(e.Plane).Apply(&e)
	}
	m.seq = number(&e, m.seq)
	m.ring[m.next] = e
	if m.next++; m.next == len(m.ring) {
		m.next, m.full = 0, true
	}
}

// memoryRule is a leadership of a Memory.
type memoryRule struct {
	store *Memory
	token uint64
	last  uint64 // number of the newest event before
	once  sync.Once
	done  chan struct{}
}

func (r *memoryRule) Token() uint64 { return r.token }

func (r *memoryRule) LastSeq() uint64 { return r.last }

func (r *memoryRule) Recovered(ports, planes int) ([]controller.Recovered, error) {
	m := r.store
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.planes) == 0 {
		return nil, nil
	}
	at := make([]controller.Recovered, planes)
	for j, s := range m.planes {
		if err := s.Fits(PlaneKey(j), j, ports, planes); err != nil {
			return nil, err
		}
		at[j] = s.Next()
	}
	return at, nil
}

// write calls f, which changes the store, unless the rule has ended.
func (r *memoryRule) write(f func(m *Memory)) error {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	err := r.Err()
	if err == nil {
		f(r.store)
	}
	return err
}

func (r *memoryRule) Baseline(at []controller.Recovered) {
	_ = r.write(func(m *Memory) {
		for j := range at {
			m.plane(j).Baseline(at[j])
		}
	})
}

func (r *memoryRule) Done() <-chan struct{} { return r.done }

func (r *memoryRule) Err() error {
	select {
	case <-r.done:
		return fmt.Errorf("journal: resigned: %w", controller.ErrNotLeader)
	default:
		return nil
	}
}

func (r *memoryRule) Intend(i controller.Intent, done func(error)) {
	done(r.write(func(m *Memory) { m.plane(i.Plane).Intend(i) }))
}

func (r *memoryRule) Record(e controller.Event, done func(error)) {
	if err := r.write(func(m *Memory) { m.record(e) }); done != nil {
		done(err)
	}
}

func (r *memoryRule) Resign(context.Context) error {
	r.once.Do(func() {
		close(r.done)
		r.store.mu.Lock()
		r.store.ruling = false
		r.store.mu.Unlock()
		r.store.free <- struct{}{}
	})
	return nil
}
