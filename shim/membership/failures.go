package membership

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"lightpath/shim/comm"
	"lightpath/shim/control"
	"lightpath/shim/errdefs"
)

// A failure reaches the other ranks through the leader. After the leader has ended, a rank tells every other rank at
// that rank's rendezvous.

// tellWait bounds the time that a failing rank takes to tell the others.
const tellWait = 500 * time.Millisecond

// Ended returns an error if the process of a rank has ended: nothing listens at its rendezvous.
func Ended(c *comm.Core, rank int) error {
	conn, err := net.DialTimeout("tcp", c.Table[rank].Rendezvous, tellWait)
	if err == nil {
		_ = conn.Close() // a rank that is alive takes it for a stranger
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return nil
	}
	h := c.Table[rank]
	h.Leaves = "its process has ended"
	return fmt.Errorf("shim: %s: %w", h.Left(), errdefs.ErrRemote)
}

// failureSecret authenticates a rank that tells another of a failure.
func failureSecret(c *comm.Core, to int) control.Secret {
	return c.Secret.Derive("failure", c.ID, uint64(to))
}

// ExchangeFailures makes the rank receive failures at its rendezvous, and send its own failure to the rendezvous of
// others. The ranks have met.
func ExchangeFailures(c *comm.Core) {
	rendezvous := Of(c).rendezvous
	if rendezvous == nil {
		return
	}
	own := failureSecret(c, c.Rank)
	rendezvous.Receive(own, func(conn net.Conn) {
		defer conn.Close()
		_ = conn.SetReadDeadline(time.Now().Add(control.HandshakeTime))
		var m control.Message
		if control.Read(conn, &m) == nil && m.Kind == control.MsgPoison {
			c.Deliver(&m)
		}
	})
	c.AddHooks(comm.Hooks{Closed: func() { rendezvous.Receive(own, nil) }})
	c.Above.TellRanks = func(m *control.Message) { tellRanks(c, m) }
}

// tellRanks sends a message to all ranks that have not left and whose processes have not ended, as far as this rank
// knows.
func tellRanks(c *comm.Core, m *control.Message) {
	gone := map[int]bool{c.Rank: true, 0: true}
	for _, d := range c.Departures() {
		gone[d.Rank] = true
	}
	for _, rank := range c.Vanished() {
		gone[rank] = true
	}
	ctx, cancel := context.WithTimeout(context.Background(), tellWait)
	defer cancel()
	var wg sync.WaitGroup
	for rank := range c.Table {
		at, err := netip.ParseAddrPort(c.Table[rank].Rendezvous)
		if gone[rank] || err != nil {
			continue
		}
		wg.Go(func() {
			conn, err := control.Dial(ctx, at, failureSecret(c, rank), time.Now().Add(tellWait), false)
			if err == nil {
				_ = control.Send(conn, m)
				_ = conn.Close()
			}
		})
	}
	wg.Wait()
}
