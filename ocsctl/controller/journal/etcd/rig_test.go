package etcd

import (
	"context"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"lightpath/internal/await"
	"lightpath/internal/require"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/journal"
	"lightpath/ocsctl/controller/journal/journaltest"
	"lightpath/plans/circuit"
)

// open opens a store in dir, and closes it when the test ends.
func open(t testing.TB, dir string, change ...func(*Config)) *Client {
	t.Helper()
	conf := Config{Name: "test", Software: "0.1.0", Dir: dir, Lease: time.Minute} // no host stands still for so long
	for _, f := range change {
		f(&conf)
	}
	c, err := Open(t.Context(), conf)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// brief is a lease whose end a test awaits. A shorter one ends too early if the disk stands still for some seconds.
func brief(c *Config) { c.Lease = 12 * time.Second }

// through has a client called name reach the store at an address.
func through(name, address string) func(*Config) {
	return func(c *Config) { c.Name, c.Dir, c.Endpoints = name, "", []string{"unix:" + address} }
}

// lead campaigns and recovers.
func lead(t testing.TB, c *Client) *leadership {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), journaltest.Patience)
	defer cancel()
	l, err := c.Campaign(ctx)
	require.NoError(t, err)
	if _, err := l.Recovered(journaltest.Ports, journaltest.Planes); err != nil {
		t.Fatal(err)
	}
	return l.(*leadership)
}

// storedState returns the state of plane 0 in the store.
func storedState(t testing.TB, c *Client) journal.State {
	t.Helper()
	key := c.key(journal.PlaneKey(0))
	resp, err := c.etcd.Get(t.Context(), key)
	if err != nil || len(resp.Kvs) != 1 {
		t.Fatal(resp, err)
	}
	_, s, err := journal.DecodePlane(key, resp.Kvs[0].Value)
	require.NoError(t, err)
	return s
}

// write writes a value as a program that is no controller would. etcd answers no write while its disk stands still for
// 6 s.
func write(t testing.TB, c *Client, name, value string) {
	t.Helper()
	await.Success(t, "a write", func() error {
		_, err := c.etcd.Put(t.Context(), c.key(name), value)
		return err
	})
}

// intent is one of plane 0.
func intent(epoch uint32) controller.Intent {
	return controller.Intent{Epoch: epoch, To: circuit.Shift(journaltest.Ports, int(epoch))}
}

// stopClock makes a client believe that no time passes any more: it does not notice by its clock that its lease has run
// out.
func stopClock(c *Client) {
	now := c.clock()
	c.clock = func() time.Duration { return now }
}

// relay passes connections on to a server until it is told not to: a network that fails.
type relay struct {
	address, server string
	listener        net.Listener

	mu    sync.Mutex
	cond  *sync.Cond
	stuck [2]bool // there, back
	conns []net.Conn
	ended bool
}

const there, back = 0, 1

func newRelay(t testing.TB, server string) *relay {
	t.Helper()
	address := filepath.Join(t.TempDir(), "relay.sock")
	l, err := net.Listen("unix", address)
	require.NoError(t, err)
	r := &relay{address: address, server: server, listener: l}
	r.cond = sync.NewCond(&r.mu)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("unix", server)
			if err != nil {
				in.Close()
				continue
			}
			r.mu.Lock()
			r.conns = append(r.conns, in, out)
			r.mu.Unlock()
			wg.Go(func() { r.pass(out, in, there) })
			wg.Go(func() { r.pass(in, out, back) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		r.mu.Lock()
		r.ended = true
		r.mu.Unlock()
		r.cond.Broadcast()
		r.cut()
		wg.Wait()
	})
	return r
}

func (r *relay) pass(to, from net.Conn, way int) {
	defer to.Close()
	b := make([]byte, 1<<16)
	for {
		n, err := from.Read(b)
		r.mu.Lock()
		for r.stuck[way] && !r.ended {
			r.cond.Wait()
		}
		r.mu.Unlock()
		if _, e := to.Write(b[:n]); err != nil || e != nil {
			return
		}
	}
}

// stick holds back the bytes of one direction; free forwards them.
func (r *relay) stick(ways ...int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range ways {
		r.stuck[w] = true
	}
}

func (r *relay) free() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stuck = [2]bool{}
	r.cond.Broadcast()
}

// cut ends all connections.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		c.Close()
	}
	r.conns = nil
}

var _ io.Closer = (*Client)(nil)
