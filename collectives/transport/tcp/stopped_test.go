package tcp

import (
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"lightpath/collectives/schedule"
	"lightpath/internal/require"
)

// TestNoReturnToStoppedProcess checks that a stream stays where it is while the other rank's process is stopped: its
// kernel accepts connections, but the rank does not answer.
func TestNoReturnToStoppedProcess(t *testing.T) {
	ev, f := newReports()
	all := guarded(t, 2, 2, 2*time.Second, nil, f)
	leaveStream(all[1], 1, 0)
	for range all {
		if e := <-ev.next; !strings.HasSuffix(e, ": 1 over 0") {
			t.Fatal(e)
		}
	}
	g, c := all[1].guard, all[1].conn(1, 0)
	all[0].mu.Lock()
	all[1].mu.Lock()
	c.busy = true
	all[1].mu.Unlock()
	g.home(c)
	all[0].mu.Unlock()
	select {
	case e := <-ev.next:
		t.Error(e)
	default:
	}
	s, err := schedule.Build(schedule.AllReduce, "ring", 2, 0)
	require.NoError(t, err)
	collective(t, all, s, 100, false, 1)
}

// silentFirst returns an address that accepts connections to another one. It forwards nothing of the first ones, as the
// kernel of a stopped process.
func silentFirst(t *testing.T, silent int, to string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var accepting, copying sync.WaitGroup
	var ends []net.Conn
	accepting.Go(func() {
		for {
			a, err := l.Accept()
			if err != nil {
				return
			}
			ends = append(ends, a)
			if len(ends) <= silent {
				continue
			}
			b, err := net.Dial("tcp", to)
			if err != nil {
				t.Error(err)
				return
			}
			ends = append(ends, b)
			for _, way := range [2][2]net.Conn{{a, b}, {b, a}} {
				copying.Go(func() {
					_, _ = io.Copy(way[0], way[1])
					_ = way[0].(*net.TCPConn).CloseWrite()
				})
			}
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		accepting.Wait()
		for _, c := range ends {
			_ = c.Close()
		}
		copying.Wait()
	})
	return l.Addr().String()
}

// TestBreakWhileStopped breaks a plane while the other rank's process is stopped, for longer than a host may be silent.
// The stream continues when the process does.
func TestBreakWhileStopped(t *testing.T) {
	s, err := schedule.Build(schedule.AllReduce, "ring", 2, 0)
	require.NoError(t, err)
	for side := range 2 {
		ev, f := newReports()
		const heartbeat = 2 * time.Second
		all := guarded(t, 2, 1, heartbeat, nil, f)
		o := &all[side].guard.o
		o.Addrs = slices.Clone(o.Addrs)
		o.Addrs[1-side] = silentFirst(t, 4, o.Addrs[1-side])
		leaveStream(all[side], 0, 1-side)
		for range all {
			if e := <-ev.next; !strings.HasSuffix(e, ": 0 over 0") {
				t.Fatal(e)
			}
		}
		collective(t, all, s, 100, false, 1)
	}
}
