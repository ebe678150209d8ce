package netplugin

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/internal/dma"
	"lightpath/collectives/transport/internal/sleep"
	"lightpath/collectives/transport/messages"
	"lightpath/collectives/wire"
	"lightpath/internal/shmring"
)

// The pause between two polls of a rank that waits: a plugin has no event for which a rank could sleep.
const (
	minPause = 20 * time.Microsecond
	maxPause = 500 * time.Microsecond
)

// Endpoint is one rank's attachment to all planes; it implements [transport.Endpoint].
type Endpoint struct {
	rank, ranks int
	planes      []*plane
	exported    []transport.Plane // the result of Planes
	linger      time.Duration
	failed      <-chan struct{}
	mem         []byte     // rings of all links
	messenger   *Messenger // nil: the endpoint carries frames

	sleeper sleep.Sleeper
	// mu is held by Close and by every call of the driving goroutine, except the sleep in Wait.
	mu    sync.Mutex
	ready bool // a message has become complete, or a flow has failed, since Arm
}

// newEndpoint returns an endpoint without connections.
func newEndpoint(o *ListenOptions, payload int, by *Options) (*Endpoint, error) {
	e := &Endpoint{rank: o.Rank, ranks: o.Ranks, linger: by.Linger, failed: by.Failed}
	const line = shmring.DoorbellSize
	mem := make([]byte, 2*line)
	bell, err := shmring.NewDoorbell(mem[-uintptr(unsafe.Pointer(&mem[0]))%line:])
	if err != nil {
		return nil, err
	}
	e.sleeper.Use(bell)
	ring := slots * (wire.HeaderSize + payload)
	if o.Messages {
		ring = slots * messages.OfferSize
	}
	if e.mem, err = dma.Map(max(2*len(o.Devices)*(o.Ranks-1), 1) * ring); err != nil {
		return nil, fmt.Errorf("netplugin: rank %d: %w", o.Rank, err)
	}
	free := e.mem
	for id := range o.Devices {
		p := &plane{e: e, id: id, payload: payload, peers: make([]peer, o.Ranks)}
		for r := range p.peers {
			if r != o.Rank {
				p.peers[r] = peer{rank: r, rings: [2][]byte{free[:ring], free[ring : 2*ring]}}
				free = free[2*ring:]
			}
		}
		e.planes, e.exported = append(e.planes, p), append(e.exported, p)
	}
	if o.Messages {
		e.messenger = newMessenger(e, payload, by.Flush)
	}
	return e, nil
}

// Planes implements [transport.Endpoint].
func (e *Endpoint) Planes() []transport.Plane { return e.exported }

// Arm implements [transport.Endpoint].
func (e *Endpoint) Arm() uint32 {
	e.mu.Lock()
	e.ready = false
	e.mu.Unlock()
	return e.sleeper.Arm()
}

// Wait implements [transport.Endpoint]. It polls the plugin, ever less often.
func (e *Endpoint) Wait(armed uint32, d time.Duration) { e.wait(armed, d, e.poll) }

func (e *Endpoint) wait(armed uint32, d time.Duration, poll func() bool) {
	for pause := minPause; d > 0 && !poll(); pause = min(2*pause, maxPause) {
		e.sleeper.Wait(armed, min(pause, d))
		if e.sleeper.Arm() != armed {
			return
		}
		d -= pause
	}
}

// poll polls all links. It reports whether Wait must return.
// Hot path: no allocation, no logging.
func (e *Endpoint) poll() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sleeper.Closed() {
		return true
	}
	for _, p := range e.planes {
		for r := range p.peers {
			if r != e.rank {
				sent, received := p.peers[r].tx.progress(), p.peers[r].rx.progress()
				e.ready = e.ready || sent || received
			}
		}
	}
	return e.ready
}

// Wake implements [transport.Endpoint].
func (e *Endpoint) Wake() { e.sleeper.Wake() }

// Close implements [transport.Endpoint]. Peers still receive the frames that this rank has sent, then
// [transport.ErrPeerLost].
func (e *Endpoint) Close() (err error) {
	e.sleeper.Close(func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.sayFarewell()
		if e.messenger != nil {
			err = e.messenger.close()
		}
		for _, p := range e.planes {
			for r := range p.peers {
				if cerr := errors.Join(p.peers[r].tx.close(), p.peers[r].rx.close()); cerr != nil {
					err = errors.Join(err, flowError(e.rank, p.id, 0, "to and from", r, cerr))
				}
			}
		}
		if err != nil {
			return // the plugin may still use the memory
		}
		// Another goroutine may be inside a call and must not fault. So Close releases the memory but keeps the addresses
		// mapped until the endpoint is unreachable.
		err = unix.Madvise(e.mem, unix.MADV_DONTNEED)
		runtime.AddCleanup(e, dma.Unmap, e.mem)
	})
	return err
}

// sayFarewell sends farewells until no request is left, at most for linger, and not for long after a failure.
func (e *Endpoint) sayFarewell() {
	for end := time.Now().Add(e.linger); !e.leave() && time.Now().Before(end); {
		select {
		case <-e.failed:
			return
		case <-time.After(minPause):
		}
	}
}

// leave sends farewells and takes the messages of the peers, and reports whether no request is left. The farewells end
// the receives of the peer, which has one for each slot.
func (e *Endpoint) leave() bool {
	left := true
	for _, p := range e.planes {
		for r := range p.peers {
			q := &p.peers[r]
			sent, taken := q.tx.leave(), q.rx.leave()
			left = left && sent && taken
		}
	}
	return left
}
