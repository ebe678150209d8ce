package port

import (
	"fmt"
	"time"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/internal/frames"
	"lightpath/collectives/transport/internal/sleep"
	"lightpath/collectives/wire"
	"lightpath/ocsctl/emulator"
)

// maxStash is the largest number of frames of a plane that an endpoint copies out of the receive ring. At the limit,
// frames stay in the ring and the switch cannot deliver more.
const maxStash = 1 << 14

// Options describe one rank's ports.
type Options struct {
	Rank, Ranks int
	// Ports is the memory of this rank's port on each plane. The caller owns it and frees it after it has closed the
	// endpoint. Endpoints of several communicators may share it if only one of them uses a plane at a time.
	Ports []emulator.PortMemory
	// MTU is the largest frame in bytes, including its header.
	MTU int
	// Health returns an error if the switch lost frames of this rank on a plane. It must not block, and must not
	// allocate unless it returns an error. It may be nil.
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
	e := &Endpoint{rank: o.Rank}
	e.sleeper.Use(o.Ports[0].Bell)
	for id := range o.Ports {
		m := &o.Ports[id]
		if m.Bell != o.Ports[0].Bell {
			return nil, fmt.Errorf("port: plane %d has another doorbell than plane 0", id)
		}
		room := min(o.MTU, m.TX.Payload(), m.RX.Payload())
		if room < wire.HeaderSize+8 {
			return nil, fmt.Errorf("port: plane %d: frames of %d bytes have no room for data", id, room)
		}
		if slots := m.TX.Free() + m.TX.Pending(); slots < 2 {
			return nil, fmt.Errorf("port: plane %d: %d slots, want at least 2 for forwarding", id, slots)
		}
		payload := (room - wire.HeaderSize) &^ 7 // so that a frame splits no element
		e.planes = append(e.planes, &plane{
			e: e, id: id, mem: *m, health: o.Health, payload: payload, queues: make([]queue, o.Ranks),
			pool: frames.Pool{Size: payload, Limit: maxStash},
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

// Close implements [transport.Endpoint]. It does not change the port memory.
func (e *Endpoint) Close() error {
	e.sleeper.Close(func() {})
	return nil
}
