package emulator

import (
	"encoding/binary"
	"fmt"
	"io"
	"path/filepath"
	"testing"
	"time"

	"lightpath/internal/assert"
	"lightpath/internal/await"
	"lightpath/internal/require"
	"lightpath/ocsctl"
	"lightpath/ocsctl/controller/local"
	"lightpath/plans/circuit"
)

// start runs a switch for the test.
func start(t *testing.T, c Config) *Server {
	t.Helper()
	if c.Socket == "" {
		c.Socket = filepath.Join(t.TempDir(), "ocs")
	}
	s, err := Start(c)
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, s.Close())
	})
	return s
}

// planes returns n equal planes.
func planes(n int, rate float64, reconfig time.Duration) []PlaneConfig {
	p := make([]PlaneConfig, n)
	for i := range p {
		p[i] = PlaneConfig{Name: fmt.Sprint("p", i), BandwidthBitsPerSec: rate, Reconfig: reconfig}
	}
	return p
}

// dialAll attaches every port.
func dialAll(t *testing.T, s *Server) []*Client {
	t.Helper()
	cs := make([]*Client, s.core.NumPorts())
	for p := range cs {
		cs[p] = dial(t, s, p)
	}
	return cs
}

func dial(t testing.TB, s *Server, port int) *Client {
	t.Helper()
	l, err := local.Dial(s.socket, port, "")
	require.NoError(t, err)
	c, err := Attach(l)
	if err != nil {
		shut(t, l)
		t.Fatal(err)
	}
	t.Cleanup(func() { shut(t, c) })
	return c
}

// put sends one frame whose label starts with id.
func put(t *testing.T, m PortMemory, id uint64, data int, epoch uint32) {
	t.Helper()
	b := m.TX.Reserve()
	if b == nil {
		t.Fatal("ring is full")
	}
	binary.LittleEndian.PutUint64(b, id)
	m.TX.Commit(LabelSize+data, epoch)
	m.Kick()
}

func TestFramesTravelAndPlanesSwitch(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	s := start(t, Config{Ports: 4, Planes: planes(2, 1e9, time.Millisecond), FrameLog: log,
		Initial: []circuit.Permutation{circuit.Shift(4, 1), circuit.Shift(4, 2)}})
	cs := dialAll(t, s)
	if _, err := cs[0].Acquire(ocsctl.Lease{Mask: 1, Holder: holder}); err != nil {
		t.Fatal(err)
	}
	for epoch := uint32(0); epoch < 4; epoch++ {
		shift := 1 + int(epoch)%3
		for p, c := range cs {
			put(t, c.Ports()[0], uint64(p), 1000, epoch)
		}
		for p, c := range cs {
			rx := c.Ports()[0].RX
			await.Until(t, "a frame arrives", func() bool { return !rx.Empty() })
			b, tag, err := rx.Peek()
			from := uint64((p - shift + 4) % 4)
			if err != nil || len(b) != LabelSize+1000 || binary.LittleEndian.Uint64(b) != from || tag != epoch {
				t.Fatalf("port %d got %d bytes of %d, tag %d, %v", p, len(b), binary.LittleEndian.Uint64(b), tag, err)
			}
			rx.Release()
		}
		next := circuit.Shift(4, 1+int(epoch+1)%3)
		for _, c := range cs {
			await.Until(t, "the wire is empty", c.Ports()[0].TX.Empty)
			require.NoError(t, c.Post(0, epoch, holder, next))
		}
		for _, c := range cs {
			await.Until(t, "the plane has switched", func() bool {
				e, err := c.Poll(0)
				require.NoError(t, err)
				return e == epoch+1
			})
			if st := c.State(0); st.Epoch != epoch+1 || !st.Map.Equal(next) {
				t.Fatalf("state %v", st)
			}
		}
	}
	shut(t, s)
	l, err := ReadLog(log)
	if err != nil || len(l.Frames) != 16 || len(l.Switches) != 4 {
		t.Fatalf("log %+v, %v", l, err)
	}
	if f := l.Frames[0]; f.Bytes != 1000 || f.Verdict != Delivered || f.Finish-f.Start != 8*1000 {
		t.Errorf("%+v", f)
	}
}

// shut closes what must close without an error.
func shut(t testing.TB, c io.Closer) {
	t.Helper()
	assert.NoError(t, c.Close())
}
