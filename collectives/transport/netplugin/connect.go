package netplugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"lightpath/collectives/wire"
)

// Shape of the rings.
const (
	slots          = 8 // plugins accept at least 8 requests per connection
	defaultPayload = 128 << 10
	maxMessage     = 1 << 30
	minPayload     = 1 << 10
	// budget is the limit of a rank's rings in bytes. Rings with the least payload may exceed it.
	budget = 128 << 20
)

// retry is the pause between two attempts to connect.
const retry = time.Millisecond

// ListenOptions describe a rank.
type ListenOptions struct {
	Rank, Ranks int
	// Plugin is owned by the caller, who closes it after the endpoint.
	Plugin Plugin
	// Devices are the numbers of the plugin's devices, by plane.
	Devices []int
	// Messages: the ranks connect a [Messenger] instead of an endpoint of frames.
	Messages bool
}

// lines returns how often a rank listens for each peer: once for each plane, and once more for the bytes of messages.
func (o *ListenOptions) lines() int {
	if o.Messages {
		return 2 * len(o.Devices)
	}
	return len(o.Devices)
}

// device returns the device of a line.
func (o *ListenOptions) device(line int) int { return o.Devices[line%len(o.Devices)] }

// Addrs are a rank's addresses, which the bootstrap distributes to all ranks.
type Addrs struct {
	Plugin  string     `json:"plugin"`
	Payload int        `json:"payload"` // largest payload of a frame, or largest message of the plugin, in bytes
	Handles [][][]byte `json:"handles"` // by line and source rank; empty for the rank itself
}

// Rank is a rank that listens. It is not safe for concurrent use.
type Rank struct {
	o         ListenOptions
	addrs     Addrs
	listeners [][]Listener // by line and source rank
}

// Listen opens a listener per line and peer.
func Listen(o ListenOptions) (_ *Rank, err error) {
	r := &Rank{o: o, addrs: Addrs{Plugin: o.Plugin.Name(), Payload: o.payload()}}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	for line := range o.lines() {
		r.listeners = append(r.listeners, make([]Listener, o.Ranks))
		r.addrs.Handles = append(r.addrs.Handles, make([][]byte, o.Ranks))
		for peer := range o.Ranks {
			if peer == o.Rank {
				continue
			}
			l, handle, err := o.Plugin.Listen(o.device(line))
			if err != nil {
				return nil, flowError(o.Rank, line%len(o.Devices), 0, "from", peer, err)
			}
			r.listeners[line][peer], r.addrs.Handles[line][peer] = l, handle
		}
	}
	return r, nil
}

// payload returns the largest payload of a frame: the default, less if the devices or the budget allow less. Messages
// have no header, and use no rings.
func (o *ListenOptions) payload() int {
	n, header := defaultPayload, wire.HeaderSize
	if o.Messages {
		n, header = maxMessage, 0
	}
	devices := o.Plugin.Devices()
	for _, d := range o.Devices {
		if most := devices[d].MaxBytes; most > 0 && most < int64(n+header) {
			n = max((int(most)-header)&^7, 8)
		}
	}
	for !o.Messages && 2*o.Ranks*len(o.Devices)*slots*(n+header) > budget && n >= 2*minPayload {
		n /= 2
	}
	return n &^ 7
}

// Addrs returns the rank's addresses.
func (r *Rank) Addrs() Addrs { return r.addrs }

// Close closes the listeners. Idempotent.
func (r *Rank) Close() (err error) {
	for _, of := range r.listeners {
		for _, l := range of {
			if l != nil {
				err = errors.Join(err, l.Close())
			}
		}
	}
	r.listeners = nil
	return err
}

// Options of [Connect], the same at all ranks of the communicator, except Flush.
type Options struct {
	Addrs []Addrs // of every rank
	// Linger is how long Close waits for the peers to close, too.
	Linger time.Duration
	// Failed is closed when the communicator has failed. Close then does not wait.
	Failed <-chan struct{}
	// Flush: a [Messenger] must flush what this rank receives before the device can see it.
	Flush bool
}

// Connect returns the rank's endpoint when all its connections exist, and closes its listeners. All ranks call it at
// about the same time. It returns an error if ctx ends before.
func Connect(ctx context.Context, r *Rank, o Options) (e *Endpoint, err error) {
	defer func() {
		if err = errors.Join(err, r.Close()); err != nil && e != nil {
			e.linger = 0
			err, e = errors.Join(err, e.Close()), nil
		}
	}()
	payload, err := r.check(o.Addrs)
	if err != nil {
		return nil, err
	}
	if e, err = newEndpoint(&r.o, payload, &o); err != nil {
		return nil, err
	}
	return e, e.connect(ctx, r, o.Addrs)
}

// ConnectMessages is [Connect] for a rank that listens for messages.
func ConnectMessages(ctx context.Context, r *Rank, o Options) (*Messenger, error) {
	e, err := Connect(ctx, r, o)
	if err != nil {
		return nil, err
	}
	return e.messenger, nil
}

// check returns the payload of frames, or an error if the ranks are incompatible.
func (r *Rank) check(all []Addrs) (payload int, err error) {
	o := &r.o
	if len(all) != o.Ranks {
		return 0, fmt.Errorf("netplugin: addresses of %d ranks, want %d", len(all), o.Ranks)
	}
	payload = r.addrs.Payload
	for peer := range all {
		a := &all[peer]
		if a.Plugin != r.addrs.Plugin {
			return 0, fmt.Errorf("netplugin: rank %d uses the network plugin %s, rank %d %s", peer, a.Plugin, o.Rank,
				r.addrs.Plugin)
		}
		if len(a.Handles) != o.lines() || a.Payload < 8 {
			return 0, fmt.Errorf("netplugin: rank %d has %d planes with payloads of %d bytes, rank %d has %d planes", peer,
				len(a.Handles), a.Payload, o.Rank, len(o.Devices))
		}
		for line, handles := range a.Handles {
			if len(handles) != o.Ranks || peer != o.Rank && len(handles[o.Rank]) != handleSize {
				return 0, fmt.Errorf("netplugin: plane %d: rank %d has no handle for rank %d", line%len(o.Devices), peer,
					o.Rank)
			}
		}
		payload = min(payload, a.Payload&^7)
	}
	return payload, nil
}

// pending is a connection that does not exist yet.
type pending struct {
	line, peer int
	dialer     Dialer // nil: the connection comes from the peer
}

// connect connects all links.
func (e *Endpoint) connect(ctx context.Context, r *Rank, addrs []Addrs) error {
	var all []pending
	for line := range r.o.lines() {
		for peer := range e.ranks {
			if peer == e.rank {
				continue
			}
			dialer := r.o.Plugin.Dial(r.o.device(line), addrs[peer].Handles[line][e.rank])
			all = append(all, pending{line, peer, dialer}, pending{line, peer, nil})
		}
	}
	defer func() {
		for _, c := range all {
			if c.dialer != nil {
				c.dialer.Close()
			}
		}
	}()
	for {
		before, failed := len(all), error(nil)
		all = slices.DeleteFunc(all, func(c pending) bool {
			if failed != nil {
				return false
			}
			var done bool
			done, failed = e.try(c, r)
			return done
		})
		switch {
		case failed != nil || len(all) == 0:
			return failed
		case ctx.Err() != nil:
			return e.error(all[0], fmt.Errorf("no connection: %w", context.Cause(ctx)))
		case len(all) == before:
			time.Sleep(retry)
		}
	}
}

// try makes a pending connection if it is possible now. It closes the dialer when the connection exists.
func (e *Endpoint) try(c pending, r *Rank) (done bool, err error) {
	var conn Conn
	if c.dialer == nil {
		conn, err = r.listeners[c.line][c.peer].Accept()
	} else {
		conn, err = c.dialer.Connect()
	}
	if err == nil && conn != nil {
		if err = e.open(c, conn); c.dialer != nil {
			c.dialer.Close()
		}
	}
	if err != nil {
		return false, e.error(c, err)
	}
	return conn != nil, nil
}

// open takes over a connection.
func (e *Endpoint) open(c pending, conn Conn) (err error) {
	if c.line >= len(e.planes) {
		m := e.messenger
		m.flows[m.flow(c.line-len(e.planes), c.peer, c.dialer != nil)].conn = conn
		return nil
	}
	q := &e.planes[c.line].peers[c.peer]
	if c.dialer != nil {
		return q.tx.open(conn, q.rings[1], slots)
	}
	if err = q.rx.open(conn, q.rings[0], slots); err == nil {
		q.rx.progress()
		err = errors.Join(q.rx.err, q.rx.refused)
	}
	return err
}

func (e *Endpoint) error(c pending, err error) error {
	way := "from"
	if c.dialer != nil {
		way = "to"
	}
	return flowError(e.rank, c.line%len(e.planes), 0, way, c.peer, err)
}

// flowError returns an error of the flow to or from a peer.
func flowError(rank, plane int, epoch uint32, way string, peer int, err error) error {
	return fmt.Errorf("transport: rank %d, plane %d, epoch %d, %s rank %d: %w", rank, plane, epoch, way, peer, err)
}
