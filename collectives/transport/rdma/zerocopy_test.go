package rdma_test

import (
	"bytes"
	"testing"
	"time"
	"unsafe"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/rdma"
	"lightpath/collectives/transport/transporttest"
	"lightpath/collectives/wire"
	"lightpath/internal/assert"
	"lightpath/internal/require"
)

// TestLend checks that large payloads in registered memory are sent without a copy, and all other payloads are copied.
// Returned reports when the device no longer reads a payload.
func TestLend(t *testing.T) {
	for _, o := range []rdma.ListenOptions{{}, unacknowledged} {
		n := network(t)
		e := connect(t, n, 2, 2, o)
		t.Cleanup(func() { transporttest.Close(t, e[0], e[1]) })
		from, p := e[0].(*rdma.Endpoint), e[0].Planes()[1].(transport.Borrower)
		mem := make([]byte, 300<<10)
		release, err := from.Register(unsafe.Pointer(&mem[1]), uintptr(len(mem)-2))
		require.NoError(t, err)
		// lend sends payload on plane 1 and returns the last mark.
		lend := func(payload []byte) (last uint64) {
			for i := range payload {
				payload[i] = byte(i * 31)
			}
			want, got := bytes.Clone(payload), []byte(nil)
			sent := 0
			require.NoError(t, until(t, "exchange", func() (bool, error) {
				if sent < len(payload) {
					k, mark, err := p.Lend(&wire.Header{Dst: 1, Plane: 1, Offset: uint64(sent)}, payload[sent:])
					if err != nil {
						return false, err
					}
					if sent += k; mark != 0 && mark <= last {
						t.Fatalf("mark %d after %d", mark, last)
					}
					last = max(last, mark)
				}
				h, data, err := e[1].Planes()[1].Peek(0)
				if h != nil {
					got = append(got, data...)
					e[1].Planes()[1].Release(0)
				}
				return len(got) == len(want), err
			}))
			if !bytes.Equal(got, want) {
				t.Fatal("wrong bytes")
			}
			return last
		}
		counted := func(name string, payload []byte, lent bool) {
			t.Helper()
			before := from.Traffic()
			mark := lend(payload)
			now := from.Traffic()
			want := rdma.Traffic{Copied: before.Copied, Lent: before.Lent}
			if lent {
				want.Lent += int64(len(payload))
			} else {
				want.Copied += int64(len(payload))
			}
			if now != want || lent != (mark > 0) {
				t.Errorf("%s: %+v, want %+v; mark %d", name, now, want, mark)
			}
			returned := func() (bool, error) { m, err := p.Returned(1, true); return m >= mark, err }
			require.NoError(t, until(t, "Returned", returned))
			clear(payload) // the network checks that the device no longer reads it
		}
		counted("all", mem[1:len(mem)-1], true)
		counted("a part", mem[1000:100_000], true)
		counted("small", mem[1:4097], false)
		counted("before the beginning", mem[:20_000], false)
		counted("beyond the end", mem[20_000:], false)
		counted("other memory", make([]byte, 20_000), false)
		assert.NoError(t, release())
		assert.NoError(t, release())
		counted("after release", mem[1:len(mem)-1], false)
		if _, err := from.Register(unsafe.Pointer(&mem[0]), uintptr(len(mem))); err != nil { // Close releases it
			t.Fatal(err)
		}
		counted("registered again", mem, true)
		h := &wire.Header{Dst: 1, Plane: 1} // allocated once, because an argument of an interface's method escapes
		if n := testing.AllocsPerRun(20, func() {
			_, _, _ = p.Lend(h, mem)
			_, _ = p.Returned(1, true)
			if f, _, _ := e[1].Planes()[1].Peek(0); f != nil {
				e[1].Planes()[1].Release(0)
			}
		}); n != 0 {
			t.Errorf("%v allocations", n)
		}
	}
}

// TestReturnedWaitsForCompletion checks that Returned does not reach the mark before the request is complete, nor after
// it has failed.
func TestReturnedWaitsForCompletion(t *testing.T) {
	n := network(t)
	e := connect(t, n, 2, 1, rdma.ListenOptions{})
	t.Cleanup(func() { transporttest.Close(t, e[0], e[1]) })
	mem := make([]byte, 64<<10)
	if _, err := e[0].(*rdma.Endpoint).Register(unsafe.Pointer(&mem[0]), uintptr(len(mem))); err != nil {
		t.Fatal(err)
	}
	p := e[0].Planes()[0].(transport.Borrower)
	n.HoldAcks(0x11)
	_, mark, err := p.Lend(&wire.Header{Dst: 1}, mem)
	if err != nil || mark == 0 {
		t.Fatal(mark, err)
	}
	receive(t, e[1].Planes()[0], 0)
	for range 20 {
		if got, err := p.Returned(1, true); got >= mark || err != nil {
			t.Fatalf("Returned %d before mark %d is complete, %v", got, mark, err)
		}
		time.Sleep(10 * time.Microsecond)
	}
	require.NoError(t, n.Fail(0x11, rdma.AccessErr, 0))
	err = until(t, "failure", func() (bool, error) { m, err := p.Returned(1, true); return m >= mark, err })
	wants(t, err, rdma.ErrDevice, "REM_ACCESS_ERR")
}

// TestRegisterErrors registers bad ranges, and a range after Close.
func TestRegisterErrors(t *testing.T) {
	e := connect(t, network(t), 2, 1, rdma.ListenOptions{})
	from := e[0].(*rdma.Endpoint)
	b := []byte{1}
	for _, size := range []uintptr{0, ^uintptr(0)} {
		if _, err := from.Register(unsafe.Pointer(&b[0]), size); err == nil {
			t.Errorf("%d bytes: accepted", size)
		}
	}
	transporttest.Close(t, e[0], e[1])
	_, err := from.Register(unsafe.Pointer(&b[0]), 1)
	wants(t, err, transport.ErrClosed)
}
