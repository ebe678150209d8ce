package shim

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"
)

const (
	// idleRoot is how long an id that nobody uses keeps its listener.
	idleRoot = time.Hour
	// refusalGrace lets the root's error, which names the ranks at fault, arrive before a
	// rank's own timeout, which cannot.
	refusalGrace = 2 * time.Second
	// maxUnproven bounds connections that have not yet proved to know the secret.
	maxUnproven = 256
)

// hello is what a rank tells all others when a communicator is made.
type hello struct {
	Rank    int    `json:"rank"`
	Ranks   int    `json:"ranks"`
	Host    string `json:"host"`    // same value: same kernel and same /dev/shm
	Name    string `json:"name"`    // of the host, for messages
	PID     int    `json:"pid"`     // for messages
	Process uint64 `json:"process"` // same value: same process
	Version string `json:"version"`
	// Settings must be the same on every rank, or they would choose differently.
	Settings string `json:"settings"`
	Fabric   string `json:"fabric"` // digest, "" without circuits
	Port     int    `json:"port"`   // on the fabric, -1 where nothing says
	// PortGiven: Port is LIGHTPATH_FABRIC_RANK, not a guess from the launcher's variables.
	PortGiven bool   `json:"port_given"`
	Control   string `json:"control"` // leader only: where the control star connects
	TCP       string `json:"tcp"`     // where this rank's tcp planes connect, "" without
}

func (h *hello) where() string { return fmt.Sprintf("rank %d (%s, process %d)", h.Rank, h.Name, h.PID) }

// decodeStrict decodes JSON that a version-checked peer sent; unknown fields are damage.
func decodeStrict(b []byte, into any) error {
	d := json.NewDecoder(strings.NewReader(string(b)))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("%w: %w", errMessage, err)
	}
	return nil
}

// root gathers the hellos of one communicator and hands everyone the table.
type root struct {
	ln      net.Listener
	secret  secret
	timeout time.Duration
	events  chan rootEvent
	done    chan struct{}
	slots   chan struct{}
}

// rootEvent is a hello, or where gone is set the end of a connection that gave one.
type rootEvent struct {
	conn  net.Conn
	hello hello
	gone  bool
}

// startRoot listens (at addr where it is valid) and serves one rendezvous in the
// background.
func startRoot(cfg *Config, s secret, addr netip.AddrPort) (netip.AddrPort, error) {
	if !addr.IsValid() {
		ip, err := controlAddr(cfg.controlIf())
		if err != nil {
			return addr, err
		}
		addr = netip.AddrPortFrom(ip, 0)
	}
	ln, err := net.Listen("tcp", addr.String())
	if err != nil {
		return addr, fmt.Errorf("shim: rendezvous: %w", err)
	}
	r := &root{
		ln: ln, secret: s, timeout: cfg.Timeout,
		events: make(chan rootEvent), done: make(chan struct{}), slots: make(chan struct{}, maxUnproven),
	}
	go r.accept()
	go r.serve()
	return ln.Addr().(*net.TCPAddr).AddrPort(), nil
}

func (r *root) accept() {
	for {
		conn, err := r.ln.Accept()
		if err != nil {
			return // closed by serve
		}
		r.slots <- struct{}{}
		go r.greet(conn)
	}
}

// greet authenticates one connection and reports its hello, then its end.
func (r *root) greet(conn net.Conn) {
	h, err := r.readHello(conn)
	<-r.slots
	if err != nil || !r.post(rootEvent{conn: conn, hello: h}) {
		_ = conn.Close()
		return
	}
	_, _ = conn.Read(make([]byte, 1)) // a rank says nothing more: this is the end of it
	r.post(rootEvent{conn: conn, hello: h, gone: true})
}

func (r *root) readHello(conn net.Conn) (h hello, err error) {
	if err = acceptPeer(conn, r.secret); err != nil {
		return h, err
	}
	_ = conn.SetReadDeadline(time.Now().Add(handshakeTime))
	var m message
	if err = readMessage(conn, &m); err != nil {
		return h, err
	}
	_ = conn.SetReadDeadline(time.Time{})
	if m.Kind != msgHello {
		return h, errMessage
	}
	return h, decodeHello(m.Body, &h)
}

// decodeHello reads a hello. Of one of another version, whose fields may be others, it reads no
// more than what it takes to refuse that by name.
func decodeHello(b []byte, h *hello) error {
	var who struct {
		Rank    int    `json:"rank"`
		Ranks   int    `json:"ranks"`
		Name    string `json:"name"`
		PID     int    `json:"pid"`
		Version string `json:"version"`
	}
	if err := json.Unmarshal(b, &who); err == nil && who.Version != Version {
		*h = hello{Rank: who.Rank, Ranks: who.Ranks, Name: cut(who.Name, 64), PID: who.PID, Version: cut(who.Version, 64)}
		return nil
	}
	return decodeStrict(b, h)
}

func (r *root) post(e rootEvent) bool {
	select {
	case r.events <- e:
		return true
	case <-r.done:
		return false
	}
}

// serve runs the rendezvous: until everyone has the table, or the refusal.
func (r *root) serve() {
	defer close(r.done)
	defer r.ln.Close()
	timer := time.NewTimer(idleRoot)
	defer timer.Stop()
	g := gathering{conns: map[int]net.Conn{}}
	defer g.close()
	for g.answered == 0 || g.answered < g.expect {
		select {
		case e := <-r.events:
			if g.expect == 0 {
				timer.Reset(r.timeout)
			}
			g.take(e)
		case <-timer.C:
			if g.refusal == "" && g.ranks > 0 {
				g.refuse(fmt.Sprintf("timed out after %v: %s never arrived", r.timeout, listRanks(g.missing())))
			}
			return
		}
	}
}

// gathering is the state of a rendezvous.
type gathering struct {
	ranks    int
	table    []*hello
	conns    map[int]net.Conn // by rank
	refusal  string
	answered int
	expect   int // the most ranks that anyone spoke of: so many want an answer
}

func (g *gathering) take(e rootEvent) {
	h := e.hello
	if e.gone {
		if g.refusal == "" && g.answered == 0 && g.conns[h.Rank] == e.conn {
			g.refuse(h.where() + " left while the communicator was made")
		}
		return
	}
	if h.Ranks <= maxRanks {
		g.expect = max(g.expect, h.Ranks)
	}
	if g.refusal == "" {
		g.admit(&h, e.conn)
	}
	if g.refusal != "" {
		g.answer(e.conn, &message{Kind: msgRefuse, Body: []byte(g.refusal)})
		return
	}
	if len(g.conns) == g.ranks {
		body, _ := json.Marshal(g.table) // plain structs: cannot fail
		welcome := &message{Kind: msgWelcome, Arg: randomID(), Body: body}
		for _, conn := range g.conns {
			g.answer(conn, welcome)
		}
	}
}

// admit adds a hello to the table, or refuses everyone.
func (g *gathering) admit(h *hello, conn net.Conn) {
	if g.ranks == 0 && h.Ranks > 0 && h.Ranks <= maxRanks {
		g.ranks, g.table = h.Ranks, make([]*hello, h.Ranks)
	}
	var first *hello
	for _, t := range g.table {
		if t != nil {
			first = t
			break
		}
	}
	switch {
	case first != nil && h.Ranks != first.Ranks:
		g.refuse(fmt.Sprintf("%s says the communicator has %d ranks, %s says %d", first.where(), first.Ranks, h.where(), h.Ranks))
	case h.Rank < 0 || h.Rank >= g.ranks:
		g.refuse(fmt.Sprintf("%s is not one of %d ranks", h.where(), g.ranks))
	case g.table[h.Rank] != nil:
		g.refuse(fmt.Sprintf("%s and process %d on %s both claim to be rank %d", g.table[h.Rank].where(), h.PID, h.Name, h.Rank))
	case first != nil && h.Version != first.Version:
		g.refuse(fmt.Sprintf("%s runs Lightpath %s, %s runs %s", first.where(), first.Version, h.where(), h.Version))
	case h.Version != Version:
		g.refuse(fmt.Sprintf("%s runs Lightpath %s, the rendezvous %s", h.where(), h.Version, Version))
	case first != nil && h.Fabric != first.Fabric:
		g.refuse(fmt.Sprintf("%s has fabric %s, %s has %s", first.where(), fabricName(first.Fabric), h.where(), fabricName(h.Fabric)))
	case first != nil && h.Settings != first.Settings:
		g.refuse(fmt.Sprintf("%s is set to %s, %s to %s", first.where(), first.Settings, h.where(), h.Settings))
	default:
		g.table[h.Rank], g.conns[h.Rank] = h, conn
	}
}

// refuse tells everyone who is there, and later all who come.
func (g *gathering) refuse(why string) {
	g.refusal = why
	for _, conn := range g.conns {
		g.answer(conn, &message{Kind: msgRefuse, Body: []byte(why)})
	}
}

func (g *gathering) answer(conn net.Conn, m *message) {
	g.answered++
	_ = conn.SetWriteDeadline(time.Now().Add(handshakeTime))
	_, _ = conn.Write(appendMessage(nil, m)) // a rank that is gone gets no answer
	_ = conn.Close()
}

func (g *gathering) missing() (ranks []int) {
	for r, h := range g.table {
		if h == nil {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

func (g *gathering) close() {
	for _, conn := range g.conns {
		_ = conn.Close()
	}
}

func fabricName(digest string) string {
	if digest == "" {
		return "none"
	}
	return cut(digest, 16)
}

// listRanks names ranks for a message, the first eight of many.
func listRanks(ranks []int) string {
	s := "rank"
	if len(ranks) != 1 {
		s += "s"
	}
	for i, r := range ranks {
		if i == 8 {
			return fmt.Sprintf("%s and %d more", s, len(ranks)-i)
		}
		sep := " "
		if i > 0 {
			sep = ", "
		}
		s += fmt.Sprint(sep, r)
	}
	return s
}

// meet is a rank's side: it gives its hello and returns the communicator's number and
// everyone's hello.
func meet(addr netip.AddrPort, s secret, h *hello, timeout time.Duration) (uint64, []hello, error) {
	deadline := time.Now().Add(timeout + refusalGrace)
	conn, err := dialPeer(addr, s, deadline)
	if err != nil {
		return 0, nil, fmt.Errorf("shim: rank %d: rendezvous: %w", h.Rank, err)
	}
	defer conn.Close()
	body, err := json.Marshal(h)
	if err != nil {
		return 0, nil, fmt.Errorf("shim: rank %d: rendezvous: %w", h.Rank, err)
	}
	_ = conn.SetDeadline(deadline)
	if _, err := conn.Write(appendMessage(nil, &message{Kind: msgHello, From: uint16(h.Rank), Body: body})); err != nil {
		return 0, nil, fmt.Errorf("shim: rank %d: rendezvous: %w: %w", h.Rank, err, ErrRemote)
	}
	var m message
	if err := readMessage(conn, &m); err != nil {
		class := ErrRemote
		var netErr net.Error
		if errors.As(err, &netErr) && netErr.Timeout() {
			class = ErrTimeout
		}
		return 0, nil, fmt.Errorf("shim: rank %d: rendezvous at %v: %w: %w", h.Rank, addr, err, class)
	}
	return readTable(&m, h)
}

// readTable checks the root's answer.
func readTable(m *message, h *hello) (uint64, []hello, error) {
	if m.Kind == msgRefuse {
		class := ErrInvalidUsage
		if strings.HasPrefix(string(m.Body), "timed out") {
			class = ErrTimeout
		}
		return 0, nil, fmt.Errorf("shim: rank %d: communicator not made: %s: %w", h.Rank, m.Body, class)
	}
	var table []hello
	if m.Kind != msgWelcome {
		return 0, nil, fmt.Errorf("shim: rank %d: rendezvous: %w", h.Rank, errMessage)
	}
	if err := decodeStrict(m.Body, &table); err != nil {
		return 0, nil, fmt.Errorf("shim: rank %d: rendezvous: %w", h.Rank, err)
	}
	if len(table) != h.Ranks || table[h.Rank] != *h {
		return 0, nil, fmt.Errorf("shim: rank %d: rendezvous: table of %d ranks is not ours: %w", h.Rank, len(table), errMessage)
	}
	return m.Arg, table, nil
}
