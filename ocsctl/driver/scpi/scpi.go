package scpi

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"lightpath/ocsctl/driver"
	"lightpath/plans/circuit"
)

// Name is the driver's name in fabric files.
const Name = "polatis-scpi"

// defaultAveraging is the default window of the power meters.
const defaultAveraging = 80 * time.Millisecond

// maxQuery is the largest number of ports in one query.
const maxQuery = 256

// Open connects to a switch. Endpoint is host:port; the labels of Ports are the numbers of ingress and egress ports.
// Without egress ports, port p has the egress port size+p.
func Open(ctx context.Context, t driver.Target) (driver.Switch, error) {
	s := &swtch{
		turn: make(chan struct{}, 1), tol: t.Tolerance, port: make(map[int]int),
		wire: wire{endpoint: t.Endpoint, insecure: t.Insecure, timeout: t.AnswerTime(), dial: t.Connect},
	}
	if t.Dialect != "" {
		return nil, fmt.Errorf("scpi: there is no dialect %q", t.Dialect)
	}
	if s.tol.Averaging <= 0 {
		s.tol.Averaging = defaultAveraging
	}
	if err := s.number(t.Ports); err != nil {
		return nil, err
	}
	if err := s.greet(ctx); err != nil {
		s.wire.close()
		return nil, err
	}
	return s, nil
}

// swtch is a driver.Switch.
type swtch struct {
	turn    chan struct{} // holds one value while a call runs: SCPI answers one line at a time
	wire    wire
	tol     driver.Tolerance
	info    driver.Info
	ident   string // vendor, model and serial number, "" before the first greeting
	size    int
	in, out []int       // port numbers by port of the map
	port    map[int]int // the reverse, of both sides
	table   int         // number of circuits of the switch at the last reading, including those of other writers
	asked   bool        // probe has run in this session
	states  bool        // it says how ports are
	metered []bool      // by port of the map: the egress port has a power meter
	closed  bool
}

// number reads the port numbers. Those of the egress side may depend on the switch's size.
func (s *swtch) number(p driver.Ports) (err error) {
	if len(p.Out) != len(p.In) && p.Out != nil || len(p.In) == 0 {
		return fmt.Errorf("scpi: %d ingress and %d egress ports", len(p.In), len(p.Out))
	}
	if s.in, err = s.side(p.In); err == nil {
		s.out, err = s.side(p.Out)
	}
	return err
}

func (s *swtch) side(labels []string) ([]int, error) {
	var numbers []int
	for r, label := range labels {
		n, err := strconv.ParseUint(label, 10, 16)
		if err != nil || n == 0 {
			return nil, fmt.Errorf("scpi: port %q is not a port number", label)
		}
		if _, twice := s.port[int(n)]; twice {
			return nil, fmt.Errorf("scpi: port %d appears twice", n)
		}
		s.port[int(n)] = r
		numbers = append(numbers, int(n))
	}
	return numbers, nil
}

// greet reads the switch's identity and its number of ports.
func (s *swtch) greet(ctx context.Context) error {
	if err := s.identify(ctx); err != nil {
		return err
	}
	reply, err := s.ask(ctx, ":OXC:SWIT:SIZE?", s.wire.timeout)
	if err != nil {
		return err
	}
	left, right, _ := strings.Cut(reply, ",")
	n, err1 := strconv.ParseUint(strings.TrimSpace(left), 10, 16)
	m, err2 := strconv.ParseUint(strings.TrimSpace(right), 10, 16)
	if err1 != nil || err2 != nil || n == 0 || m == 0 || n+m > maxPorts {
		return s.unexpected(protocolError("no size", reply))
	}
	s.size = int(n)
	if s.out == nil {
		for r, number := range s.in {
			s.out = append(s.out, number+s.size)
			s.port[number+s.size] = r
		}
	}
	for r := range s.in {
		if s.in[r] > int(n) || s.out[r] <= int(n) || s.out[r] > int(n+m) {
			return fmt.Errorf("scpi: %w: ports %d and %d: %s has ingress ports 1..%d and egress ports %d..%d", driver.ErrPorts,
				s.in[r], s.out[r], s.wire.endpoint, n, n+1, n+m)
		}
	}
	return nil
}

// identify reads the switch's identity, and returns an error if it has changed.
func (s *swtch) identify(ctx context.Context) error {
	if s.wire.conn == nil {
		s.asked = false // another session: the switch may have changed
	}
	reply, err := s.wire.ask(ctx, "*IDN?", s.wire.timeout)
	if err != nil {
		return err
	}
	words := strings.SplitN(reply, ",", 4) // a fifth field belongs to the software
	if len(words) != 4 || len(reply) > 256 {
		return s.unexpected(protocolError("no identification", reply))
	}
	for i := range words {
		words[i] = strings.TrimSpace(words[i])
	}
	ident := strings.Join(words[:3], ",")
	if s.ident != "" && s.ident != ident {
		return s.unexpected(fmt.Errorf("scpi: %s: another switch answers: %q, before %q", s.wire.endpoint, ident, s.ident))
	}
	s.ident = ident
	s.info.Vendor, s.info.Model, s.info.Serial, s.info.Software, s.info.Dialect = words[0], words[1],
		words[2], words[3], Name
	return nil
}

// ask is wire.ask. If that opens a session, ask checks the switch's identity.
func (s *swtch) ask(ctx context.Context, line string, within time.Duration) (string, error) {
	if s.wire.conn == nil {
		if err := s.identify(ctx); err != nil {
			return "", err
		}
	}
	return s.wire.ask(ctx, line, within)
}

// Info implements driver.Switch.
func (s *swtch) Info(ctx context.Context) (driver.Info, error) {
	release, err := s.acquire(ctx)
	if err != nil {
		return driver.Info{}, err
	}
	defer release()
	if err := s.greet(ctx); err != nil {
		return driver.Info{}, err
	}
	if err := s.probe(ctx); err != nil {
		return driver.Info{}, err
	}
	return s.info, nil
}

// Read implements driver.Switch.
func (s *swtch) Read(ctx context.Context) (circuit.Permutation, error) {
	release, err := s.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	return s.Map(ctx)
}

// Apply implements driver.Switch.
func (s *swtch) Apply(ctx context.Context, c driver.Change) ([]driver.Circuit, error) {
	release, err := s.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	return driver.Carry(ctx, protocol{s}, c, s.tol)
}

// Close implements driver.Switch.
func (s *swtch) Close() error {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	s.closed = true
	s.wire.close()
	return nil
}

// acquire waits until no other call runs. The caller must call release.
func (s *swtch) acquire(ctx context.Context) (release func(), err error) {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	release = func() { <-s.turn }
	if err = ctx.Err(); s.closed {
		err = fmt.Errorf("scpi: %w", driver.ErrClosed)
	}
	if err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// Map reads the table.
func (s *swtch) Map(ctx context.Context) (circuit.Permutation, error) {
	reply, err := s.ask(ctx, ":OXC:SWIT:CONN:STAT?", s.wire.timeout)
	if err != nil {
		return nil, err
	}
	in, out, err := parseTable(reply)
	if strings.TrimSpace(reply) == "" { // no circuits, an error, or the end of an earlier answer
		err = s.noError(ctx)
	}
	if err != nil {
		return nil, s.unexpected(err)
	}
	s.table = len(in)
	p := circuit.AllDark(len(s.in))
	from := make([]bool, len(p))
	var bad error
	for i := range in {
		if in[i] > s.size { // some switches report a circuit from its egress port
			in[i], out[i] = out[i], in[i]
		}
		r, ours1 := s.port[in[i]]
		q, ours2 := s.port[out[i]]
		switch {
		case !ours1 && !ours2:
		case in[i] > s.size || out[i] <= s.size:
			bad = fmt.Errorf("scpi: %w: port %d goes to port %d of the same side", driver.ErrNotMatching, in[i], out[i])
		case ours1 != ours2:
			bad = fmt.Errorf("scpi: %w: port %d goes to port %d, and only one of them is of this map",
				driver.ErrNotMatching, in[i], out[i])
		case p[r] != circuit.Dark || from[q]:
			bad = fmt.Errorf("scpi: %w: port %d to port %d is a second circuit", driver.ErrNotMatching, in[i], out[i])
		default:
			p[r], from[q] = q, true
		}
	}
	return p, bad
}

// noError returns the first error of the switch's error queue, and ErrProtocol for another answer than a queue.
func (s *swtch) noError(ctx context.Context) error {
	reply, err := s.ask(ctx, ":SYST:ERR:ALL?", s.wire.timeout)
	if err != nil {
		return err
	}
	problems, err := parseErrors(reply)
	if len(problems) > 0 {
		err = fmt.Errorf("scpi: %w: no table of circuits: %s", driver.ErrProtocol, problems[0])
	}
	return err
}

// protocol implements driver.Protocol. The caller holds the lock.
type protocol struct{ s *swtch }

func (p protocol) Map(ctx context.Context) (circuit.Permutation, error) { return p.s.Map(ctx) }

// Send requests SUB and ADD. If no circuit of the switch's table stays, and all of its ports are in the map, Send
// requests ONLY. So the switch plans the whole motion at once.
func (p protocol) Send(ctx context.Context, _ uint64, remove, add []circuit.Pair) ([]error, error) {
	line := "*CLS"
	if len(add) > 0 && len(remove) == p.s.table && len(p.s.in) == p.s.size {
		line += ";:OXC:SWIT:CONN:ONLY " + p.s.lists(add)
	} else {
		if len(remove) > 0 {
			line += ";:OXC:SWIT:CONN:SUB " + p.s.lists(remove)
		}
		if len(add) > 0 {
			line += ";:OXC:SWIT:CONN:ADD " + p.s.lists(add)
		}
	}
	reply, err := p.s.ask(ctx, line+";:SYST:ERR:ALL?", p.s.wire.timeout)
	if err != nil {
		return nil, err
	}
	problems, err := parseErrors(reply)
	if err != nil || len(problems) == 0 {
		return nil, p.s.unexpected(err)
	}
	// The queue does not name circuits, so each circuit gets the error. The map, read afterwards, shows which are missing.
	refused := make([]error, len(remove)+len(add))
	for i := range refused {
		refused[i] = fmt.Errorf("%w: %s", driver.ErrRefused, problems[0])
	}
	return refused, nil
}

func (s *swtch) lists(pairs []circuit.Pair) string {
	in, out := make([]int, len(pairs)), make([]int, len(pairs))
	for i, c := range pairs {
		in[i], out[i] = s.in[c.From], s.out[c.To]
	}
	return listText(in) + "," + listText(out)
}

// States waits for the end of the motion, until the context ends, and reads the states of the ports.
func (p protocol) States(ctx context.Context, circuits []circuit.Pair) ([]driver.State, error) {
	reply, err := p.s.ask(ctx, "*OPC?", 0)
	if err != nil {
		return nil, err
	}
	if strings.TrimSpace(reply) != "1" {
		return nil, p.s.unexpected(protocolError("not the end of the motion", reply))
	}
	var numbers []int
	for _, c := range circuits {
		numbers = append(numbers, p.s.in[c.From], p.s.out[c.To])
	}
	if err := p.s.probe(ctx); err != nil || !p.s.states {
		return nil, err
	}
	words, err := p.s.portStates(ctx, numbers)
	if err != nil {
		return nil, err
	}
	states := make([]driver.State, len(circuits))
	for i := range states {
		states[i] = driver.Failed
		if words[2*i] == enabled && words[2*i+1] == enabled {
			states[i] = driver.Up
		}
	}
	return states, nil
}

// Light reads the power meters of the egress ports.
func (p protocol) Light(ctx context.Context, circuits []circuit.Pair) ([]float64, error) {
	if err := p.s.probe(ctx); err != nil || !p.s.info.CanLight {
		return nil, err
	}
	to := make([]int, len(circuits))
	for i, c := range circuits {
		to[i] = c.To
	}
	return p.s.light(ctx, to)
}

// light returns the received power of egress ports of the map, NaN for a port without a meter.
func (s *swtch) light(ctx context.Context, ports []int) ([]float64, error) {
	var numbers, at []int
	all := make([]float64, len(ports))
	for i, port := range ports {
		if all[i] = math.NaN(); s.metered[port] {
			numbers, at = append(numbers, s.out[port]), append(at, i)
		}
	}
	dbm, err := s.powers(ctx, numbers)
	for i := range dbm {
		all[at[i]] = dbm[i]
	}
	return all, err
}

// unexpected ends the session after an answer of another form, which may be the answer to an earlier line. The next
// line opens another session, which identifies and probes the switch again.
func (s *swtch) unexpected(err error) error {
	if err != nil {
		s.wire.close()
	}
	return err
}

func (s *swtch) portStates(ctx context.Context, numbers []int) ([]string, error) {
	return inParts(numbers, func(part []int) ([]string, error) {
		reply, err := s.ask(ctx, ":OXC:SWIT:PORT:STAT? "+listText(part), s.wire.timeout)
		if err != nil {
			return nil, err
		}
		words, err := parseWords(reply, len(part))
		if err == nil && slices.ContainsFunc(words, func(w string) bool { return !isState(w) }) {
			err = protocolError("no state of a port", reply)
		}
		return words, s.unexpected(err)
	})
}

func (s *swtch) powers(ctx context.Context, numbers []int) ([]float64, error) {
	return inParts(numbers, func(part []int) ([]float64, error) {
		reply, err := s.ask(ctx, ":PMON:POW? "+listText(part), s.wire.timeout)
		if err != nil {
			return nil, err
		}
		dbm, err := parsePowers(reply, len(part))
		return dbm, s.unexpected(err)
	})
}

// inParts divides a query about many ports into several.
func inParts[T any](numbers []int, ask func(part []int) ([]T, error)) ([]T, error) {
	var all []T
	for len(numbers) > 0 {
		n := min(len(numbers), maxQuery)
		part, err := ask(numbers[:n])
		if err != nil {
			return nil, err
		}
		all, numbers = append(all, part...), numbers[n:]
	}
	return all, nil
}

// Health implements driver.Switch: ingress ports first, then egress ports, which have the detectors.
func (s *swtch) Health(ctx context.Context) ([]driver.Health, error) {
	release, err := s.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	if err := s.probe(ctx); err != nil {
		return nil, err
	}
	numbers := append(append([]int(nil), s.in...), s.out...)
	var words []string
	if s.states {
		if words, err = s.portStates(ctx, numbers); err != nil {
			return nil, err
		}
	}
	every := make([]int, len(s.out))
	for r := range every {
		every[r] = r
	}
	dbm, err := s.light(ctx, every)
	if err != nil {
		return nil, err
	}
	all := make([]driver.Health, len(numbers))
	for i, number := range numbers {
		all[i].Port = strconv.Itoa(number)
		if words != nil {
			all[i].State, all[i].Failed = map[string]string{enabled: "ENABLED", disabled: "DISABLED",
				failed: "FAILED"}[words[i]], words[i] != enabled
		}
		if k := i - len(s.in); k >= 0 && !math.IsNaN(dbm[k]) {
			all[i].PowerDBm, all[i].HasPower = dbm[k], true
		}
	}
	return all, nil
}
