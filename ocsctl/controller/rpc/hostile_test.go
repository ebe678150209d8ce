package rpc_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"lightpath/ocsctl"
	"lightpath/ocsctl/controller/rpc"
	"lightpath/ocsctl/controller/rpc/internal/fake"
	"lightpath/ocsctl/controller/rpc/ocspb"
	"lightpath/plans/circuit"
)

// raw attaches without the care that a Client takes.
func raw(t *testing.T, address string) ocspb.RanksClient {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return ocspb.NewRanksClient(conn)
}

func post(plane uint32, target ...int32) *ocspb.Up {
	return &ocspb.Up{Message: &ocspb.Up_Post{Post: &ocspb.Post{Plane: plane, Target: target}}}
}

func hello(h *ocspb.Hello) *ocspb.Up {
	if h.Protocol == 0 {
		h.Protocol = rpc.ProtocolVersion
	}
	return &ocspb.Up{Message: &ocspb.Up_Hello{Hello: h}}
}

func acquire(id, mask, holder uint64) *ocspb.Up {
	return &ocspb.Up{Message: &ocspb.Up_Acquire{Acquire: &ocspb.Acquire{Id: id,
		Lease: &ocspb.Lease{Mask: mask, Holder: holder}}}}
}

// TestHostileRank: whatever a rank sends, it gets one line that says what is wrong, and the port
// is free for the next one.
func TestHostileRank(t *testing.T) {
	core := fake.New("a", 1, 4, 2)
	s := serve(t, core, options("a", 4, 2))
	for _, c := range []struct {
		name string
		send []*ocspb.Up
		says []string
	}{
		{"no hello", []*ocspb.Up{post(0, 1, 2, 3, 0)}, []string{"post before hello"}},
		{"nothing", []*ocspb.Up{{}}, []string{"empty or unknown message before hello"}},
		{"other protocol", []*ocspb.Up{hello(&ocspb.Hello{Protocol: 9})},
			[]string{"protocol version 9", "controller a speaks 7", "version mismatch"}},
		{"other version", []*ocspb.Up{hello(&ocspb.Hello{Version: "2.0.0"})},
			[]string{"library is version 2.0.0", "controller 1.2.3", "version mismatch"}},
		{"port", []*ocspb.Up{hello(&ocspb.Hello{Port: 4})}, []string{"port 4", "0..3"}},
		{"huge port", []*ocspb.Up{hello(&ocspb.Hello{Port: 1<<32 - 1})}, []string{"port 4294967295"}},
		{"claims", []*ocspb.Up{hello(&ocspb.Hello{Held: []*ocspb.Lease{{Mask: 8}}})},
			[]string{"held", "mask 0x8 of 2 planes"}},
		{"many claims", []*ocspb.Up{hello(&ocspb.Hello{Held: make([]*ocspb.Lease, 65)})}, []string{"65 leases"}},
		{"two hellos", []*ocspb.Up{hello(&ocspb.Hello{}), hello(&ocspb.Hello{})}, []string{"unexpected hello"}},
		{"plane", []*ocspb.Up{hello(&ocspb.Hello{}), post(2, 1, 2, 3, 0)}, []string{"post: plane 2 of 2"}},
		{"huge plane", []*ocspb.Up{hello(&ocspb.Hello{}), post(1<<32-1, 1, 2, 3, 0)}, []string{"plane 4294967295"}},
		{"short map", []*ocspb.Up{hello(&ocspb.Hello{}), post(0, 1)}, []string{"map of 1 ports, want 4"}},
		{"two receivers", []*ocspb.Up{hello(&ocspb.Hello{}), post(0, 1, 1, 3, 0)}, []string{"[1]", "already receives"}},
		{"port of a map", []*ocspb.Up{hello(&ocspb.Hello{}), post(0, 1, 2, 3, 4)}, []string{"[3]", "port 4"}},
		{"no planes", []*ocspb.Up{hello(&ocspb.Hello{}), acquire(1, 0, 1)}, []string{"acquire: mask 0x0"}},
		{"id used twice", []*ocspb.Up{hello(&ocspb.Hello{}), acquire(1, 1, 1), acquire(1, 2, 1)},
			[]string{"id 1 stands for another request"}},
		{"not held", []*ocspb.Up{hello(&ocspb.Hello{}),
			{Message: &ocspb.Up_Release{Release: &ocspb.Release{Mask: 1, Holder: 3}}}},
			[]string{"release: holder 0x3 has planes 0x0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			stream, err := raw(t, s.address).Attach(within(t))
			must(t, err)
			for _, m := range c.send {
				must(t, stream.Send(m))
			}
			for err == nil {
				_, err = stream.Recv()
			}
			wants(t, err, nil, c.says...)
		})
	}
	t.Run("floods of requests", func(t *testing.T) {
		held := dial(t, 3, rpc.Options{}, s.address)
		if _, err := held.Acquire(ocsctl.Lease{Mask: 1, Holder: 1}); err != nil {
			t.Fatal(err)
		}
		stream, err := raw(t, s.address).Attach(within(t))
		must(t, err)
		must(t, stream.Send(hello(&ocspb.Hello{})))
		for i := range 100 {
			_ = stream.Send(acquire(uint64(i+1), 1, 2))
		}
		for err == nil {
			_, err = stream.Recv()
		}
		wants(t, err, nil, "64 requests wait already")
	})
	t.Run("huge message", func(t *testing.T) {
		stream, err := raw(t, s.address).Attach(within(t))
		must(t, err)
		must(t, stream.Send(hello(&ocspb.Hello{Session: make([]byte, 1<<20)})))
		_, err = stream.Recv()
		wants(t, err, nil, "larger than max")
	})
	dial(t, 0, rpc.Options{}, s.address)
}

// TestGarbage: bytes that are not gRPC end the connection and nothing else.
func TestGarbage(t *testing.T) {
	t.Parallel()
	s := serve(t, fake.New("a", 1, 2, 1), impatient())
	cutOff(t, s.address, []string{
		"GET / HTTP/1.1\r\n\r\n", "*idn?\n", strings.Repeat("\xff", 1<<16), "\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + strings.Repeat("\xee", 1<<12),
	})
	dial(t, 0, rpc.Options{}, s.address)
}

// TestSlowLoris: who connects and says nothing, or attaches and says nothing, is cut off.
func TestSlowLoris(t *testing.T) {
	t.Parallel()
	o := impatient()
	s := serve(t, fake.New("a", 1, 2, 1), o)
	talks, err := raw(t, s.address).Attach(within(t))
	must(t, err)
	must(t, talks.Send(&ocspb.Up{Message: &ocspb.Up_Goodbye{}}))
	silent, err := raw(t, s.address).Attach(within(t))
	must(t, err)
	cutOff(t, s.address, []string{"", "PRI * HTTP/2.0\r\n"})
	_, err = talks.Recv()
	wants(t, err, nil, "goodbye before hello")
	_, err = silent.Recv()
	wants(t, err, nil, fmt.Sprint("no hello in ", o.Patience))
}

// impatient are options of a server that soon cuts off a peer that says nothing, but not a rank on a host that stands
// still for some seconds.
func impatient() rpc.ServerOptions {
	o := options("a", 2, 1)
	o.Patience = 8 * time.Second
	return o
}

// cutOff expects the server to end a connection after each of the openings.
func cutOff(t *testing.T, address string, openings []string) {
	t.Helper()
	var conns []net.Conn
	for _, opening := range openings {
		conn, err := net.Dial("tcp", address)
		must(t, err)
		defer conn.Close()
		_, _ = conn.Write([]byte(opening)) // the server may not read all of it
		conns = append(conns, conn)
	}
	for i, conn := range conns {
		must(t, conn.SetDeadline(time.Now().Add(patience)))
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%.20q: not cut off", openings[i])
		}
	}
}

// TestSlowReader: a rank that takes nothing is cut off, and costs the controller no more than the
// newest state of each plane; the others go on.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	const ports = 4096
	core := fake.New("a", 1, ports, 1)
	o := options("a", ports, 1)
	o.Stall, o.Linger = 8*time.Second, time.Millisecond // the other rank reads in time, however busy the machine
	s := serve(t, core, o)
	good := dial(t, 0, rpc.Options{}, s.address)
	stream, err := raw(t, s.address).Attach(within(t))
	must(t, err)
	must(t, stream.Send(hello(&ocspb.Hello{Port: 1})))
	until(t, "attached", func() bool { s, _ := core.Snapshot(); return s.Ports[1].Attached })
	epoch := uint32(0)
	until(t, "cut off", func() bool {
		for range 3 {
			epoch++
			must(t, core.Set(0, circuit.Shift(ports, int(epoch)), "test"))
		}
		time.Sleep(20 * time.Millisecond)
		return len(core.Detached) > 0
	})
	if d := <-core.Detached; d != (fake.Detachment{Port: 1}) {
		t.Errorf("detached %+v", d)
	}
	reach(t, good, 0, epoch)
}

// liar is a controller that says what a test makes it say.
type liar struct {
	ocspb.UnimplementedRanksServer
	mu   sync.Mutex
	says []*ocspb.Down
}

func (l *liar) Attach(stream grpc.BidiStreamingServer[ocspb.Up, ocspb.Down]) error {
	if _, err := stream.Recv(); err != nil {
		return err
	}
	l.mu.Lock()
	says := l.says
	l.mu.Unlock()
	for _, d := range says {
		if err := stream.Send(d); err != nil {
			return err
		}
	}
	for {
		if _, err := stream.Recv(); err != nil {
			return nil
		}
	}
}

// TestHostileController: a client believes nothing that cannot be, and says what it was.
func TestHostileController(t *testing.T) {
	welcome := func(change func(*ocspb.Welcome)) *ocspb.Down {
		w := &ocspb.Welcome{Protocol: rpc.ProtocolVersion, Ports: 2, Planes: []*ocspb.PlaneInfo{{Name: "p0"}},
			State: []*ocspb.Changed{{Map: []int32{1, 0}}}}
		change(w)
		return &ocspb.Down{Welcome: w}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	server, evil := grpc.NewServer(), &liar{}
	ocspb.RegisterRanksServer(server, evil)
	go func() { _ = server.Serve(l) }()
	defer server.Stop()
	says := func(all ...*ocspb.Down) {
		evil.mu.Lock()
		defer evil.mu.Unlock()
		evil.says = all
	}
	for name, c := range map[string]struct {
		first *ocspb.Down
		kind  error
		words []string
	}{
		"no welcome": {&ocspb.Down{}, rpc.ErrProtocol, []string{"no welcome"}},
		"other protocol": {welcome(func(w *ocspb.Welcome) {
			w.Protocol = 8
		}), ocsctl.ErrVersion, []string{"version 8", "this library 7"}},
		"no ports": {welcome(func(w *ocspb.Welcome) { w.Ports = 0 }), rpc.ErrProtocol, []string{"0 ports"}},
		"many ports": {welcome(func(w *ocspb.Welcome) {
			w.Ports = 1 << 31
		}), rpc.ErrProtocol, []string{"2147483648 ports"}},
		"no planes": {welcome(func(w *ocspb.Welcome) { w.Planes = nil }), rpc.ErrProtocol, []string{"0 planes"}},
		"no state":  {welcome(func(w *ocspb.Welcome) { w.State = nil }), rpc.ErrProtocol, []string{"welcome"}},
		"short map": {welcome(func(w *ocspb.Welcome) {
			w.State[0].Map = []int32{0}
		}), rpc.ErrProtocol, []string{"map of 1 ports"}},
		"no map": {welcome(func(w *ocspb.Welcome) {
			w.State[0].Map = nil
		}), rpc.ErrProtocol, []string{"state of plane 0"}},
		"two receivers": {welcome(func(w *ocspb.Welcome) {
			w.State[0].Map = []int32{1, 1}
		}), rpc.ErrProtocol, []string{"[1]"}},
	} {
		t.Run(name, func(t *testing.T) {
			says(c.first)
			_, err := rpc.Dial(within(t), []string{l.Addr().String()}, 0, rpc.Options{})
			wants(t, err, c.kind, c.words...)
		})
	}
	good := welcome(func(*ocspb.Welcome) {})
	for name, c := range map[string]struct {
		then  *ocspb.Down
		words string
	}{
		"granted": {&ocspb.Down{Granted: []*ocspb.Granted{{Id: 1, Mask: 2}}, Refused: []*ocspb.Refused{{}}},
			"refused: plane 0: no reason"},
		"plane":      {&ocspb.Down{Changed: []*ocspb.Changed{{Plane: 1}}}, "plane 1 of 1"},
		"map":        {&ocspb.Down{Changed: []*ocspb.Changed{{Map: []int32{0, 0}}}}, "[1]"},
		"lengths":    {&ocspb.Down{Changed: []*ocspb.Changed{{Port: []uint32{1}}}}, "1 ports, 0 circuits"},
		"port":       {&ocspb.Down{Changed: []*ocspb.Changed{{Port: []uint32{2}, To: []int32{0}}}}, "port 2 of 2"},
		"difference": {&ocspb.Down{Changed: []*ocspb.Changed{{Port: []uint32{0}, To: []int32{0}}}}, "[1]"},
		"refused":    {&ocspb.Down{Refused: []*ocspb.Refused{{Plane: 5}}}, "refused: plane 5"},
		"no text": {&ocspb.Down{Changed: []*ocspb.Changed{{Fault: &ocspb.Fault{Codes: []ocspb.FaultCode{99}}}}},
			"does not say why"},
		"many lines": {&ocspb.Down{Changed: []*ocspb.Changed{{Fault: &ocspb.Fault{Text: "a\nb\x1b[2J"}}}}, "a b [2J"},
	} {
		t.Run(name, func(t *testing.T) {
			says(good, c.then)
			client := dial(t, 0, rpc.Options{}, l.Addr().String())
			until(t, "fault", func() bool { _, err := client.Poll(0); return err != nil })
			_, err := client.Poll(0)
			wants(t, err, nil, c.words)
		})
	}
}
