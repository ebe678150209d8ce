package tcp

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"lightpath/collectives/schedule"
	"lightpath/collectives/transport"
	"lightpath/collectives/wire"
	"lightpath/internal/require"

	"golang.org/x/sys/unix"
)

// TestResumeInFrame resumes a stream while a rank waits for the rest of a large frame. The rank must not wake for each
// arrival on the new connection, either.
func TestResumeInFrame(t *testing.T) {
	ev, f := newReports()
	all := guarded(t, 2, 2, time.Hour, nil, f)
	e, c := all[0], all[0].conn(1, 1)
	if n, err := all[1].Planes()[1].TrySend(&wire.Header{Src: 1, Plane: 1}, make([]byte, 2*minPiece)); n == 0 || err != nil {
		t.Fatal(n, err)
	}
	if h, err := e.Planes()[1].(transport.Lander).Head(1); h == nil || err != nil {
		t.Fatal(h, err)
	}
	lowWater := func() int {
		e.Wait(e.Arm(), time.Nanosecond)
		n, err := unix.GetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT)
		require.NoError(t, err)
		return n
	}
	if n := lowWater(); n != minPiece {
		t.Fatalf("the rank wakes for %d bytes", n)
	}
	leaveStream(all[1], 1, 0)
	<-ev.next
	<-ev.next
	if n := lowWater(); n != minPiece {
		t.Errorf("the rank wakes for %d bytes of the new connection, want %d", n, minPiece)
	}
}

// reports collects what an endpoint reports.
type reports struct {
	next chan string
}

func newReports() (*reports, Failover) {
	ev := &reports{next: make(chan string, 64)}
	return ev, Failover{
		Moved: func(rank, plane, via int, cause error) { ev.next <- fmt.Sprintf("%d: %d over %d", rank, plane, via) },
		Lost:  func(rank int, err error) { ev.next <- fmt.Sprintf("%d lost: %v", rank, err) },
	}
}

// TestStreamReturns checks that a stream leaves its plane after a cut, returns, and stays away longer after each cut.
// Meanwhile the plane is a fault.
func TestStreamReturns(t *testing.T) {
	ev, f := newReports()
	all := guarded(t, 2, 2, time.Hour, nil, f)
	moved := func(via int) {
		left := map[string]bool{fmt.Sprint("0: 1 over ", via): true, fmt.Sprint("1: 1 over ", via): true}
		for len(left) > 0 {
			delete(left, <-ev.next)
		}
	}
	g, c := all[1].guard, all[1].conn(1, 0)
	last := time.Hour - 1
	for range 2 {
		leaveStream(all[1], 1, 0)
		moved(0)
		for busy := true; busy; { // until the goroutine that moved the stream has ended
			all[1].mu.Lock()
			busy = c.busy
			all[1].mu.Unlock()
		}
		if f := all[1].Faults(); len(f) != 1 ||
			f[0] != (transport.Fault{Plane: 1, Peer: 0, Seen: "data uses plane 0 instead"}) {
			t.Errorf("faults %+v", f)
		}
		if c.hold <= last {
			t.Errorf("the stream stays away for %v after a cut, %v after the cut before", c.hold, last)
		}
		last = c.hold
		g.look(c, time.Now())
		g.look(c, c.homeAt.Add(1))
		moved(1)
		if f := all[1].Faults(); len(f) > 0 {
			t.Errorf("faults %+v after the return", f)
		}
	}
}

// TestMovesDuringCalls moves a stream between planes that work, all the time, while ranks exchange data. Each time the
// other rank still sends.
func TestMovesDuringCalls(t *testing.T) {
	all := guarded(t, 2, 2, time.Hour, nil, Failover{})
	s, err := schedule.Build(schedule.AllReduce, "ring", 2, 0)
	require.NoError(t, err)
	stop := make(chan struct{})
	var moves int
	var wg sync.WaitGroup
	wg.Go(func() {
		g, c := all[1].guard, all[1].conn(1, 0)
		for {
			select {
			case <-stop:
				return
			default:
			}
			all[1].mu.Lock()
			free := !c.busy && !c.replaying
			c.busy = c.busy || free
			all[1].mu.Unlock()
			if free {
				if err := g.attempt(c, moves%2, time.Minute); err != nil {
					t.Error(err)
				}
				moves++
				g.recover(c)
			}
		}
	})
	for op := uint64(1); op <= 6; op++ {
		collective(t, all, s, 1<<18, false, op)
	}
	close(stop)
	wg.Wait()
	t.Logf("%d moves", moves)
}

// TestStrangersDuringResume holds more idle connections than a rank has room for, and resumes a stream meanwhile.
func TestStrangersDuringResume(t *testing.T) {
	ev, f := newReports()
	all := guarded(t, 2, 2, time.Hour, nil, f)
	at := all[0].guard.l.ls[0].Addr().String()
	for i := range guardHandshakes + 20 {
		c, err := net.Dial("tcp", at)
		require.NoError(t, err)
		defer c.Close()
		if i%2 == 0 {
			_, _ = c.Write([]byte("GET / HTTP/1.1\r\n\r\n" + strings.Repeat(" ", helloSize)))
		}
	}
	leaveStream(all[1], 1, 0)
	if e := <-ev.next; !strings.Contains(e, ": 1 over ") {
		t.Error(e)
	}
}
