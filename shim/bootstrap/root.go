package bootstrap

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"time"

	"lightpath/internal/brief"
	"lightpath/shim/control"
	"lightpath/shim/settings"
)

const (
	// idleRoot is how long an unused id keeps its listener.
	idleRoot = time.Hour
	// RefusalGrace lets the root's error, which names the ranks at fault, arrive before a rank's own timeout, which
	// cannot. It is longer than a busy host stands still.
	RefusalGrace = 10 * time.Second
	// maxUnproven bounds the connections that have not proved the secret yet.
	maxUnproven = 256
)

// Hello is a rank's message to all others when a communicator is made. Its form in JSON is the protocol of this
// Version.
type Hello struct {
	Rank    int    `json:"rank"`
	Ranks   int    `json:"ranks"`
	Host    string `json:"host"`    // equal for ranks with the same kernel and /dev/shm
	Name    string `json:"name"`    // of the host, for messages
	PID     int    `json:"pid"`     // for messages
	Process uint64 `json:"process"` // same value: same process
	PIDs    string `json:"pids"`    // equal, with equal Host, for ranks in one PID namespace
	Version string `json:"version"`
	// Settings must be equal on all ranks. Otherwise they would choose differently.
	Settings string `json:"settings"`
	Fabric   string `json:"fabric"` // digest, "" without circuits
	Port     int    `json:"port"`   // on the fabric; -1: not specified
	// PortGiven: Port is LIGHTPATH_FABRIC_RANK, not a guess from the launcher's variables.
	PortGiven  bool   `json:"port_given"`
	Control    string `json:"control"`  // address for control connections, of ranks that may be leader
	Rendezvous string `json:"door"`     // address of the rank's rendezvous, "" for one rank
	Without    string `json:"without"`  // the parent's ranks that a smaller communicator leaves out
	Was        int    `json:"was"`      // if Without is set: this rank's number in the parent
	Try        int    `json:"try"`      // if Without is set: number of shrinks of the parent so far, this one included
	Places     int    `json:"places"`   // number of ids, if there are several
	TCP        string `json:"tcp"`      // address of this rank's TCP planes, "" without them
	PlaneMbps  int    `json:"mbps"`     // rate of the slowest of these planes; 0: not known
	Device     bool   `json:"device"`   // it may be given device memory
	Identity   string `json:"identity"` // identity of the rank's device, "" if NoDevice says why it is unreachable
	NoDevice   string `json:"no_device"`
	NoDirect   string `json:"no_direct"` // the setting that forbids devices to reach each other, "" if none does
	NoRemote   string `json:"no_remote"` // the setting that forbids ports to reach devices, "" if none does
	Leaves     string `json:"leaves"`    // why the rank does not take part, "" if it does
}

// Where names a rank for messages, with its host and process.
func (h *Hello) Where() string { return fmt.Sprintf("rank %d (%s, process %d)", h.Rank, h.Name, h.PID) }

// excludes describes the ranks that h leaves out, by their numbers in the parent.
func (h *Hello) excludes() string {
	return fmt.Sprintf("rank %d (%s, process %d) excludes %s", h.Was, h.Name, h.PID, h.Without)
}

// root gathers the hellos of one communicator and sends every rank the table. If ranks meet at several places, each
// place has a root, which gathers a block of ranks. The first rank of a block, its delegate, then takes its table to
// the root of the first block, and brings back the table of all.
type root struct {
	ln      net.Listener // nil at a rendezvous, which has its own
	secret  control.Secret
	timeout time.Duration
	idle    time.Duration // how long the root waits without a rank
	try     int           // at a rendezvous: the Hello.Try of this meeting's ranks
	retire  func()        // called before the ranks get the table, and at the end; may be nil
	events  chan rootEvent
	done    chan struct{}
	slots   chan struct{}
	trouble control.Trouble
}

// rootEvent is a rank's hello, a delegate's table or verdict, or (gone) the end of a connection.
type rootEvent struct {
	conn  net.Conn
	hello Hello
	block []Hello          // of a delegate
	final *control.Message // the decision of all roots together, from this root's delegate
	veto  string           // the reason why another place has refused its ranks
	class uint64           // of a veto
	try   int              // of a veto: the Try of the meeting, 0 for any
	gone  bool
}

func newRoot(s control.Secret, timeout, idle time.Duration) *root {
	return &root{
		secret: s, timeout: timeout, idle: idle,
		events: make(chan rootEvent), done: make(chan struct{}), slots: make(chan struct{}, maxUnproven),
	}
}

// StartRoot listens (at addr if it is valid) and serves one rendezvous in the background. The rendezvous ends when
// every rank has an answer, cfg.Timeout after the first rank has come, or after an hour without a rank. StartRoot
// returns its address.
func StartRoot(cfg *settings.Config, s control.Secret, addr netip.AddrPort) (netip.AddrPort, error) {
	if !addr.IsValid() {
		ip, err := control.Address(cfg.ControlInterfaces())
		if err != nil {
			return addr, err
		}
		addr = netip.AddrPortFrom(ip, 0)
	}
	addr, _, err := serveAt(addr, s, cfg.Timeout, idleRoot)
	return addr, err
}

// serveAt is StartRoot at an address and with other times. ended is closed when the rendezvous has ended.
func serveAt(addr netip.AddrPort, s control.Secret, timeout, idle time.Duration) (_ netip.AddrPort,
	ended <-chan struct{}, err error) {
	ln, err := net.Listen("tcp", addr.String())
	if err != nil {
		return addr, nil, fmt.Errorf("shim: rendezvous: %w", err)
	}
	r := newRoot(s, timeout, idle)
	r.ln = ln
	go r.accept()
	go r.serve()
	return ln.Addr().(*net.TCPAddr).AddrPort(), r.done, nil
}

func (r *root) accept() {
	control.AcceptAll(r.ln, &r.trouble, func(conn net.Conn) {
		r.slots <- struct{}{}
		go r.greet(conn)
	})
}

// greet authenticates a connection and then reads it.
func (r *root) greet(conn net.Conn) {
	err := control.Accept(conn, r.secret)
	if err != nil {
		_ = conn.Close()
	}
	<-r.slots
	if err == nil {
		r.follow(conn)
	}
}

// follow reports the messages of an authenticated connection, and its end.
func (r *root) follow(conn net.Conn) {
	_ = conn.SetReadDeadline(time.Now().Add(control.HandshakeTime))
	e := rootEvent{conn: conn}
	var m control.Message
	err := control.Read(conn, &m)
	if err == nil {
		err = e.read(&m)
	}
	_ = conn.SetReadDeadline(time.Time{})
	if err != nil || !r.post(e) {
		_ = conn.Close()
		return
	}
	// A rank sends no more; a delegate reports the result of its block.
	if err := control.Read(conn, &m); err == nil && (m.Kind == control.MsgWelcome || m.Kind == control.MsgRefuse) {
		r.post(rootEvent{conn: conn, hello: e.hello, final: &m})
		return
	}
	r.post(rootEvent{conn: conn, hello: e.hello, gone: true})
}

// read takes a connection's first message.
func (e *rootEvent) read(m *control.Message) error {
	switch m.Kind {
	case control.MsgHello:
		return decodeHello(m.Body, &e.hello)
	case control.MsgBlock:
		if err := control.DecodeStrict(m.Body, &e.block); err != nil || len(e.block) == 0 {
			return control.ErrMessage
		}
		e.hello = e.block[0]
		return nil
	case control.MsgRefuse:
		e.veto, e.class, e.try = string(m.Body), m.Seq, int(m.Arg)
		return nil
	}
	return control.ErrMessage
}

// decodeHello reads a hello. A hello of another version may have other fields, so decodeHello reads only the fields
// that a refusal names.
func decodeHello(b []byte, h *Hello) error {
	var who struct {
		Rank    int    `json:"rank"`
		Ranks   int    `json:"ranks"`
		Name    string `json:"name"`
		PID     int    `json:"pid"`
		Version string `json:"version"`
	}
	if err := json.Unmarshal(b, &who); err == nil && who.Version != Version {
		*h = Hello{Rank: who.Rank, Ranks: who.Ranks, Name: brief.Text(who.Name, 64), PID: who.PID,
			Version: brief.Text(who.Version, 64)}
		return nil
	}
	return control.DecodeStrict(b, h)
}

func (r *root) post(e rootEvent) bool {
	select {
	case r.events <- e:
		return true
	case <-r.done:
		return false
	}
}

// serve runs the meeting until all ranks have the table or a refusal.
func (r *root) serve() {
	defer close(r.done)
	if r.retire != nil {
		defer r.retire()
	}
	if r.ln != nil {
		defer r.ln.Close()
	}
	timer := time.NewTimer(r.idle)
	defer timer.Stop()
	g := &gathering{conns: map[int]net.Conn{}, settled: r.retire, try: r.try}
	blocks := &gathering{conns: map[int]net.Conn{}}
	defer g.close()
	defer blocks.close()
	for begun := false; !over(g, blocks); {
		select {
		case e := <-r.events:
			if !begun {
				begun = true
				timer.Reset(r.timeout)
			}
			g.handle(&e, blocks)
		case <-timer.C:
			for _, g := range []*gathering{g, blocks} {
				if g.ranks > 0 {
					g.refuseAs(classTimeout, fmt.Sprintf("timed out after %v: %s never arrived%v", r.timeout, g.late(),
						&r.trouble))
				}
			}
			return
		}
	}
}

// over reports whether all ranks have an answer. At the root of the first block, the delegates of the other blocks need
// one, too.
func over(g, blocks *gathering) bool {
	if g.answered == 0 || g.answered < g.expect {
		return false
	}
	return g.ranks == 0 || g.block.first > 0 || blocks.answered >= blocks.expect &&
		(blocks.answered > 0 || g.block.n == g.ranks)
}

// handle handles one event. blocks gathers the delegates.
func (g *gathering) handle(e *rootEvent, blocks *gathering) {
	switch {
	case e.gone:
		g.gone(&e.hello, e.conn)
		blocks.gone(&e.hello, e.conn)
	case e.final != nil:
		delete(g.conns, e.hello.Rank) // the delegate knows
		g.answered++
		_ = e.conn.Close()
		if e.final.Kind == control.MsgRefuse {
			g.refusal, g.class = string(e.final.Body), e.final.Seq
		}
		g.tell(e.final)
	case e.veto != "":
		if e.try == 0 || e.try == g.try {
			g.refuseAs(e.class, e.veto)
			blocks.refuseAs(e.class, e.veto)
		}
		_ = e.conn.Close()
	case e.block != nil:
		if blocks.takeBlock(e.block, e.conn) {
			blocks.welcome()
		}
	case !g.take(&e.hello, e.conn):
	case g.block.n == g.ranks:
		g.welcome()
	default:
		body, _ := json.Marshal(g.table[g.block.first : g.block.first+g.block.n]) // plain structs: cannot fail
		_ = control.Send(g.conns[g.block.first], &control.Message{Kind: control.MsgBlock, Body: body})
	}
	if g.refusal != "" {
		blocks.refuseAs(g.class, g.refusal) // delegates that come later get it too
	}
}

// takeBlock adds the table of a block, sent by its delegate.
func (g *gathering) takeBlock(block []Hello, conn net.Conn) (complete bool) {
	g.expect = max(g.expect, block[0].places())
	for i := range block {
		if g.refusal != "" {
			break
		}
		h := block[i]
		if g.ranks == 0 && h.valid() {
			g.ranks, g.table, g.block = h.Ranks, make([]*Hello, h.Ranks), span{0, h.Ranks}
		}
		g.admit(&h)
	}
	if g.refusal != "" {
		g.answer(conn, g.refuses())
		return false
	}
	g.conns[block[0].Rank] = conn
	return g.complete()
}
