package netplugin

import (
	"testing"
	"unsafe"

	"lightpath/collectives/transport/messages"
	"lightpath/internal/require"
)

// slowConn completes requests when the test says so: a plugin may learn late that a message has been sent.
type slowConn struct {
	Conn
	posted, done Request
}

func (c *slowConn) Register([]byte) (Memory, error) { return 0, nil }
func (c *slowConn) Deregister(Memory) error         { return nil }
func (c *slowConn) Close() error                    { return nil }

func (c *slowConn) RegisterDevice(unsafe.Pointer, int, int, uint64) (Memory, error) { return 0, nil }

func (c *slowConn) Send(unsafe.Pointer, int, Memory) (Request, error) {
	c.posted++
	return c.posted, nil
}

func (c *slowConn) Receive(at unsafe.Pointer, n int, m Memory) (Request, error) {
	return c.Send(at, n, m)
}

func (c *slowConn) Test(r Request) (size int, done bool, err error) {
	return 64, r <= c.done, nil
}

// TestMessageAfterEmptyOne receives an empty message and another one. The bytes of the second one arrive before the
// plugin says that the offers have been sent.
func TestMessageAfterEmptyOne(t *testing.T) {
	o := ListenOptions{Ranks: 2, Devices: []int{0}, Messages: true}
	e, err := newEndpoint(&o, maxMessage, &Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	m, offers, data := e.messenger, &slowConn{}, &slowConn{done: 1}
	q := &e.planes[0].peers[1]
	require.NoError(t, q.tx.open(offers, q.rings[1], slots))
	m.flows[m.flow(0, 1, false)].conn = data
	at := unsafe.Pointer(new([64]byte))
	r, err := m.Register(-1, 0, at, 64)
	require.NoError(t, err)
	require.NoError(t, m.Begin(&messages.Group{Transfers: []messages.Transfer{
		{Peer: 1}, {Peer: 1, At: at, Bytes: 64, Region: r},
	}}))
	for offers.done = range Request(3) {
		over, err := m.Poll()
		require.NoError(t, err)
		if want := int(offers.done) / 2; len(over) != want {
			t.Errorf("%d offers sent: %d groups are complete, want %d", offers.done, len(over), want)
		}
	}
}
