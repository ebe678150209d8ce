package emulator

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"lightpath/ocsctl"
	"lightpath/plans/circuit"
)

func fourPorts(t *testing.T) Config {
	return Config{Socket: filepath.Join(t.TempDir(), "ocs"), Ports: 4, Planes: planes(2, 1e9, 0),
		Initial: []circuit.Permutation{circuit.Shift(4, 1), circuit.Shift(4, 1)}}
}

// failsWith waits until the plane has failed for a port and checks the error.
func failsWith(t *testing.T, c *Client, plane int, want error, says ...string) {
	t.Helper()
	var err error
	eventually(t, fmt.Sprintf("port %d: %v", c.Port(), want), func() bool {
		_, err = c.Poll(plane)
		return err != nil
	})
	if !errors.Is(err, want) {
		t.Errorf("port %d: %v, want %v", c.Port(), err, want)
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("port %d: %q does not say %q", c.Port(), err, s)
		}
	}
}

func TestConflictFailsThePlaneForAll(t *testing.T) {
	s := start(t, fourPorts(t))
	cs := dialAll(t, s)
	if err := cs[1].Post(0, 0, circuit.Shift(4, 2)); err != nil {
		t.Fatal(err)
	}
	if err := cs[2].Post(0, 0, circuit.Shift(4, 3)); err != nil {
		t.Fatal(err)
	}
	for _, c := range cs {
		failsWith(t, c, 0, ocsctl.ErrConflict, "plane 0", "epoch 0", "ports")
		if _, err := c.Poll(1); err != nil {
			t.Errorf("the other plane: %v", err)
		}
	}
}

func TestKilledRankIsNamed(t *testing.T) {
	s := start(t, fourPorts(t))
	cs := dialAll(t, s)
	for p := range 3 {
		if err := cs[p].Post(0, 0, circuit.Shift(4, 2)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "three posts", func() bool { return cs[0].Waiting(0) == "plane 0 epoch 0: waiting for ports 3" })
	cs[3].conn.shut() // as its process's end would
	for p := range 3 {
		failsWith(t, cs[p], 0, ocsctl.ErrPortLost, "port 3")
	}
	if _, err := cs[3].Poll(0); !errors.Is(err, ocsctl.ErrControlLost) && !errors.Is(err, ocsctl.ErrPortLost) {
		eventually(t, "the killed client knows", func() bool { _, err := cs[3].Poll(0); return err != nil })
	}
}

func TestAlarmReachesTheSender(t *testing.T) {
	s := start(t, fourPorts(t))
	cs := dialAll(t, s)
	shut(t, cs[3])
	put(t, cs[2].Ports()[1], 1, 100, 0)
	eventually(t, "the ring empties", cs[2].Ports()[1].TX.Empty)
	// From the moment that the ring is empty the loss is known.
	if _, err := cs[2].Poll(1); !errors.Is(err, ocsctl.ErrFramesLost) || !strings.Contains(err.Error(), "plane 1 epoch 0: 1 frames (1 vacant port: the rank of port 3 is gone)") {
		t.Errorf("%v", err)
	}
	if _, err := cs[1].Poll(1); err != nil {
		t.Errorf("port 1: %v", err)
	}
}

func TestStalePostFailsItsPort(t *testing.T) {
	s := start(t, fourPorts(t))
	cs := dialAll(t, s)
	for _, c := range cs {
		if err := c.Post(0, 0, circuit.Shift(4, 2)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "switched", func() bool { e, _ := cs[0].Poll(0); return e == 1 })
	if err := cs[0].Post(0, 0, circuit.Shift(4, 3)); err != nil {
		t.Fatal(err)
	}
	failsWith(t, cs[0], 0, ocsctl.ErrStaleEpoch, "epoch 0 at epoch 1")
	if _, err := cs[1].Poll(0); err != nil {
		t.Error(err)
	}
}

func TestRefusals(t *testing.T) {
	cfg := fourPorts(t)
	s := start(t, cfg)
	c := dial(t, s, 2)
	for _, tc := range []struct {
		name string
		do   func() error
		want error
		says string
	}{
		{"port taken", func() error { _, err := Dial(cfg.Socket, 2); return err }, ErrPortBusy, "port 2"},
		{"port out of range", func() error { _, err := Dial(cfg.Socket, 4); return err }, nil, "ports 0..3"},
		{"negative port", func() error { _, err := Dial(cfg.Socket, -1); return err }, nil, "port -1"},
		{"nobody there", func() error { _, err := Dial(cfg.Socket+"x", 0); return err }, ocsctl.ErrControlLost, "is `lightpath ocsd` running?"},
		{"second switch", func() error { _, err := Start(cfg); return err }, ErrRunning, cfg.Socket},
		{"post: plane", func() error { return c.Post(2, 0, circuit.Shift(4, 1)) }, nil, "plane 2 of 2"},
		{"post: ports", func() error { return c.Post(0, 0, circuit.Shift(5, 1)) }, nil, "5 entries, want 4"},
		{"acquire: plane", func() error { return c.Acquire(4, 1) }, nil, "0x4"},
		{"acquire: nothing", func() error { return c.Acquire(0, 1) }, nil, "0x0"},
		{"release: not held", func() error { return c.Release(1, 1) }, nil, "holder 1"},
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
	s := start(t, fourPorts(t))
	for _, m := range []*message{
		{Type: msgPost, Target: circuit.Permutation{0, 0, 1, 2}}, {Type: msgPost, Plane: 7, Target: circuit.Shift(4, 1)},
		{Type: msgAcquire, Mask: 8}, {Type: msgWelcome}, {Type: msgRelease, Mask: 1},
	} {
		c := dial(t, s, 0)
		if err := c.send(m); err != nil {
			t.Fatal(err)
		}
		failsWith(t, c, 0, ocsctl.ErrControlLost)
		shut(t, c)
	}
}

func TestHello(t *testing.T) {
	s := start(t, fourPorts(t))
	for _, tc := range []struct {
		send []byte
		says string
	}{
		{[]byte("GET / HTTP/1.1\r\n\r\n"), "malformed"},
		{frame(`{"type":"hello","version":999,"port":1}`), "version 999"},
		{frame(`{"type":"hello","version":1,"port":1}`), "descriptor"},
		{frame(`{"type":"post","plane":1}`), "before hello"},
		{frame(`{"type":"hello","version":1,"port":1,"colour":"red"}`), "colour"},
	} {
		raw, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: s.cfg.Socket, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
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
	if err := remoteError(&message{Text: "client speaks protocol version 2, the switch speaks 1: version mismatch"}); !errors.Is(err, ErrVersion) {
		t.Error(err)
	}
}

func frame(body string) []byte {
	return append([]byte{0, 0, byte(len(body) >> 8), byte(len(body))}, body...)
}

func TestStaleSocketIsReplaced(t *testing.T) {
	cfg := fourPorts(t)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: cfg.Socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	shut(t, l)
	s := start(t, cfg)
	if st, err := os.Stat(cfg.Socket); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	dial(t, s, 0)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(cfg.Socket + "*"); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	if err := os.WriteFile(cfg.Socket, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(cfg); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("a file in the place of the socket: %v", err)
	}
}

func TestConfigNamesTheField(t *testing.T) {
	for field, change := range map[string]func(*Config){
		"socket":              func(c *Config) { c.Socket = "" },
		"at most 107":         func(c *Config) { c.Socket = strings.Repeat("x", 108) },
		"ports":               func(c *Config) { c.Ports = 0 },
		"planes":              func(c *Config) { c.Planes = nil },
		"planes[1] bandwidth": func(c *Config) { c.Planes[1].BandwidthBitsPerSec = 0 },
		"planes[0] reconfig":  func(c *Config) { c.Planes[0].Reconfig = -1 },
		"mtu":                 func(c *Config) { c.MTU = LabelSize },
		"slots":               func(c *Config) { c.Slots = 1 },
		"initial":             func(c *Config) { c.Initial = c.Initial[:1] },
		"initial[1]":          func(c *Config) { c.Initial[1] = circuit.Permutation{1, 1, 0, 2} },
	} {
		c := fourPorts(t)
		change(&c)
		s, err := Start(c)
		if err == nil {
			shut(t, s)
		}
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// Two holders that ask for the planes again and again, as two communicators do, always
// both finish; a holder that is killed gives its planes back.
func TestHoldersDoNotDeadlock(t *testing.T) {
	s := start(t, fourPorts(t))
	cs := dialAll(t, s)
	masks := [][]uint64{{1, 2, 3}, {3, 2, 1}, {2, 3, 1}}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var inUse uint64
	for i, m := range masks {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for k := range 60 {
				mask := m[k%3]
				if err := cs[i].Acquire(mask, uint64(i)); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if inUse&mask != 0 {
					t.Error("a plane is held twice")
				}
				inUse |= mask
				mu.Unlock()
				mu.Lock()
				inUse &^= mask
				mu.Unlock()
				if err := cs[i].Release(mask, uint64(i)); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	wg.Wait()
	if err := cs[0].Acquire(3, 9); err != nil {
		t.Fatal(err)
	}
	cs[0].conn.shut()
	if err := cs[1].Acquire(1, 9); err != nil {
		t.Fatal(err)
	}
}

func TestCloseEndsEveryWait(t *testing.T) {
	s := start(t, fourPorts(t))
	cs := dialAll(t, s)
	if err := cs[0].Acquire(1, 1); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 2)
	for _, p := range []int{1, 2} {
		go func() { ended <- cs[p].Acquire(1, 1) }()
	}
	eventually(t, "both wait", func() bool {
		n := 0
		_ = s.call(func(f *fabric, _ int64) { n = len(f.lease.queue) })
		return n == 2
	})
	shut(t, cs[1])
	if err := <-ended; !errors.Is(err, ocsctl.ErrControlLost) {
		t.Error(err)
	}
	shut(t, s)
	if err := <-ended; !errors.Is(err, ocsctl.ErrControlLost) {
		t.Error(err)
	}
	failsWith(t, cs[0], 0, ocsctl.ErrControlLost)
	shut(t, cs[0])
	if _, err := cs[0].Poll(0); !errors.Is(err, ocsctl.ErrControlLost) {
		t.Error(err)
	}
	cs[0].State(0)
	if err := cs[0].Post(0, 0, circuit.Shift(4, 1)); !errors.Is(err, ocsctl.ErrControlLost) {
		t.Error(err)
	}
}

func TestOnChange(t *testing.T) {
	s := start(t, fourPorts(t))
	cs := dialAll(t, s)
	called := make(chan struct{}, 16)
	cs[0].OnChange(func() { called <- struct{}{} })
	for _, c := range cs {
		if err := c.Post(1, 0, circuit.Shift(4, 3)); err != nil {
			t.Fatal(err)
		}
	}
	<-called
	if e, err := cs[0].Poll(1); e != 1 || err != nil {
		t.Error(e, err)
	}
	shut(t, s)
	<-called
}

// A port is free as soon as Close has returned, and nothing is left of a connection.
func TestNothingLeaks(t *testing.T) {
	s := start(t, fourPorts(t))
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
		c, err := Dial(s.cfg.Socket, 1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Dial(s.cfg.Socket, 9); err == nil {
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
	eventually(t, "quiet", settled)
	before, beforeMaps := f, m
	for range 50 {
		round()
	}
	eventually(t, fmt.Sprintf("as many descriptors (%d) and maps (%d) as before", before, beforeMaps), func() bool {
		return files() <= before && maps() <= beforeMaps
	})
}

func TestPollingAllocatesNothing(t *testing.T) {
	s := start(t, fourPorts(t))
	c := dial(t, s, 0)
	same := circuit.Shift(4, 2)
	c.State(0)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := c.Poll(0); err != nil {
			t.Error(err)
		}
		c.State(0)
	}); n != 0 {
		t.Errorf("Poll and State: %v allocations", n)
	}
	// The measure counts the whole process; with the switch in another one Post costs none.
	b := make([]byte, 0, 4096)
	if n := testing.AllocsPerRun(100, func() { b = appendPost(b[:0], 1, 77, same) }); n != 0 {
		t.Errorf("encoding a post: %v allocations", n)
	}
	m, err := decodeMessage(b[4:])
	if err != nil || m.Type != msgPost || m.Plane != 1 || m.Epoch != 77 || !m.Target.Equal(same) {
		t.Errorf("%+v, %v", m, err)
	}
}

// State returns whole states while the plane switches all the time.
func TestStateIsConsistent(t *testing.T) {
	const switches = 300
	s := start(t, Config{Socket: filepath.Join(t.TempDir(), "ocs"), Ports: 8, Planes: planes(1, 1e9, 0),
		Initial: []circuit.Permutation{circuit.Shift(8, 0)}})
	c := dial(t, s, 0)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := uint32(0); e < switches; e++ {
			if err := c.Post(0, e, circuit.Shift(8, int(e+1))); err != nil {
				t.Error(err)
				return
			}
			deadline := time.Now().Add(20 * time.Second)
			for got, _ := c.Poll(0); got <= e && time.Now().Before(deadline); got, _ = c.Poll(0) {
				time.Sleep(10 * time.Microsecond)
			}
		}
	}()
	o, err := Observe(s.cfg.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer shut(t, o)
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		st, err := o.State(0)
		if err != nil || !st.Map.Equal(circuit.Shift(8, int(st.Epoch))) {
			t.Fatalf("%v, %v", st, err)
		}
	}
	if st := c.State(0); st.Epoch != switches {
		t.Errorf("epoch %d", st.Epoch)
	}
}

// A rank that has posted and said goodbye is not missed; what it agreed to holds.
func TestPostsOutliveGoodbye(t *testing.T) {
	s := start(t, fourPorts(t))
	cs := dialAll(t, s)
	next := circuit.Shift(4, 2)
	if err := cs[3].Post(0, 0, next); err != nil {
		t.Fatal(err)
	}
	shut(t, cs[3])
	for _, c := range cs[:3] {
		if err := c.Post(0, 0, next); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the plane has switched", func() bool {
		e, err := cs[0].Poll(0)
		if err != nil {
			t.Fatal(err)
		}
		return e == 1
	})
	again := dial(t, s, 3)
	if st := again.State(0); st.Epoch != 1 || !st.Map.Equal(next) {
		t.Errorf("%v", st)
	}
}
