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
)

// TestLend: payload in memory that is registered is sent from where it is and given back when the device
// has no more use for it; all other payload is copied, and so is a little of it.
func TestLend(t *testing.T) {
	for _, o := range []rdma.ListenOptions{{}, bare} {
		n := network(t)
		e := connect(t, n, 2, 2, o)
		t.Cleanup(func() { transporttest.Close(t, e[0], e[1]) })
		from, p := e[0].(*rdma.Endpoint), e[0].Planes()[1].(transport.Borrower)
		mem := make([]byte, 300<<10)
		release, err := from.Register(unsafe.Pointer(&mem[1]), uintptr(len(mem)-2))
		if err != nil {
			t.Fatal(err)
		}
		// lend sends payload of plane 1 and returns the last mark.
		lend := func(payload []byte) (last uint64) {
			for i := range payload {
				payload[i] = byte(i * 31)
			}
			want, got := bytes.Clone(payload), []byte(nil)
			sent := 0
			if err := until(t, "exchange", func() (bool, error) {
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
			}); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Fatal("bytes differ")
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
			if err := until(t, "return", func() (bool, error) { m, err := p.Returned(1); return m >= mark, err }); err != nil {
				t.Fatal(err)
			}
			clear(payload) // the network checks that nobody reads it now
		}
		counted("all", mem[1:len(mem)-1], true)
		counted("a part", mem[1000:100_000], true)
		counted("little", mem[1:4097], false)
		counted("beyond the beginning", mem[:20_000], false)
		counted("beyond the end", mem[20_000:], false)
		counted("elsewhere", make([]byte, 20_000), false)
		if err := release(); err != nil {
			t.Error(err)
		}
		if err := release(); err != nil {
			t.Error(err)
		}
		counted("not any more", mem[1:len(mem)-1], false)
		if _, err := from.Register(unsafe.Pointer(&mem[0]), uintptr(len(mem))); err != nil { // Close gives it back
			t.Fatal(err)
		}
		counted("again", mem, true)
		h := &wire.Header{Dst: 1, Plane: 1} // outside: what passes an interface is on the heap
		if n := testing.AllocsPerRun(20, func() {
			_, _, _ = p.Lend(h, mem)
			_, _ = p.Returned(1)
			if f, _, _ := e[1].Planes()[1].Peek(0); f != nil {
				e[1].Planes()[1].Release(0)
			}
		}); n != 0 {
			t.Errorf("%v allocations", n)
		}
	}
}

// TestNotReturned: nothing is given back before the device is done with it, and not after it has failed.
func TestNotReturned(t *testing.T) {
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
	for range 100 {
		if got, err := p.Returned(1); got >= mark || err != nil {
			t.Fatalf("given back up to %d of %d, %v", got, mark, err)
		}
		time.Sleep(10 * time.Microsecond)
	}
	if err := n.Fail(0x11, rdma.AccessErr, 0); err != nil {
		t.Fatal(err)
	}
	err = until(t, "failure", func() (bool, error) { m, err := p.Returned(1); return m >= mark, err })
	wants(t, err, rdma.ErrDevice, "REM_ACCESS_ERR")
}

// TestRegisterErrors: what is no memory is refused, and so is all after Close.
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
