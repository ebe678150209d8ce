package scpi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"lightpath/ocsctl/device"
	"lightpath/ocsctl/device/gate"
	"lightpath/plans/circuit"
)

// Limits of the server.
const (
	maxSessions = 16
	maxErrors   = 64
	lineTime    = 10 * time.Second // to receive the rest of a line, and to send an answer
	idleTime    = 10 * time.Minute
)

// Serve answers clients that connect to l until the context ends, and closes l.
func Serve(ctx context.Context, l net.Listener, d *device.Device) error {
	ctx, cancel := context.WithCancel(ctx)
	clients := gate.New(l, d, maxSessions)
	var sessions sync.WaitGroup
	defer sessions.Wait()
	defer clients.Close() //nolint:errcheck // Accept has failed
	defer cancel()
	defer context.AfterFunc(ctx, func() { clients.Close() })() //nolint:errcheck // Accept fails
	for {
		conn, err := clients.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("scpi: %w", err)
		}
		sessions.Go(func() {
			defer conn.Close()
			(&session{d: d, conn: conn}).run(ctx)
		})
	}
}

// session is one client.
type session struct {
	d      *device.Device
	conn   net.Conn
	errors []standardError
}

func (s *session) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := bufio.NewReaderSize(s.conn, 4096)
	for {
		line, err := s.line(r)
		if err != nil {
			return
		}
		answer := s.execute(ctx, line)
		if !s.d.Up() {
			return
		}
		if answer == "" || s.d.DropReply() {
			continue
		}
		s.conn.SetWriteDeadline(time.Now().Add(lineTime)) //nolint:errcheck // the write reports it
		if _, err := io.WriteString(s.conn, answer+"\r\n"); err != nil {
			return
		}
	}
}

var errLong = errors.New("line too long")

// line reads up to a line feed, which may come after a carriage return.
func (s *session) line(r *bufio.Reader) (string, error) {
	s.conn.SetReadDeadline(time.Now().Add(idleTime)) //nolint:errcheck // the read reports it
	if _, err := r.Peek(1); err != nil {
		return "", err
	}
	s.conn.SetReadDeadline(time.Now().Add(lineTime)) //nolint:errcheck // the read reports it
	var all []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(all)+len(part) > maxLine {
			return "", errLong
		}
		all = append(all, part...)
		if err == nil {
			return strings.TrimRight(string(all), "\r\n"), nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return "", err
		}
	}
}

// execute executes a line and returns the answers of its queries, separated by semicolons.
func (s *session) execute(ctx context.Context, line string) string {
	var answers []string
	size := 0
	for _, c := range split(line) {
		if size > maxAnswer {
			s.push(errTooMuch)
			break
		}
		answer, err := s.one(ctx, c)
		var e standardError
		if errors.As(err, &e) {
			s.push(e)
		} else if answer != "" {
			answers = append(answers, answer)
			size += len(answer)
		}
	}
	return strings.Join(answers, ";")
}

func (s *session) push(e standardError) {
	switch {
	case len(s.errors) < maxErrors-1:
		s.errors = append(s.errors, e)
	case len(s.errors) < maxErrors:
		s.errors = append(s.errors, errOverflow)
	}
}

// one executes one command and returns the answer, if it is a query.
func (s *session) one(ctx context.Context, c command) (string, error) {
	if strings.HasSuffix(c.header, "?") {
		return s.query(ctx, c)
	}
	return "", s.change(ctx, c)
}

// change executes a command that is not a query.
func (s *session) change(ctx context.Context, c command) error {
	switch c.header {
	case "*CLS":
		s.errors = nil
		return nil
	case "*RST", "OXC:SWIT:DISC:ALL":
		return s.replace(ctx, nil, nil)
	case "OXC:SWIT:CONN:ADD", "OXC:SWIT:CONN:ONLY", "OXC:SWIT:CONN:SUB":
	default:
		return errHeader.about(c.header)
	}
	l, err := lists(c.params, 2)
	if err != nil {
		return err
	}
	switch c.header {
	case "OXC:SWIT:CONN:ADD":
		return s.add(ctx, l[0], l[1])
	case "OXC:SWIT:CONN:ONLY":
		return s.replace(ctx, l[0], l[1])
	}
	return s.sub(ctx, l[0], l[1])
}

// query answers a query.
func (s *session) query(ctx context.Context, c command) (string, error) {
	n := s.d.Ports()
	switch c.header {
	case "*IDN?":
		i := s.d.Info()
		return strings.Join([]string{i.Vendor, i.Model, i.Serial, i.Software}, ","), nil
	case "*OPC?":
		if s.d.Wait(ctx) != nil {
			return "", errFailed
		}
		return "1", nil
	case "OXC:SWIT:SIZE?":
		return fmt.Sprintf("%d,%d", n, n), nil
	case "OXC:SWIT:CONN:STAT?":
		var in, out []int
		for _, row := range s.d.Table() {
			in, out = append(in, row.In+1), append(out, row.Out+1+n)
		}
		return text(in) + "," + text(out), nil
	case "OXC:SWIT:CONN:PORT?":
		return s.peer(c.params)
	case "OXC:SWIT:PORT:STAT?":
		return s.each(c.params, func(port int, side device.Side) (string, error) {
			if s.d.Status(port, side) == device.Failed {
				return "F", nil
			}
			return "E", nil
		})
	case "PMON:POW?":
		return s.each(c.params, func(port int, side device.Side) (string, error) {
			dbm, ok := s.d.PowerDBm(port, side)
			if !ok {
				return "", errHardware
			}
			return strconv.FormatFloat(dbm, 'f', 2, 64), nil
		})
	case "SYST:ERR?", "SYST:ERR:NEXT?":
		return s.popErrors(1), nil
	case "SYST:ERR:ALL?":
		return s.popErrors(maxErrors), nil
	}
	return "", errHeader.about(c.header)
}

func (s *session) popErrors(n int) string {
	n = min(n, len(s.errors))
	if n == 0 {
		return `0,"No error"`
	}
	parts := make([]string, n)
	for i, e := range s.errors[:n] {
		parts[i] = e.Error()
	}
	s.errors = s.errors[n:]
	return strings.Join(parts, ",")
}

func (s *session) port(number int) (int, device.Side, error) {
	n := s.d.Ports()
	switch {
	case number >= 1 && number <= n:
		return number - 1, device.Ingress, nil
	case number > n && number <= 2*n:
		return number - 1 - n, device.Egress, nil
	}
	return 0, 0, errRange.about(fmt.Sprintf("port %d", number))
}

// pairs matches ingress with egress ports.
func (s *session) pairs(in, out []int) ([]circuit.Pair, error) {
	if len(in) != len(out) {
		return nil, errSyntax.about("lists of different lengths")
	}
	var all []circuit.Pair
	for i := range in {
		from, side1, err1 := s.port(in[i])
		to, side2, err2 := s.port(out[i])
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		if side1 != device.Ingress || side2 != device.Egress {
			return nil, errRange.about(fmt.Sprintf("ports %d and %d are not ingress and egress", in[i], out[i]))
		}
		all = append(all, circuit.Pair{From: from, To: to})
	}
	return all, nil
}

func (s *session) add(ctx context.Context, in, out []int) error {
	pairs, err := s.pairs(in, out)
	if err != nil {
		return err
	}
	for _, err := range s.d.Check(nil, pairs) { // refused as a whole
		if err != nil {
			return errConflict.about(err.Error())
		}
	}
	return s.apply(ctx, nil, pairs)
}

func (s *session) sub(ctx context.Context, in, out []int) error {
	if len(out) == 0 { // all circuits of the ingress ports
		for _, number := range in {
			port, side, err := s.port(number)
			if err != nil || side != device.Ingress {
				return errRange.about(fmt.Sprintf("port %d", number))
			}
			to := s.d.Map()[port]
			out = append(out, to+1+s.d.Ports())
			if to == circuit.Dark {
				return errConflict.about(fmt.Sprintf("port %d has no circuit", number))
			}
		}
	}
	pairs, err := s.pairs(in, out)
	if err != nil {
		return err
	}
	return s.apply(ctx, pairs, nil)
}

func (s *session) replace(ctx context.Context, in, out []int) error {
	pairs, err := s.pairs(in, out)
	if err != nil {
		return err
	}
	to := circuit.AllDark(s.d.Ports())
	for _, p := range pairs {
		if to[p.From] != circuit.Dark {
			return errConflict.about(fmt.Sprintf("port %d twice", p.From+1))
		}
		to[p.From] = p.To
	}
	if err := s.d.Replace(ctx, to, device.Bulk); err != nil {
		return errConflict.about(err.Error())
	}
	return nil
}

// apply executes a request, and adds refusals to the error queue.
func (s *session) apply(ctx context.Context, remove, add []circuit.Pair) error {
	for _, err := range s.d.Apply(ctx, remove, add, device.Bulk) {
		if err != nil {
			s.push(errFailed.about(err.Error()))
		}
	}
	return nil
}

// peer returns the port to which a port is connected.
func (s *session) peer(params string) (string, error) {
	number, err := strconv.Atoi(params)
	if err != nil {
		return "", errSyntax
	}
	port, side, err := s.port(number)
	if err != nil {
		return "", err
	}
	for _, row := range s.d.Table() {
		if side == device.Ingress && row.In == port {
			return fmt.Sprintf("%q", strconv.Itoa(row.Out+1+s.d.Ports())), nil
		}
		if side == device.Egress && row.Out == port {
			return fmt.Sprintf("%q", strconv.Itoa(row.In+1)), nil
		}
	}
	return `""`, nil
}

// each answers a query about a list of ports.
func (s *session) each(params string, one func(port int, side device.Side) (string, error)) (string, error) {
	l, err := lists(params, 1)
	if err != nil {
		return "", err
	}
	if len(l[0]) > maxQuery {
		return "", errTooMuch
	}
	words := make([]string, len(l[0]))
	for i, number := range l[0] {
		port, side, err := s.port(number)
		if err != nil {
			return "", err
		}
		if words[i], err = one(port, side); err != nil {
			return "", err
		}
	}
	return "(" + strings.Join(words, ",") + ")", nil
}
