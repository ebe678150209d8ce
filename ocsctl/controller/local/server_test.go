package local

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"lightpath/internal/assert"
	"lightpath/internal/await"
	"lightpath/internal/require"
	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/plans/circuit"
)

// TestConflictIsRefusedForAll: every port of the holder learns of it, and the planes stay in service.
func TestConflictIsRefusedForAll(t *testing.T) {
	s := start(t)
	cs := dialHolding(t, s, 0)
	require.NoError(t, cs[1].Post(0, 0, holder, circuit.Shift(4, 2)))
	require.NoError(t, cs[2].Post(0, 0, holder, circuit.Shift(4, 3)))
	for _, c := range cs {
		refused(t, c, holder, ocsctl.ErrConflict, "plane 0", "epoch 0", "ports")
		for plane := range 2 {
			if _, err := c.Poll(plane); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestKilledRankIsNamed(t *testing.T) {
	s := start(t)
	cs := dialHolding(t, s, 0)
	for p := range 3 {
		require.NoError(t, cs[p].Post(0, 0, holder, circuit.Shift(4, 2)))
	}
	await.Until(t, "three posts", func() bool {
		text, _ := cs[0].Waiting(0)
		return text == "plane 0 epoch 0: waiting for ports 3"
	})
	cs[3].conn.shut() // as its process's end would
	for p := range 3 {
		refused(t, cs[p], holder, ocsctl.ErrPortLost, "rank of port 3")
	}
	cutOff(t, cs[3])
}

// The rank that posted learns of a refusal. Other ranks are not affected.
func TestRefusedPosts(t *testing.T) {
	s := start(t)
	cs := dialHolding(t, s, 0)
	for _, c := range cs {
		require.NoError(t, c.Post(0, 0, holder, circuit.Shift(4, 2)))
	}
	await.Until(t, "switched", func() bool { e, _ := cs[0].Poll(0); return e == 1 })
	require.NoError(t, cs[1].Post(0, 0, holder, circuit.Shift(4, 3)))
	require.NoError(t, cs[2].Post(0, 1, holder+1, circuit.Shift(4, 2)))
	refused(t, cs[1], holder, ocsctl.ErrStaleEpoch, "port 1", "plane 0", "epoch 0", "is at 1")
	refused(t, cs[2], holder+1, ocsctl.ErrNotHolder, "port 2", "plane 0", "holder 0x7 of port 0", "holder 0x8")
	for p, c := range cs {
		if e, err := c.Poll(0); e != 1 || err != nil {
			t.Errorf("port %d: epoch %d, %v", p, e, err)
		}
		if err := c.Refused(0, holder); p != 1 && err != nil {
			t.Errorf("port %d: %v", p, err)
		}
	}
}

// refused waits for the refusal of a post on plane 0.
func refused(t *testing.T, c *Client, holder uint64, want error, says ...string) {
	t.Helper()
	await.Until(t, "refused", func() bool { return c.Refused(0, holder) != nil })
	err := c.Refused(0, holder)
	if !errors.Is(err, want) {
		t.Error(err)
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%v: no %q", err, s)
		}
	}
}

func TestRefusals(t *testing.T) {
	s := start(t)
	c := dial(t, s, 2)
	for _, tc := range []struct {
		name string
		do   func() error
		want error
		says string
	}{
		{"port taken", func() error {
			_, err := Dial(s.socket, 2, "")
			return err
		}, controller.ErrPortBusy, "port 2"},
		{"port out of range", func() error { _, err := Dial(s.socket, 4, ""); return err }, nil, "ports 0..3"},
		{"another release", func() error {
			_, err := Dial(s.socket, 0, "1.1.0")
			return err
		}, ocsctl.ErrVersion, "the library is version 1.1.0, the controller 1.2.3"},
		{"negative port", func() error { _, err := Dial(s.socket, -1, ""); return err }, nil, "port -1"},
		{"nobody there", func() error {
			_, err := Dial(s.socket+"x", 0, "")
			return err
		}, ocsctl.ErrControlLost, "is `lightpath ocsd` running?"},
		{"second switch", func() error { _, err := serve(s.socket, 4, 2); return err }, ErrRunning, s.socket},
		{"post: plane", func() error { return c.Post(2, 0, holder, circuit.Shift(4, 1)) }, nil, "plane 2 of 2"},
		{"post: ports", func() error { return c.Post(0, 0, holder, circuit.Shift(5, 1)) }, nil, "5 entries, want 4"},
		{"acquire: plane", func() error { _, err := c.Acquire(ocsctl.Lease{Mask: 4, Holder: 1}); return err }, nil, "0x4"},
		{"acquire: nothing", func() error { _, err := c.Acquire(ocsctl.Lease{Mask: 0, Holder: 1}); return err }, nil, "0x0"},
		{"release: not held", func() error { return c.Release(1, 1) }, nil, "holder 0x1"},
	} {
		err := tc.do()
		if err == nil || tc.want != nil && !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	if _, err := c.Poll(0); err != nil {
		t.Errorf("the rank was disturbed: %v", err)
	}
}

// A post that is no map is not a client's mistake but a foreign program: it is cut off.
func TestBadRequestsEndTheConnection(t *testing.T) {
	s := start(t)
	for _, m := range []*message{
		{Type: msgPost, Target: circuit.Permutation{0, 0, 1, 2}}, {Type: msgPost, Plane: 7, Target: circuit.Shift(4, 1)},
		{Type: msgAcquire, Mask: 8}, {Type: msgWelcome}, {Type: msgRelease, Mask: 1},
	} {
		c := dial(t, s, 0)
		require.NoError(t, c.send(m))
		cutOff(t, c)
		shut(t, c)
	}
}

func TestHello(t *testing.T) {
	s := start(t)
	for _, tc := range []struct {
		send []byte
		says string
	}{
		{[]byte("GET / HTTP/1.1\r\n\r\n"), "malformed"},
		{frame(`{"type":"hello","version":999,"port":1}`), "version 999"},
		{frame(`{"type":"hello","version":9,"port":1}`), "descriptor"},
		{frame(`{"type":"post","plane":1}`), "before hello"},
		{frame(`{"type":"hello","version":9,"port":1,"colour":"red"}`), "colour"},
	} {
		raw, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: s.socket, Net: "unix"})
		require.NoError(t, err)
		c := &conn{UnixConn: raw}
		if _, err := c.Write(tc.send); err != nil {
			t.Fatal(err)
		}
		m, err := c.recv()
		if err != nil || m.Type != msgError || !strings.Contains(m.Text, tc.says) {
			t.Errorf("%q: %+v, %v", tc.send, m, err)
		}
		c.close()
	}
	older := &message{Text: "client speaks protocol version 2, the controller speaks 3: version mismatch"}
	if err := remoteError(older); !errors.Is(err, ocsctl.ErrVersion) {
		t.Error(err)
	}
}

func frame(body string) []byte {
	return append([]byte{0, 0, byte(len(body) >> 8), byte(len(body))}, body...)
}

func TestStaleSocketIsReplaced(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "ocs")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	require.NoError(t, err)
	l.SetUnlinkOnClose(false)
	shut(t, l)
	s := startAt(t, socket)
	if st, err := os.Stat(socket); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	dial(t, s, 0)
	require.NoError(t, s.Close())
	if left, _ := filepath.Glob(socket + "*"); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	require.NoError(t, os.WriteFile(socket, []byte("mine"), 0o600))
	if _, err := serve(socket, 4, 2); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("a file in the place of the socket: %v", err)
	}
}

func TestCloseEndsEveryWait(t *testing.T) {
	s := start(t)
	cs := dialAll(t, s)
	if _, err := cs[0].Acquire(ocsctl.Lease{Mask: 1, Holder: 1}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 2)
	for _, p := range []int{1, 2} {
		go func() { _, err := cs[p].Acquire(ocsctl.Lease{Mask: 1, Holder: 1}); ended <- err }()
	}
	await.Until(t, "both wait", func() bool {
		snap, err := s.core.Snapshot()
		return err == nil && len(snap.Queue) == 2
	})
	shut(t, cs[1])
	if err := <-ended; !errors.Is(err, ocsctl.ErrControlLost) {
		t.Error(err)
	}
	shut(t, s)
	if err := <-ended; !errors.Is(err, ocsctl.ErrControlLost) {
		t.Error(err)
	}
	cutOff(t, cs[0])
	shut(t, cs[0])
	if _, err := cs[0].Poll(0); !errors.Is(err, ocsctl.ErrControlLost) {
		t.Error(err)
	}
	cs[0].State(0)
	if err := cs[0].Post(0, 0, holder, circuit.Shift(4, 1)); !errors.Is(err, ocsctl.ErrControlLost) {
		t.Error(err)
	}
}

func TestOnChange(t *testing.T) {
	s := start(t)
	cs := dialHolding(t, s, 1)
	called := make(chan struct{}, 16)
	cs[0].OnChange(func() { called <- struct{}{} })
	for _, c := range cs {
		require.NoError(t, c.Post(1, 0, holder, circuit.Shift(4, 3)))
	}
	for e := uint32(0); e != 1; {
		<-called
		var err error
		if e, err = cs[0].Poll(1); err != nil {
			t.Fatal(err)
		}
	}
	shut(t, s)
	<-called
}

// A port is free as soon as Close has returned, and nothing is left of a connection.
func TestNothingLeaks(t *testing.T) {
	s := start(t)
	files := func() int {
		d, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip(err)
		}
		return len(d)
	}
	maps := func() int {
		b, _ := os.ReadFile("/proc/self/maps")
		return strings.Count(string(b), "lightpath-")
	}
	round := func() {
		c, err := Dial(s.socket, 1, "")
		require.NoError(t, err)
		if _, err := Dial(s.socket, 9, ""); err == nil {
			t.Fatal("no such port")
		}
		shut(t, c)
		shut(t, c)
	}
	round()
	var f, m int
	settled := func() bool {
		f0, m0 := f, m
		f, m = files(), maps()
		return f == f0 && m == m0
	}
	await.Until(t, "quiet", settled)
	before, beforeMaps := f, m
	for range 50 {
		round()
	}
	await.Until(t, fmt.Sprintf("as many descriptors (%d) and maps (%d) as before", before, beforeMaps), func() bool {
		return files() <= before && maps() <= beforeMaps
	})
}

func TestPollingAllocatesNothing(t *testing.T) {
	s := start(t)
	c := dialHolding(t, s, 1)[0]
	same := circuit.Shift(4, 2)
	c.State(0)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := c.Poll(0); err != nil {
			t.Error(err)
		}
		assert.NoError(t, c.Refused(0, holder))
		c.State(0)
	}); n != 0 {
		t.Errorf("Poll, Refused and State: %v allocations", n)
	}
	// A post that the plane will never act on is counted by the rank's part and by the core's.
	if n := testing.AllocsPerRun(100, func() {
		assert.NoError(t, c.Post(1, 5, holder, same))
		for !c.view.posts[1].Empty() {
			runtime.Gosched()
		}
	}); n != 0 {
		t.Errorf("Post: %v allocations", n)
	}
}

// State returns whole states while the plane switches all the time.
func TestStateIsConsistent(t *testing.T) {
	const switches = 300
	s := start(t)
	cs := dialHolding(t, s, 0)
	c := cs[0]
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := uint32(0); e < switches; e++ {
			for _, c := range cs {
				if err := c.Post(0, e, holder, circuit.Shift(4, int(e+2))); err != nil {
					t.Error(err)
					return
				}
			}
			deadline := time.Now().Add(60 * time.Second)
			for got, _ := c.Poll(0); got <= e && time.Now().Before(deadline); got, _ = c.Poll(0) {
				time.Sleep(10 * time.Microsecond)
			}
		}
	}()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		if st := cs[1].State(0); !st.Map.Equal(circuit.Shift(4, int(st.Epoch+1))) {
			t.Fatalf("%v", st)
		}
	}
	if st := c.State(0); st.Epoch != switches {
		t.Errorf("epoch %d", st.Epoch)
	}
}

// TestFlood: connections that never say hello give way to others.
func TestFlood(t *testing.T) {
	s := start(t)
	first := dial(t, s, 0)
	var silent []net.Conn
	for range 200 {
		c, err := net.Dial("unix", s.socket)
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		silent = append(silent, c)
	}
	// A connection that the time for its hello ends is told so.
	if n, err := silent[0].Read(make([]byte, 1)); n != 0 || err == nil {
		t.Error("the oldest one did not give way")
	}
	dial(t, s, 1)
	if _, err := first.Poll(0); err != nil {
		t.Error(err)
	}
}

// TestControllerDiesWhileWriting: a controller that is killed while it writes the state of a plane leaves the page half
// written. Its ranks see the state of before, and the error.
func TestControllerDiesWhileWriting(t *testing.T) {
	s := start(t)
	c := dial(t, s, 1)
	before := c.State(0)
	seq := word(s.status.plane(0), statusSeq)
	seq.Add(1)
	c.conn.shut() // as the controller's end does
	<-c.done
	if after := c.State(0); after.Epoch != before.Epoch || !after.Map.Equal(before.Map) {
		t.Errorf("%+v, before %+v", after, before)
	}
	if m := c.State(1).Map; !m.Equal(circuit.Shift(4, 1)) {
		t.Errorf("the other plane: %v", m)
	}
	if _, err := c.Poll(0); !errors.Is(err, ocsctl.ErrControlLost) {
		t.Errorf("%v", err)
	}
	seq.Add(1)
}
