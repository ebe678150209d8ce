package transporttest

import (
	"math/rand/v2"
	"time"

	"lightpath/collectives/transport"
	"lightpath/collectives/wire"
)

// Faults are probabilities, per call, of the effects of a slow network.
type Faults struct {
	Short  float64 // TrySend accepts only a part of the payload
	Refuse float64 // TrySend accepts nothing
	Delay  float64 // Peek or PeekTransit does not return a frame that has arrived
}

// WithFaults wraps the planes of e in planes that inject faults within their contract, at random from seed. The wrapped
// planes implement the same extended interface as the originals.
func WithFaults(e transport.Endpoint, seed uint64, f Faults) transport.Endpoint {
	w := &faultyEndpoint{Endpoint: e}
	for i, p := range e.Planes() {
		fp := &faultyPlane{Plane: p, faults: f, rng: rand.New(rand.NewPCG(seed, uint64(i))),
			offered: map[uint16]int{}, shown: map[int]bool{}}
		switch p := p.(type) {
		case transport.Forwarder:
			w.planes = append(w.planes, &faultyForwarder{fp, p})
		case transport.Steerer:
			w.planes = append(w.planes, &faultySteerer{fp, p})
		case transport.Lander:
			w.planes = append(w.planes, &faultyLander{fp, p})
		default:
			w.planes = append(w.planes, fp)
		}
	}
	return w
}

type faultyEndpoint struct {
	transport.Endpoint
	planes []transport.Plane
}

func (e *faultyEndpoint) Planes() []transport.Plane { return e.planes }

// Wait returns early, because no event follows a frame that Peek withheld.
func (e *faultyEndpoint) Wait(armed uint32, d time.Duration) {
	e.Endpoint.Wait(armed, min(d, 100*time.Microsecond))
}

type faultyPlane struct {
	transport.Plane
	faults Faults
	rng    *rand.Rand
	// offered is the rest of a shortened payload per destination. A transport that accepted a part of the payload may
	// rely on a call with the rest.
	offered map[uint16]int
	shown   map[int]bool // sources whose oldest frame Peek has returned and must return again
}

func (p *faultyPlane) chance(of float64) bool { return p.rng.Float64() < of }

func (p *faultyPlane) TrySend(h *wire.Header, payload []byte) (int, error) {
	if p.chance(p.faults.Refuse) {
		return 0, nil
	}
	n := p.offered[h.Dst]
	if n == 0 || n > len(payload) {
		n = len(payload)
		if n > 8 && p.chance(p.faults.Short) {
			n = 8 * (1 + p.rng.IntN(n/8))
		}
	}
	taken, err := p.Plane.TrySend(h, payload[:n])
	p.offered[h.Dst] = n - taken
	return taken, err
}

func (p *faultyPlane) Peek(src int) (*wire.Header, []byte, error) {
	if !p.shown[src] && p.chance(p.faults.Delay) {
		return nil, nil, nil
	}
	h, data, err := p.Plane.Peek(src)
	p.shown[src] = h != nil
	return h, data, err
}

func (p *faultyPlane) Release(src int) {
	p.shown[src] = false
	p.Plane.Release(src)
}

type faultyForwarder struct {
	*faultyPlane
	forwarder transport.Forwarder
}

func (p *faultyForwarder) Payload() int { return p.forwarder.Payload() }
func (p *faultyForwarder) Backlog() int { return p.forwarder.Backlog() }

func (p *faultyForwarder) PeekTransit() (*wire.Header, []byte, error) {
	if p.chance(p.faults.Delay) {
		return nil, nil, nil
	}
	return p.forwarder.PeekTransit()
}

func (p *faultyForwarder) Forward(epoch uint32) (bool, error) {
	if p.chance(p.faults.Refuse) {
		return false, nil
	}
	return p.forwarder.Forward(epoch)
}

type faultySteerer struct {
	*faultyPlane
	steerer transport.Steerer
}

func (p *faultySteerer) Transit(comm, op uint64, want int64) (int64, error) {
	passed, err := p.steerer.Transit(comm, op, want)
	if p.chance(p.faults.Delay) {
		passed = 0
	}
	return passed, err
}

type faultyLander struct {
	*faultyPlane
	lander transport.Lander
}

func (p *faultyLander) Head(src int) (*wire.Header, error) {
	if !p.shown[src] && p.chance(p.faults.Delay) {
		return nil, nil
	}
	h, err := p.lander.Head(src)
	p.shown[src] = h != nil
	return h, err
}

// Land receives any number of bytes, as the kernel may.
func (p *faultyLander) Land(src int, dst []byte) (int, error) {
	p.shown[src] = false
	if p.chance(p.faults.Refuse) {
		return 0, nil
	}
	if len(dst) > 1 && p.chance(p.faults.Short) {
		dst = dst[:1+p.rng.IntN(len(dst)-1)]
	}
	return p.lander.Land(src, dst)
}
