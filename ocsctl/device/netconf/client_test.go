package netconf_test

import (
	"net"
	"strconv"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/ocsctl/device/netconf"
	"lightpath/ocsctl/driver/netconf/wire"
)

func itoa(v int) string { return strconv.Itoa(v) }

// client is a session over a pipe. It sends any bytes, valid or not.
type client struct {
	t      *testing.T
	conn   net.Conn
	framer *wire.Framer
	hello  wire.Hello
	next   int
	ended  chan struct{}
}

func newClient(t *testing.T, s *netconf.Server) *client {
	t.Helper()
	ours, theirs := net.Pipe()
	c := &client{t: t, conn: ours, framer: wire.NewFramer(ours, 1<<20), ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		s.ServeStream(theirs)
	}()
	t.Cleanup(c.close)
	c.hurry()
	msg, err := c.framer.Read()
	if err != nil {
		t.Fatalf("hello: %v", err)
	}
	if c.hello, err = wire.ParseHello(msg); err != nil {
		t.Fatal(err)
	}
	require.NoError(t, c.framer.Write(wire.Hello{Capabilities: []string{wire.Base11}}.Element().Append(nil)))
	c.framer.Chunked()
	return c
}

// hurry sets a deadline for the next exchange, so that a server without an answer fails the test.
func (c *client) hurry() {
	require.NoError(c.t, c.conn.SetDeadline(time.Now().Add(60*time.Second)))
}

func (c *client) close() {
	c.conn.Close()
	<-c.ended
}

// send sends raw bytes as one message and returns the answer.
func (c *client) send(msg string) wire.Reply {
	c.t.Helper()
	c.hurry()
	require.NoError(c.t, c.framer.Write([]byte(msg)))
	answer, err := c.framer.Read()
	if err != nil {
		c.t.Fatalf("%s: %v", msg, err)
	}
	reply, err := wire.ParseReply(answer)
	if err != nil {
		c.t.Fatalf("%s: %v", answer, err)
	}
	return reply
}

// rpc sends an operation, in the base namespace, with o for that of the module.
func (c *client) rpc(op string) wire.Reply {
	c.t.Helper()
	c.next++
	id := itoa(c.next)
	reply := c.send(`<rpc message-id="` + id + `" xmlns="` + wire.BaseNS + `" xmlns:nc="` + wire.BaseNS + `" xmlns:o="` +
		wire.OpticalNS + `">` + op + `</rpc>`)
	if reply.ID != id {
		c.t.Fatalf("an answer to %q, want %s", reply.ID, id)
	}
	return reply
}

// ok sends an operation that has to succeed and returns its data.
func (c *client) ok(op string) *wire.Element {
	c.t.Helper()
	reply := c.rpc(op)
	if len(reply.Errors) > 0 {
		c.t.Fatalf("%s: %v", op, reply.Errors[0])
	}
	return reply.Data
}

// refused sends an operation that has to get an error with that tag.
func (c *client) refused(tag, op string) {
	c.t.Helper()
	reply := c.rpc(op)
	if len(reply.Errors) != 1 || reply.Errors[0].Tag != tag {
		c.t.Errorf("%s: %v, want %s", op, reply.Errors, tag)
	}
}
