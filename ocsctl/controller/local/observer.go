package local

import (
	"time"

	"lightpath/ocsctl"
)

// flushTimeout bounds the writing of what has been logged and not yet written.
const flushTimeout = 30 * time.Second

// Observer is a connection to a controller without a port: for tools. Safe for concurrent use.
type Observer struct{ c *Client }

// Observe connects to the controller at a socket path ("unix:" may stand before it).
func Observe(endpoint string) (*Observer, error) {
	c, err := connect(endpoint, observer, "")
	if err != nil {
		return nil, err
	}
	go c.read()
	return &Observer{c}, nil
}

// Planes describes the planes; read-only.
func (o *Observer) Planes() []ocsctl.PlaneInfo { return o.c.Planes() }

// State returns a plane's epoch and map, and why it is out of service, if it is.
func (o *Observer) State(plane int) (ocsctl.PlaneState, error) {
	if !o.c.Use() {
		return ocsctl.PlaneState{}, o.c.lostError()
	}
	defer o.c.Unuse()
	st, f, _ := o.c.status.read(plane)
	if f.kind != faultNone {
		return st, f.err()
	}
	return st, nil
}

// Waiting says in words what the next switch of a plane waits for.
func (o *Observer) Waiting(plane int) string { return o.c.Waiting(plane) }

// FlushLog returns when every frame that has ended so far is in the log of the data path.
func (o *Observer) FlushLog() error {
	_, err := o.c.request(&message{Type: msgFlush}, flushTimeout)
	return err
}

// Close disconnects. Idempotent.
func (o *Observer) Close() error { return o.c.Close() }
