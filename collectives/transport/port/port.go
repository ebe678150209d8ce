// Package port is the optical transport: one port per plane of an optical switch, whose
// circuits reach one rank at a time and whose ranks forward for each other.
//
// Layer: inside collectives/transport; it uses the port memory of ocsctl/emulator. It does
// not know circuits and asks for no reconfigurations: the executor does both.
//
// What arrives on a port is one queue for every flow that enters by its circuit, and only
// its head can be looked at. A head for another rank waits to be forwarded and holds up
// what is behind it: that is the back-pressure of the link. A head for this rank never
// does: if it is not what is asked for, it is set aside into a queue of its flow. With the
// bubble rule (a new frame needs two free slots, a forwarded one needs one) a ring of
// forwarders therefore always makes progress.
package port

import (
	"fmt"
	"time"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/internal/sleep"
	"lightpath/collectives/wire"
	"lightpath/ocsctl/emulator"
)

// DefaultStash is how many frames of a plane are set aside at most.
const DefaultStash = 1 << 14

// Options describe one rank's ports.
type Options struct {
	Rank, Ranks int
	// Ports is the memory of this rank's port on each plane. It stays the caller's and must
	// outlive the endpoint. Endpoints of several communicators may share it as long as at
	// most one of them uses a plane at a time.
	Ports []emulator.PortMemory
	// MTU is the most bytes of a frame with its header.
	MTU int
	// Stash bounds the frames of a plane that are set aside; 0 is DefaultStash. At the bound
	// the link holds the rest back.
	Stash int
	// Health returns why frames of this rank on a plane were lost, nil if none were; nil
	// where nobody knows. It must neither block nor allocate while all is well.
	Health func(plane int) error
}

// Endpoint is one rank's ports; it implements [transport.Endpoint]. Its planes implement
// [transport.Forwarder].
type Endpoint struct {
	sleeper sleep.Sleeper
	rank    int
	planes  []transport.Plane
}

// New returns the endpoint of a rank on its ports.
func New(o Options) (*Endpoint, error) {
	if o.Ranks < 1 || o.Ranks > 1<<16 || o.Rank < 0 || o.Rank >= o.Ranks {
		return nil, fmt.Errorf("port: rank %d of %d", o.Rank, o.Ranks)
	}
	if len(o.Ports) == 0 {
		return nil, fmt.Errorf("port: rank %d has no ports", o.Rank)
	}
	if o.Stash == 0 {
		o.Stash = DefaultStash
	}
	e := &Endpoint{rank: o.Rank}
	e.sleeper.Use(o.Ports[0].Bell)
	for id := range o.Ports {
		m := &o.Ports[id]
		if m.Bell != o.Ports[0].Bell {
			return nil, fmt.Errorf("port: plane %d has another doorbell than plane 0", id)
		}
		room := min(o.MTU, m.TX.Payload(), m.RX.Payload())
		if room < wire.HeaderSize+8 {
			return nil, fmt.Errorf("port: plane %d: frames of %d bytes hold no data", id, room)
		}
		if slots := m.TX.Free() + m.TX.Pending(); slots < 2 {
			return nil, fmt.Errorf("port: plane %d: %d slots, forwarding needs 2", id, slots)
		}
		e.planes = append(e.planes, &plane{
			e: e, id: id, mem: *m, health: o.Health,
			payload: (room - wire.HeaderSize) &^ 7, // frames hold whole elements
			queues:  make([]queue, o.Ranks),
			stash:   stash{limit: o.Stash},
		})
	}
	return e, nil
}

// Planes implements [transport.Endpoint].
func (e *Endpoint) Planes() []transport.Plane { return e.planes }

// Arm implements [transport.Endpoint].
func (e *Endpoint) Arm() uint32 { return e.sleeper.Arm() }

// Wait implements [transport.Endpoint].
func (e *Endpoint) Wait(armed uint32, d time.Duration) { e.sleeper.Wait(armed, d) }

// Wake implements [transport.Endpoint].
func (e *Endpoint) Wake() { e.sleeper.Wake() }

// Close implements [transport.Endpoint]. The port memory stays as it is.
func (e *Endpoint) Close() error {
	e.sleeper.Close(func() {})
	return nil
}
