package shimtest

import (
	"lightpath/collectives/transport"
	"lightpath/collectives/wire"
)

// watchedEndpoint is an endpoint whose planes call sending before each send.
type watchedEndpoint struct {
	transport.Endpoint
	planes []transport.Plane
}

func (e *watchedEndpoint) Planes() []transport.Plane { return e.planes }

type watchedPlane struct {
	transport.Plane
	sending func()
}

// TrySend implements [transport.Plane].
func (p watchedPlane) TrySend(h *wire.Header, payload []byte) (int, error) {
	p.sending()
	return p.Plane.TrySend(h, payload)
}

// watchedForwarder is a watchedPlane that forwards.
type watchedForwarder struct {
	transport.Forwarder
	sending func()
}

// TrySend implements [transport.Plane].
func (p watchedForwarder) TrySend(h *wire.Header, payload []byte) (int, error) {
	p.sending()
	return p.Forwarder.TrySend(h, payload)
}

// Watch returns an endpoint that calls sending before each send.
func Watch(e transport.Endpoint, sending func()) transport.Endpoint {
	w := &watchedEndpoint{Endpoint: e}
	for _, p := range e.Planes() {
		if f, ok := p.(transport.Forwarder); ok {
			w.planes = append(w.planes, watchedForwarder{f, sending})
		} else {
			w.planes = append(w.planes, watchedPlane{p, sending})
		}
	}
	return w
}
