package local

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"testing"

	"lightpath/internal/await"
	"lightpath/internal/require"
	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/plans/circuit"
)

// table is a device that does what it is told.
type table struct {
	mu   sync.Mutex
	maps []circuit.Permutation
}

func (d *table) Switch(plane int, m controller.Move) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.maps[plane] = m.To
	return nil
}

func (d *table) Map(plane int) (circuit.Permutation, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.maps[plane], nil
}

// testServer is a controller of planes that carry nothing.
type testServer struct {
	*Server
	socket string
	once   sync.Once
}

func (s *testServer) Close() error {
	s.once.Do(func() {
		s.Server.Close()
		s.core.Close()
	})
	return nil
}

// serve starts a controller at a socket.
func serve(socket string, ports, planes int) (*testServer, error) {
	c := controller.Config{Name: "test", Ports: ports, Planes: make([]controller.PlaneConfig, planes), Forgive: true}
	d := &table{}
	for range planes {
		d.maps = append(d.maps, circuit.Shift(ports, 1))
	}
	c.Device = d
	core, err := controller.Start(c)
	if err != nil {
		return nil, err
	}
	s, err := Serve(core, Options{Socket: socket, Version: "1.2.3"})
	if err != nil {
		core.Close()
		return nil, err
	}
	return &testServer{Server: s, socket: socket}, nil
}

// start is serve for a test, with four ports and two planes.
func start(t testing.TB) *testServer {
	t.Helper()
	return startAt(t, filepath.Join(t.TempDir(), "ocs"))
}

func startAt(t testing.TB, socket string) *testServer {
	t.Helper()
	s, err := serve(socket, 4, 2)
	require.NoError(t, err)
	t.Cleanup(func() { shut(t, s) })
	return s
}

func dial(t testing.TB, s *testServer, port int) *Client {
	t.Helper()
	c, err := Dial(s.socket, port, "")
	require.NoError(t, err)
	t.Cleanup(func() { shut(t, c) })
	return c
}

func dialAll(t testing.TB, s *testServer) []*Client {
	t.Helper()
	var cs []*Client
	for p := range s.core.NumPorts() {
		cs = append(cs, dial(t, s, p))
	}
	return cs
}

// holder is the communicator of ranks in tests.
const holder = 7

// dialHolding is dialAll with a plane that port 0 holds.
func dialHolding(t testing.TB, s *testServer, plane int) []*Client {
	t.Helper()
	cs := dialAll(t, s)
	if _, err := cs[0].Acquire(ocsctl.Lease{Mask: 1 << plane, Holder: holder}); err != nil {
		t.Fatal(err)
	}
	return cs
}

func shut(t testing.TB, c io.Closer) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// cutOff waits until a client has lost its connection.
func cutOff(t *testing.T, c *Client) {
	t.Helper()
	var err error
	await.Until(t, fmt.Sprintf("port %d is cut off", c.Port()), func() bool {
		_, err = c.Poll(0)
		return err != nil
	})
	if !errors.Is(err, ocsctl.ErrControlLost) {
		t.Errorf("port %d: %v", c.Port(), err)
	}
}
