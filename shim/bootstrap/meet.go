package bootstrap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"
	"time"

	"lightpath/shim/control"
	"lightpath/shim/errdefs"
)

// Place is a meeting place: a root's address and secret. With Patience, the root may begin to listen later.
type Place struct {
	Addr     netip.AddrPort
	Secret   control.Secret
	Patience bool
	Again    bool // a rank whose connection closes without an answer came too early, and tries again
}

// Meet is a rank's side of a meeting. It sends the rank's hello to its place, and returns the communicator's number and
// the hellos of all ranks, by rank. It ends with ctx, and after the timeout.
func Meet(ctx context.Context, places []Place, h *Hello, timeout time.Duration) (uint64, []Hello, error) {
	deadline := time.Now().Add(timeout + RefusalGrace)
	body, err := json.Marshal(h)
	if err != nil {
		return 0, nil, fmt.Errorf("shim: rank %d: rendezvous: %w", h.Rank, err)
	}
	own := &places[0]
	if len(places) > 1 {
		own = &places[placeOf(h.Rank, len(places), h.Ranks)]
	}
	var m control.Message
	conn, err := own.ask(ctx, deadline, &control.Message{Kind: control.MsgHello, From: uint16(h.Rank), Body: body}, &m)
	if conn != nil {
		defer conn.Close()
		defer control.CloseWith(ctx, conn)()
	}
	if err != nil {
		err = own.failed(ctx, h, err)
		if conn == nil && ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", err, ErrUnheard)
		}
		return 0, nil, err
	}
	if m.Kind == control.MsgBlock && len(places) > 1 {
		// This rank is the delegate of its block.
		block := m.Body
		if err := places[0].delegate(ctx, block, deadline, &m); err != nil {
			err = places[0].failed(ctx, h, err)
			_ = control.Send(conn, Refusal(err.Error(), err))
			return 0, nil, err
		}
		if err := control.Send(conn, &m); err != nil {
			return 0, nil, own.failed(ctx, h, err)
		}
	}
	if m.Kind == control.MsgRefuse && own != &places[0] {
		places[0].Veto(ctx, &m, VetoTime)
	}
	return readTable(&m, h)
}

// ErrUnheard reports that a rank has given up before its place had its hello. The other ranks wait for it until it
// sends a hello that says so.
var ErrUnheard = errors.New("no rank has heard of this rank")

// giveUpTime bounds the time that a rank which gives up waits for an answer.
const giveUpTime = 500 * time.Millisecond

// VetoTime bounds the attempt to tell the first place, which may know already.
const VetoTime = 3 * time.Second

// Leave tells the ranks of a meeting that the rank of h does not come. It ends with ctx at the latest, and after about
// the time within. A place with patience has no root yet if rank 0 leaves, which then serves it meanwhile.
func Leave(ctx context.Context, places []Place, h *Hello, within time.Duration) {
	var all <-chan struct{} // have their answers
	if p := &places[0]; p.Patience && h.Rank == 0 {
		_, all, _ = serveAt(p.Addr, p.Secret, within, within) // an error: there is a root
	}
	_, _, _ = Meet(ctx, places, h, within)
	if all != nil {
		select {
		case <-all:
		case <-ctx.Done():
		}
	}
}

// Veto tells the first place, within a time, that another place has refused its ranks. So the ranks of other places do
// not wait for them.
func (p *Place) Veto(ctx context.Context, refusal *control.Message, within time.Duration) (told bool) {
	conn, err := p.dial(ctx, time.Now().Add(within))
	if err != nil {
		return false
	}
	err = control.Send(conn, refusal)
	_ = conn.Close()
	return err == nil
}

// ask sends a message to a place and waits for the answer. The returned connection is open; it is nil if the place has
// not taken the message.
func (p *Place) ask(ctx context.Context, deadline time.Time, ask, answer *control.Message) (net.Conn, error) {
	for {
		conn, err := p.dial(ctx, deadline)
		if err != nil {
			return nil, err
		}
		err = control.Send(conn, ask) // before the rank can give up: the place then knows which rank does
		stop := giveUpWith(ctx, conn)
		if err == nil {
			err = control.Read(conn, answer)
		}
		stop()
		if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
			return conn, err
		}
		_ = conn.Close()
		switch {
		case ctx.Err() != nil:
			return nil, err
		case !p.Again:
			return nil, p.closed(ctx, err)
		}
		time.Sleep(control.ComeAgain)
	}
}

// giveUpWith tells the place that the rank gives up when ctx ends, unless stop was called before. The rank still reads
// the answer: if all ranks had come, the others wait for its next connection.
func giveUpWith(ctx context.Context, conn net.Conn) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		_ = conn.SetReadDeadline(time.Now().Add(giveUpTime))
		_ = conn.(*net.TCPConn).CloseWrite()
	})
}

// closed returns the error of a place that has closed the connection. If nothing listens there any more, the error says
// so: a place that ends may still accept a connection.
func (p *Place) closed(ctx context.Context, err error) error {
	conn, gone := control.Dial(ctx, p.Addr, p.Secret, time.Now().Add(VetoTime), false)
	if gone == nil {
		_ = conn.Close()
		return err
	}
	if errors.Is(gone, errdefs.ErrRemote) {
		return gone
	}
	return err
}

func (p *Place) dial(ctx context.Context, deadline time.Time) (net.Conn, error) {
	conn, err := control.Dial(ctx, p.Addr, p.Secret, deadline, p.Patience)
	if err == nil {
		_ = conn.SetDeadline(deadline)
	}
	return conn, err
}

// delegate takes a block's table to the first place and waits for the answer.
func (p *Place) delegate(ctx context.Context, block []byte, deadline time.Time, answer *control.Message) error {
	conn, err := p.ask(ctx, deadline, &control.Message{Kind: control.MsgBlock, Body: block}, answer)
	if conn != nil {
		_ = conn.Close()
	}
	return err
}

// failed returns the error of a meeting at a place.
func (p *Place) failed(ctx context.Context, h *Hello, err error) error {
	class := errdefs.ErrRemote
	var netErr net.Error
	if errors.Is(err, errdefs.ErrRemote) || errors.Is(err, errdefs.ErrSystem) {
		return fmt.Errorf("shim: rank %d: rendezvous: %w", h.Rank, err) // of control.Dial, which names the place
	}
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case errors.As(err, &netErr) && netErr.Timeout():
		class = errdefs.ErrTimeout
	}
	return fmt.Errorf("shim: rank %d: rendezvous at %v: %w: %w", h.Rank, p.Addr, err, class)
}

// readTable checks the root's answer.
func readTable(m *control.Message, h *Hello) (uint64, []Hello, error) {
	if m.Kind == control.MsgRefuse {
		return 0, nil, fmt.Errorf("shim: rank %d: %w", h.Rank, refused(m.Seq, string(m.Body)))
	}
	var table []Hello
	if m.Kind != control.MsgWelcome {
		return 0, nil, fmt.Errorf("shim: rank %d: rendezvous: %w", h.Rank, control.ErrMessage)
	}
	if err := control.DecodeStrict(m.Body, &table); err != nil {
		return 0, nil, fmt.Errorf("shim: rank %d: rendezvous: %w", h.Rank, err)
	}
	return m.Arg, table, CheckTable(table, h)
}

// refused returns the error of a refusal.
func refused(class uint64, why string) error {
	return fmt.Errorf("communicator not made: %s: %w", why, classes[min(class, classRemote)])
}

// CheckTable checks that a table is one of h's communicator.
func CheckTable(table []Hello, h *Hello) error {
	if len(table) != h.Ranks || table[h.Rank] != *h {
		return fmt.Errorf("shim: rank %d: rendezvous: table of %d ranks is not ours: %w", h.Rank,
			len(table), control.ErrMessage)
	}
	return nil
}
