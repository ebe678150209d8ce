package tcp

import (
	"slices"
	"testing"
	"time"

	"lightpath/collectives/transport"

	"golang.org/x/sys/unix"
)

// TestFaultsOfIdleConnection checks that a rank sees a silent peer also on an idle connection that is never replaced.
// The ranks of a stalled collective have such connections. The other peer, which answers, is no fault.
func TestFaultsOfIdleConnection(t *testing.T) {
	t.Parallel()
	all := connect(t, "127.0.0.1:0", 3, 1)
	e := all[0].(*endpoint)
	if f := e.Faults(); len(f) > 0 {
		t.Errorf("faults %+v before the peer is silent", f)
	}
	silence := []unix.SockFilter{{Code: unix.BPF_RET}} // accepts 0 bytes of a segment
	err := unix.SetsockoptSockFprog(all[1].(*endpoint).conn(0, 0).fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: 1, Filter: &silence[0]})
	if err != nil {
		t.Fatal(err)
	}
	want := []transport.Fault{{Plane: 0, Peer: 1, Seen: errSilent.Error()}}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		f := e.Faults()
		if slices.Equal(f, want) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("faults %+v, want %+v", f, want)
		}
	}
}
