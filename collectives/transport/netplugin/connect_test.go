package netplugin

import (
	"errors"
	"testing"

	"lightpath/internal/require"
)

// stubPlugin connects at once. Its listeners cannot be closed.
type stubPlugin struct {
	Plugin
	open int // connections
}

var errStub = errors.New("the listener stays")

func (p *stubPlugin) Name() string      { return "stub" }
func (p *stubPlugin) Devices() []Device { return make([]Device, 1) }
func (p *stubPlugin) Listen(int) (Listener, []byte, error) {
	return stubEnd{p}, make([]byte, handleSize), nil
}
func (p *stubPlugin) Dial(int, []byte) Dialer { return stubDialer{p} }

type stubEnd struct{ p *stubPlugin }

func (s stubEnd) Close() error { return errStub }

func (s stubEnd) Accept() (Conn, error) {
	s.p.open++
	return &stubConn{p: s.p}, nil
}

type stubDialer struct{ p *stubPlugin }

func (s stubDialer) Close()                 {}
func (s stubDialer) Connect() (Conn, error) { return stubEnd(s).Accept() }

type stubConn struct {
	slowConn
	p *stubPlugin
}

func (c *stubConn) Close() error {
	c.p.open--
	return nil
}

// TestListenerStays fails to close the listeners after all connections exist. Connect must not leave the connections.
func TestListenerStays(t *testing.T) {
	for _, messages := range []bool{false, true} {
		p := &stubPlugin{}
		r, err := Listen(ListenOptions{Ranks: 2, Plugin: p, Devices: []int{0}, Messages: messages})
		require.NoError(t, err)
		handle := make([]byte, handleSize)
		peer := r.Addrs()
		peer.Handles = nil
		for range r.Addrs().Handles {
			peer.Handles = append(peer.Handles, [][]byte{handle, nil})
		}
		_, err = Connect(t.Context(), r, Options{Addrs: []Addrs{r.Addrs(), peer}})
		if !errors.Is(err, errStub) || p.open != 0 {
			t.Errorf("messages %v: %v, and %d open connections; want the error of the listener and none", messages, err, p.open)
		}
	}
}
