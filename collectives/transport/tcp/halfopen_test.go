package tcp

import (
	"errors"
	"strings"
	"testing"
	"time"

	"lightpath/collectives/exec"
	"lightpath/collectives/program"
	"lightpath/collectives/schedule"
	"lightpath/collectives/transport"
	"lightpath/collectives/transport/transporttest"
	"lightpath/collectives/wire"
	"lightpath/internal/require"

	"golang.org/x/sys/unix"
)

// vanish ends a rank's connections as the loss of its host does: the kernel sends nothing to the peers.
func vanish(t *testing.T, e transport.Endpoint) {
	t.Helper()
	for _, c := range e.(*endpoint).conns {
		if err := unix.SetsockoptInt(c.fd, unix.IPPROTO_TCP, unix.TCP_REPAIR, 1); err != nil {
			t.Skipf("needs CAP_NET_ADMIN, to close a connection without notice to the peer: %v", err)
		}
		drop(t, c.fd)
	}
	transporttest.Close(t, e)
}

// TestHostOfPeerIsLost checks that a rank whose peer's host is lost returns ErrTimeout with the peer and the plane, and
// that a send to that peer returns ErrPeerLost.
func TestHostOfPeerIsLost(t *testing.T) {
	const ranks, planes, count = 3, 2, 100000
	for _, gone := range []int{0, 2} { // the root, from which the others receive, and the last rank
		e := connect(t, "127.0.0.1:0", ranks, planes)
		s, err := schedule.Build(schedule.Broadcast, "ring", ranks, 0)
		require.NoError(t, err)
		const last, rank = ranks - 1, 1
		prog, err := program.Lower(s, nil, program.Args{Rank: rank, Planes: planes, Count: count, ElemSize: 4})
		require.NoError(t, err)
		vanish(t, e[gone])
		buffer := make([]byte, 4*count)
		call := exec.Call{Program: prog, Endpoint: e[rank], Comm: 5, Op: 1}
		for b := range call.Buffers {
			call.Buffers[b] = exec.BufferOf(buffer)
		}
		var task exec.Task
		require.NoError(t, task.Bind(call))
		err = exec.Run([]*exec.Task{&task}, &exec.Options{Timeout: 50 * time.Millisecond})
		if !errors.Is(err, exec.ErrTimeout) || !strings.Contains(err.Error(), "receive from rank 0 (plane 0") {
			t.Errorf("rank %d gone: %v", gone, err)
		}
		if gone == last {
			p := e[rank].Planes()[1]
			h := wire.Header{Src: uint16(rank), Dst: last, Plane: 1}
			err := until(t, e[rank], func() error { _, err := p.TrySend(&h, buffer); return err })
			if !errors.Is(err, transport.ErrPeerLost) || !strings.Contains(err.Error(), "rank 2, plane 1") {
				t.Errorf("TrySend to rank %d: %v", gone, err)
			}
		}
		for r, one := range e {
			if r != gone {
				transporttest.Close(t, one)
			}
		}
	}
}

// TestPlaneRefuses resets a stream whose plane then refuses connections, as behind a firewall. Another plane carries it.
func TestPlaneRefuses(t *testing.T) {
	s, err := schedule.Build(schedule.AllReduce, "ring", 2, 0)
	require.NoError(t, err)
	for side := range 2 {
		all := guarded(t, 2, 2, 10*time.Second, nil, Failover{})
		for _, e := range all {
			require.NoError(t, e.guard.l.ls[1].Close())
		}
		g, c := all[side].guard, all[side].conn(1, 1-side)
		g.e.mu.Lock()
		g.leave(c, c.loss(unix.ECONNRESET))
		g.e.mu.Unlock()
		collective(t, all, s, 100, false, 1)
	}
}
