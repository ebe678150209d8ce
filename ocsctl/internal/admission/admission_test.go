package admission

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// address is a peer's.
type address string

func (a address) Network() string { return "tcp" }
func (a address) String() string  { return string(a) }

// queue is a listener of connections that were made beforehand.
type queue struct {
	net.Listener
	all []net.Conn
}

func (q *queue) Accept() (net.Conn, error) {
	if len(q.all) == 0 {
		return nil, net.ErrClosed
	}
	c := q.all[0]
	q.all = q.all[1:]
	return c, nil
}

// end is one end of a connection.
type end struct {
	net.Conn
	from   address
	closed bool
}

func (e *end) RemoteAddr() net.Addr { return e.from }

func (e *end) Close() error {
	e.closed = true
	return nil
}

// arrive has connections from these addresses accepted.
func arrive(t *testing.T, l *Listener, from ...string) (all []*Conn) {
	t.Helper()
	for _, a := range from {
		l.Listener.(*queue).all = append(l.Listener.(*queue).all, &end{from: address(a)})
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c.(*Conn))
	}
	return all
}

func open(all []*Conn) string {
	var b strings.Builder
	for _, c := range all {
		b.WriteString(map[bool]string{true: "-", false: "o"}[c.Conn.(*end).closed])
	}
	return b.String()
}

func TestOldestOfItsSourceGivesWay(t *testing.T) {
	l := Listen(new(queue), Options{Pending: 6, PerSource: 3, Refused: NewRefusals(nil)})
	all := arrive(t, l, "10.0.0.1:1", "10.0.0.1:2", "10.0.0.2:1", "10.0.0.1:3")
	all[0].Admit()
	all = append(all, arrive(t, l, "10.0.0.1:4")...)
	if got := open(all); got != "ooooo" {
		t.Errorf("3 of a source: %s", got)
	}
	all = append(all, arrive(t, l, "10.0.0.1:5")...)
	if got := open(all); got != "o-oooo" {
		t.Errorf("4 of a source: %s", got)
	}
	all[0].Wait() // its request has been answered
	if got := open(all); got != "o-o-oo" {
		t.Errorf("the admitted one is pending again: %s", got)
	}
	all = append(all, arrive(t, l, "[2001:db8::1]:1", "[2001:db8::2]:1")...)
	all = append(all, arrive(t, l, "[2001:db8:0:1::1]:1")...)
	if got := open(all); got != "o-o--oooo" {
		t.Errorf("7 in all: %s", got)
	}
	for _, c := range all {
		_ = c.Close()
		c.Wait() // too late
	}
	if l.pending != 0 || len(l.sources) != 0 {
		t.Errorf("%d pending of %d sources after all were closed", l.pending, len(l.sources))
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

func TestOf(t *testing.T) {
	l := Listen(new(queue), Options{Pending: 1, PerSource: 1, Refused: NewRefusals(nil)})
	c := arrive(t, l, "10.0.0.1:1")[0]
	if Of(tls.Server(c, nil)) != c || Of(c) != c {
		t.Error("not found below TLS")
	}
	none := Of(&end{})
	none.Admit()
	none.Wait()
	if none != nil || Of(nil) != nil {
		t.Error("found where there is none")
	}
}

func TestRefusalsInFewLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer // guarded by the lock of r
		r := NewRefusals(slog.New(slog.NewTextHandler(&text, nil)))
		note := func(n int) {
			for i := range n {
				r.Note(address(fmt.Sprintf("10.0.0.1:%d", i)), errors.New("no certificate"))
			}
		}
		want := func(lines int, words string) {
			t.Helper()
			synctest.Wait()
			r.mu.Lock()
			defer r.mu.Unlock()
			all := strings.Split(strings.TrimSpace(text.String()), "\n")
			last := all[len(all)-1]
			if len(all) != lines || !strings.Contains(last, words) || !strings.Contains(last, "no certificate") {
				t.Errorf("%q, want %d lines, the last with %q", all, lines, words)
			}
		}
		note(600)
		want(1, `count=1 "last from"=10.0.0.1:0`)
		time.Sleep(logEvery)
		want(2, `count=599 "last from"=10.0.0.1:599`)
		time.Sleep(logEvery)
		want(2, "count=599")
		note(1)
		want(3, "count=1")
		time.Sleep(logEvery)
	})
}
