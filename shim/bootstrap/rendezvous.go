package bootstrap

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"lightpath/shim/control"
	"lightpath/shim/settings"
)

// Rendezvous is a listener of this process, open while the process has communicators. After a failure the remaining
// ranks meet at the rendezvous of the first of them. It accepts only connections that prove to know the secret of a
// current meeting. Safe for concurrent use.
type Rendezvous struct {
	ln    net.Listener
	ip    netip.Addr
	users int // guarded by listeners
	slots chan struct{}

	mu    sync.Mutex
	roots map[control.Secret]*root
	// handlers maps the secret that a connection proves to the function that receives the connection.
	handlers map[control.Secret]func(net.Conn)
}

// Receive passes connections that prove the secret to handle, which then owns them. A nil handle ends this.
func (d *Rendezvous) Receive(s control.Secret, handle func(net.Conn)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if handle == nil {
		delete(d.handlers, s)
		return
	}
	d.handlers[s] = handle
}

// listeners are the rendezvous of this process, by address.
var listeners struct {
	sync.Mutex
	open map[netip.Addr]*Rendezvous
}

// OpenRendezvous opens the rendezvous of this process, or shares it. The caller calls [Rendezvous.Close].
func OpenRendezvous(cfg *settings.Config) (*Rendezvous, error) {
	ip, err := control.Address(cfg.ControlInterfaces())
	if err != nil {
		return nil, err
	}
	listeners.Lock()
	defer listeners.Unlock()
	d := listeners.open[ip]
	if d == nil {
		ln, err := net.Listen("tcp", netip.AddrPortFrom(ip, 0).String())
		if err != nil {
			return nil, fmt.Errorf("shim: rendezvous: %w", err)
		}
		d = &Rendezvous{ln: ln, ip: ip, slots: make(chan struct{}, maxUnproven), roots: map[control.Secret]*root{},
			handlers: map[control.Secret]func(net.Conn){}}
		if listeners.open == nil {
			listeners.open = map[netip.Addr]*Rendezvous{}
		}
		listeners.open[ip] = d
		go d.accept()
	}
	d.users++
	return d, nil
}

// Close ends the caller's use of the rendezvous; the last Close closes the listener. A nil d is allowed.
func (d *Rendezvous) Close() {
	if d == nil {
		return
	}
	listeners.Lock()
	defer listeners.Unlock()
	if d.users--; d.users == 0 {
		delete(listeners.open, d.ip)
		_ = d.ln.Close() // ends accept
	}
}

// Address returns the address of the listener, "" for nil.
func (d *Rendezvous) Address() string {
	if d == nil {
		return ""
	}
	return d.ln.Addr().String()
}

func (d *Rendezvous) accept() {
	control.AcceptAll(d.ln, new(control.Trouble), func(conn net.Conn) {
		d.slots <- struct{}{}
		go d.authenticate(conn)
	})
}

// authenticate passes a connection to the meeting whose secret it proves. It closes the connection of a rank that comes
// before its meeting has begun; the rank tries again.
func (d *Rendezvous) authenticate(conn net.Conn) {
	s, err := control.AcceptAny(conn, d.find)
	<-d.slots
	d.mu.Lock()
	r, handle := d.roots[s], d.handlers[s]
	d.mu.Unlock()
	if err == nil && handle != nil {
		handle(conn)
		return
	}
	if err != nil || r == nil {
		_ = conn.Close()
		return
	}
	r.follow(conn)
}

func (d *Rendezvous) find(knows func(control.Secret) bool) (control.Secret, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for s := range d.roots {
		if knows(s) {
			return s, true
		}
	}
	for s := range d.handlers {
		if knows(s) {
			return s, true
		}
	}
	return control.Secret{}, false
}

// root returns a new root of a meeting with a secret.
func (d *Rendezvous) root(s control.Secret, timeout time.Duration, try int) *root {
	r := newRoot(s, timeout, timeout)
	r.try = try
	r.retire = func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.roots[s] == r {
			delete(d.roots, s)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.roots[s] = r
	return r
}

// StartMeeting starts a meeting. It ends when every rank has an answer, or after the timeout.
func (d *Rendezvous) StartMeeting(s control.Secret, timeout time.Duration, try int) (ended <-chan struct{}) {
	r := d.root(s, timeout, try)
	go r.serve()
	return r.done
}

// RefuseOthers answers ranks that come here to meet this rank while it meets others elsewhere. Their lists of ranks
// differ from this rank's, so it refuses them, and calls conflict once. It ends when over is closed; after a conflict,
// when all ranks with such a list have their answers.
func (d *Rendezvous) RefuseOthers(s control.Secret, own *Hello, timeout time.Duration, over <-chan struct{},
	conflict func(why string)) {
	go d.root(s, timeout, own.Try).refuseOthers(own, over, conflict)
}

func (r *root) refuseOthers(own *Hello, over <-chan struct{}, conflict func(why string)) {
	defer close(r.done)
	defer r.retire()
	g := &gathering{conns: map[int]net.Conn{}, try: r.try}
	g.admit(own)
	timer := time.NewTimer(r.timeout)
	defer timer.Stop()
	for g.refusal == "" || g.answered < g.expect-1 { // own is one of those expected
		select {
		case e := <-r.events:
			switch {
			case e.gone:
			case e.hello.Ranks == 0, e.hello.Without == own.Without:
				_ = e.conn.Close() // a veto, or a rank that comes for the next meeting, which has not begun
			default:
				first := g.refusal == ""
				g.take(&e.hello, e.conn)
				if first {
					conflict(g.refusal)
				}
			}
		case <-over:
			if g.refusal == "" {
				return
			}
			over = nil
		case <-timer.C:
			return
		}
	}
}
