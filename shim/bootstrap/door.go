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

// Door is a listener of this process. Ranks that are left after a failure meet again at the door of the first of them.
// It is open while this process has communicators. Only connections that know the secret of a current meeting are
// accepted.
type Door struct {
	ln    net.Listener
	ip    netip.Addr
	users int // guarded by doors
	slots chan struct{}

	mu    sync.Mutex
	roots map[control.Secret]*root
	// guests maps the secret that a connection proves to the meeting that receives it.
	guests map[control.Secret]func(net.Conn)
}

// Receive passes connections that know the secret to guest. If guest is nil, it passes no more of them.
func (d *Door) Receive(s control.Secret, guest func(net.Conn)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if guest == nil {
		delete(d.guests, s)
		return
	}
	d.guests[s] = guest
}

// doors are those of this process, by address.
var doors struct {
	sync.Mutex
	open map[netip.Addr]*Door
}

// EnterDoor opens this process's door, or shares it. [Door.Leave] gives it back.
func EnterDoor(cfg *settings.Config) (*Door, error) {
	ip, err := control.Address(cfg.ControlInterfaces())
	if err != nil {
		return nil, err
	}
	doors.Lock()
	defer doors.Unlock()
	d := doors.open[ip]
	if d == nil {
		ln, err := net.Listen("tcp", netip.AddrPortFrom(ip, 0).String())
		if err != nil {
			return nil, fmt.Errorf("shim: door: %w", err)
		}
		d = &Door{ln: ln, ip: ip, slots: make(chan struct{}, maxUnproven), roots: map[control.Secret]*root{},
			guests: map[control.Secret]func(net.Conn){}}
		if doors.open == nil {
			doors.open = map[netip.Addr]*Door{}
		}
		doors.open[ip] = d
		go d.accept()
	}
	d.users++
	return d, nil
}

// Leave gives the door back, which is closed behind the last. Nil has none.
func (d *Door) Leave() {
	if d == nil {
		return
	}
	doors.Lock()
	defer doors.Unlock()
	if d.users--; d.users == 0 {
		delete(doors.open, d.ip)
		_ = d.ln.Close() // ends accept
	}
}

// Address is where the door is, "" for nil.
func (d *Door) Address() string {
	if d == nil {
		return ""
	}
	return d.ln.Addr().String()
}

func (d *Door) accept() {
	control.AcceptAll(d.ln, new(control.Trouble), func(conn net.Conn) {
		d.slots <- struct{}{}
		go d.greet(conn)
	})
}

// greet passes a connection to the meeting whose secret it knows. A rank that comes too early is sent away, and comes
// again.
func (d *Door) greet(conn net.Conn) {
	s, err := control.AcceptAny(conn, d.find)
	<-d.slots
	d.mu.Lock()
	r, guest := d.roots[s], d.guests[s]
	d.mu.Unlock()
	if err == nil && guest != nil {
		guest(conn)
		return
	}
	if err != nil || r == nil {
		_ = conn.Close()
		return
	}
	r.follow(conn)
}

func (d *Door) find(knows func(control.Secret) bool) (control.Secret, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for s := range d.roots {
		if knows(s) {
			return s, true
		}
	}
	for s := range d.guests {
		if knows(s) {
			return s, true
		}
	}
	return control.Secret{}, false
}

// root is a new one behind the door, for those who know the secret.
func (d *Door) root(s control.Secret, timeout time.Duration, try int) *root {
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

// Hold starts a meeting, which ends by itself when everyone has an answer, or after the timeout.
func (d *Door) Hold(s control.Secret, timeout time.Duration, try int) {
	go d.root(s, timeout, try).serve()
}

// Sign answers ranks that come here to meet this rank while it meets others elsewhere. They have another list of ranks,
// so Sign tells them, and calls conflict once. The sign stays until over is closed; after a conflict, it stays until
// all ranks with this rank's list have their answers.
func (d *Door) Sign(s control.Secret, own *Hello, timeout time.Duration, over <-chan struct{},
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
			case e.gone || e.hello.Ranks == 0:
			case e.hello.Without == own.Without:
				_ = e.conn.Close() // it is for the next meeting, which has not begun
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
