package tcp

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"lightpath/collectives/exec"
	"lightpath/collectives/program"
	"lightpath/collectives/program/programtest"
	"lightpath/collectives/schedule"
	"lightpath/collectives/transport"
	"lightpath/collectives/transport/transporttest"
	"lightpath/collectives/wire"
	"lightpath/internal/await"
	"lightpath/internal/require"

	"golang.org/x/sys/unix"
)

// relay carries the first connection of one stream between two ranks. It forwards limit bytes from the first socket to
// the second one, then nothing in either direction, as a cable that is cut. A byte counts as received by the other host
// when it is forwarded.
type relay struct {
	limit int
	mu    sync.Mutex
	sent  int
	isCut bool
	cut   func() // called once, when limit bytes are forwarded
	wg    sync.WaitGroup
}

// start returns the sockets of both ranks.
func (r *relay) start(t *testing.T) (a, b int) {
	t.Helper()
	var ends [2][2]int
	for i := range ends {
		var err error
		if ends[i], err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			t.Fatal(err)
		}
	}
	r.wg.Go(func() { r.copy(ends[0][1], ends[1][1], true) })
	r.wg.Go(func() { r.copy(ends[1][1], ends[0][1], false) })
	t.Cleanup(func() {
		for i := range ends {
			_ = unix.Shutdown(ends[i][1], unix.SHUT_RDWR)
		}
		r.wg.Wait()
		for i := range ends {
			_ = unix.Close(ends[i][1])
		}
	})
	return ends[0][0], ends[1][0]
}

func (r *relay) copy(from, to int, limited bool) {
	buf := make([]byte, 16<<10)
	for {
		n, _, err := unix.Recvfrom(from, buf, unix.MSG_PEEK)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n <= 0 || err != nil {
			return
		}
		r.mu.Lock()
		if limited {
			n = min(n, r.limit-r.sent)
		}
		if r.isCut {
			n = 0
		}
		if n > 0 {
			n, err = unix.SendmsgN(to, buf[:n], nil, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
		}
		if err != nil { // no room, or the rank has left
			n = 0
		}
		if n > 0 {
			_, _, _ = unix.Recvfrom(from, buf[:n], 0)
		}
		if limited {
			r.sent += n
		}
		call := r.sent == r.limit && !r.isCut
		r.isCut = r.isCut || call
		over := r.isCut
		r.mu.Unlock()
		if call {
			r.cut()
		}
		if over {
			return
		}
		if n == 0 {
			time.Sleep(100 * time.Microsecond)
		}
	}
}

// guarded returns endpoints that fail over, each plane on an address of its own. The stream of ranks 0 and 1 on the
// last plane begins in the relay, if there is one.
func guarded(t *testing.T, ranks, planes int, heartbeat time.Duration, r *relay, f Failover) []*endpoint {
	t.Helper()
	fds := make([][][]int, ranks)
	for a := range fds {
		fds[a] = make([][]int, planes)
		for k := range fds[a] {
			fds[a][k] = make([]int, ranks)
		}
	}
	for k := range planes {
		for a := range ranks {
			for b := range a {
				if r != nil && k == planes-1 && a == 1 {
					fds[0][k][1], fds[1][k][0] = r.start(t)
					continue
				}
				pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
				require.NoError(t, err)
				fds[a][k][b], fds[b][k][a] = pair[0], pair[1]
			}
		}
	}
	f.Heartbeat = heartbeat
	o := Options{Planes: planes, Comm: 5, Secret: secret, Failover: f}
	ls := make([]*Listener, ranks)
	for a := range ls {
		var addrs []string
		for k := range planes {
			addrs = append(addrs, fmt.Sprintf("127.0.0.%d:0", k+1))
		}
		l, err := Listen(addrs...)
		require.NoError(t, err)
		ls[a] = l
		o.Addrs = append(o.Addrs, l.Addr())
	}
	all := make([]*endpoint, ranks)
	for a := range all {
		e, err := newEndpoint(a, fds[a])
		require.NoError(t, err)
		o.Rank = a
		require.NoError(t, newGuard(e, ls[a], &o))
		all[a] = e
		t.Cleanup(func() { _ = e.Close() })
	}
	return all
}

// leaveStream makes an endpoint leave the connection of a stream, as watch does without answers.
func leaveStream(e *endpoint, plane, peer int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c := e.conn(plane, peer); !e.poll.Closed() {
		e.guard.leave(c, fmt.Errorf("%w: %w", transport.ErrPeerLost, errSilent))
	}
}

func (e *endpoint) conn(k, peer int) *conn { return e.planes[k].(*plane).conns[peer] }

// collective runs a schedule on all ranks, one goroutine each. Each rank overwrites its buffers as soon as its own call
// has returned, as a user may.
func collective(t *testing.T, all []*endpoint, s *schedule.Schedule, count int64, inPlace bool, op uint64) {
	t.Helper()
	args := program.Args{Planes: len(all[0].planes), Count: count, ElemSize: 4, InPlace: inPlace}
	c := programtest.NewCase(s, count, 1, op)
	var wg sync.WaitGroup
	for r := range all {
		args.Rank = r
		prog, err := program.Lower(s, nil, args)
		require.NoError(t, err)
		wg.Go(func() {
			in, out := c.Buffers(r, inPlace)
			call := exec.Call{
				Program: prog, Comm: 7, Op: op, Reduce: programtest.AddInto, Endpoint: all[r],
				Buffers: [schedule.NumBuffers]exec.Buffer{
					exec.BufferOf(in), exec.BufferOf(out), exec.BufferOf(make([]byte, prog.ScratchBytes)),
				},
			}
			var task exec.Task
			if err := task.Bind(call); err != nil {
				t.Error(err)
				return
			}
			if err := exec.Run([]*exec.Task{&task}, &exec.Options{Timeout: 20 * time.Second, Yield: 100}); err != nil {
				t.Errorf("rank %d: %v", r, err)
				return
			}
			if want := c.Want[r]; want != nil && !bytes.Equal(out, want) {
				t.Errorf("rank %d: wrong result", r)
			}
			for _, b := range [][]byte{in, out} {
				for i := range b {
					b[i] = 0xaa
				}
			}
		})
	}
	wg.Wait()
}

// TestCutAnywhere cuts a stream after any number of bytes, in the middle of any collective, over 2 to 4 planes. The
// results must be the same as without the cut, and the next collective must use the other planes.
func TestCutAnywhere(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for c := range schedule.NumCollectives {
		for _, count := range []int64{50, 30000} {
			planes, ranks := 2+rng.IntN(3), 2+rng.IntN(2)
			algorithms := schedule.Algorithms(c)
			name := algorithms[rng.IntN(len(algorithms))]
			if !schedule.Defined(c, name, ranks) {
				name = algorithms[0]
			}
			s, err := schedule.Build(c, name, ranks, 0)
			require.NoError(t, err)
			inPlace := rng.IntN(2) == 0
			whole := &relay{limit: 1 << 40, cut: func() {}}
			collective(t, guarded(t, ranks, planes, 10*time.Second, whole, Failover{}), s, count, inPlace, 1)
			whole.mu.Lock()
			total := whole.sent
			whole.mu.Unlock()
			cuts := []int{0, 1, wire.HeaderSize, wire.HeaderSize + 1, rng.IntN(total + 1), rng.IntN(total + 1), total}
			for _, limit := range cuts {
				if limit > total {
					continue
				}
				sides := 1 + rng.IntN(3)
				t.Run(fmt.Sprintf("%v/%s/%d/ranks=%d/planes=%d/cut=%d/sides=%d", c, name, count, ranks, planes, limit, sides),
					func(t *testing.T) { cutOnce(t, s, ranks, planes, count, inPlace, limit, sides) })
			}
		}
	}
}

// cutOnce cuts a stream after limit bytes. sides says which ranks notice it: 1 the lower one, 2 the higher one, 3 both.
func cutOnce(t *testing.T, s *schedule.Schedule, ranks, planes int, count int64, inPlace bool, limit, sides int) {
	r := &relay{limit: limit}
	var all []*endpoint
	ready, done := make(chan struct{}), make(chan struct{})
	var once sync.Once
	r.cut = func() {
		once.Do(func() {
			<-ready
			for side := range 2 {
				if sides&(1<<side) != 0 {
					leaveStream(all[side], planes-1, 1-side)
				}
			}
			close(done)
		})
	}
	all = guarded(t, ranks, planes, 10*time.Second, r, Failover{})
	close(ready)
	collective(t, all, s, count, inPlace, 1)
	if limit == 0 { // the relay forwards nothing before it has something to forward
		r.mu.Lock()
		idle := !r.isCut
		r.mu.Unlock()
		if idle {
			return
		}
	}
	<-done
	collective(t, all, s, count, inPlace, 2)
}

// TestPeerClosed checks that an endpoint notices at once that the other rank has closed its endpoint, and that this is
// not reported as a lost host.
func TestPeerClosed(t *testing.T) {
	ev, f := newReports()
	all := guarded(t, 2, 2, time.Hour, nil, f)
	transporttest.Close(t, all[1])
	p := all[0].Planes()[1]
	h := wire.Header{Dst: 1, Plane: 1}
	for name, call := range map[string]func() error{
		"Peek":    func() error { _, _, err := p.Peek(1); return err },
		"TrySend": func() error { _, err := p.TrySend(&h, []byte("x")); return err },
	} {
		err := until(t, all[0], call)
		if !errors.Is(err, transport.ErrPeerLost) || !strings.Contains(err.Error(), "rank 1 has closed plane 1") {
			t.Errorf("%s: %v", name, err)
		}
	}
	select {
	case e := <-ev.next:
		t.Error(e)
	default:
	}
	if f := all[0].Faults(); len(f) > 0 {
		t.Errorf("the end of a process counts as a fault: %+v", f)
	}
}

// TestPeerClosedInFrame: a peer closes its endpoint in the middle of a frame, and this rank leaves the connection
// before it reads. Land then returns the peer's bytes, and after them an error.
func TestPeerClosedInFrame(t *testing.T) {
	all := guarded(t, 2, 2, time.Hour, nil, Failover{})
	e, p := all[0], all[0].Planes()[1].(transport.Lander)
	const size, part = 1 << 10, 100
	whole := frame(wire.Header{Src: 1, Plane: 1, Length: size}, string(make([]byte, size)))
	_, err := unix.Write(all[1].conn(1, 0).fd, whole[:wire.HeaderSize+part])
	require.NoError(t, err)
	transporttest.Close(t, all[1])
	leaveStream(e, 1, 1)
	await.Until(t, "the loss of rank 1", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.conn(1, 1).rxLost != nil
	})
	landed, dst := 0, make([]byte, size)
	for range 10 {
		if _, err = p.Head(1); err == nil {
			var n int
			n, err = p.Land(1, dst[landed:])
			landed += n
		}
		if err != nil {
			break
		}
	}
	if !errors.Is(err, transport.ErrPeerLost) || landed != part {
		t.Errorf("%d bytes, then %v", landed, err)
	}
}

// TestAbandon checks that a failed call leaves no reference to its payload, and receives nothing more: a peer may send
// faster than this rank could store its bytes.
func TestAbandon(t *testing.T) {
	all := guarded(t, 2, 1, time.Hour, nil, Failover{})
	e := all[0]
	p := e.Planes()[0].(transport.Abandoner)
	payload := make([]byte, 1<<20)
	_, mark, err := p.Lend(&wire.Header{Dst: 1}, payload)
	if err != nil || mark == 0 {
		t.Fatalf("mark %d, %v", mark, err)
	}
	if n, err := all[1].Planes()[0].TrySend(&wire.Header{Src: 1}, payload[:1<<10]); n != 1<<10 {
		t.Fatalf("sent %d, %v", n, err)
	}
	p.Abandon()
	c := e.conn(0, 1)
	if c.sent.lent != 0 || len(c.sent.spans) != 0 {
		t.Errorf("%d lent spans of %d", c.sent.lent, len(c.sent.spans))
	}
	if len(c.backlog) != 0 {
		t.Errorf("received %d bytes", len(c.backlog))
	}
	if _, err := p.Returned(1, true); err == nil {
		t.Error("Returned after Abandon returns no error")
	}
}

// TestAbandonAfterClose checks that a call that fails because its endpoint has closed touches no other file that has
// the descriptor of a connection now.
func TestAbandonAfterClose(t *testing.T) {
	e := guarded(t, 2, 1, time.Hour, nil, Failover{})[0]
	p := e.Planes()[0].(transport.Abandoner)
	if _, mark, err := p.Lend(&wire.Header{Dst: 1}, make([]byte, 1<<20)); err != nil || mark == 0 {
		t.Fatalf("mark %d, %v", mark, err)
	}
	was := e.conn(0, 1).fd
	var pipe [2]int
	require.NoError(t, unix.Pipe2(pipe[:], unix.O_CLOEXEC))
	defer func() { require.NoError(t, errors.Join(unix.Close(pipe[0]), unix.Close(pipe[1]))) }()
	transporttest.Close(t, e)
	other, err := unix.FcntlInt(uintptr(pipe[0]), unix.F_DUPFD_CLOEXEC, was) // the descriptor of the connection, if free
	require.NoError(t, err)
	p.Abandon()
	if err := unix.Close(other); err != nil {
		t.Errorf("descriptor %d of a pipe, which a connection had as %d: %v", other, was, err)
	}
}
