package counts

import (
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pair returns two ranks' sockets on the loopback interface.
func pair(t testing.TB, host string) [2]*Socket {
	t.Helper()
	o := Options{Comm: 0xc0, Counts: 2, Secret: [SecretSize]byte{1, 2, 3}}
	var fds [2]int
	for i := range fds {
		fd, at, err := Listen(host)
		if err != nil {
			t.Skipf("%s: %v", host, err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		fds[i] = fd
		o.Addrs = append(o.Addrs, at)
	}
	var s [2]*Socket
	for i := range s {
		o.Rank = i
		s[i] = New(fds[i], o)
	}
	return s
}

// TestSendAndReceive checks that counts and flags arrive, and that neither call allocates.
func TestSendAndReceive(t *testing.T) {
	for _, host := range []string{"127.0.0.1:0", "[::1]:0"} {
		s := pair(t, host)
		receive := func() (src int, flags uint16) {
			for start := time.Now(); time.Since(start) < 30*time.Second; {
				if src, flags, more := s[1].Receive(); more {
					return src, flags
				}
			}
			t.Fatal("no message")
			return
		}
		round := func() {
			s[0].Put(0, 7)
			s[0].Put(1, 1<<63)
			s[0].Send(1, Request|Closing)
			if src, flags := receive(); src != 0 || flags != Request|Closing || s[1].Count(0) != 7 || s[1].Count(1) != 1<<63 {
				t.Fatalf("from %d, flags %d: %d, %d", src, flags, s[1].Count(0), s[1].Count(1))
			}
		}
		if n := testing.AllocsPerRun(20, round); n != 0 {
			t.Errorf("%v allocations", n)
		}
		if src, _, more := s[0].Receive(); more || src >= 0 {
			t.Errorf("rank 0 received a message of rank %d, which sent none", src)
		}
	}
}

// TestRejectsForgedMessages changes every byte, the length and the source address of a message.
func TestRejectsForgedMessages(t *testing.T) {
	s := pair(t, "127.0.0.1:0")
	s[1].encode(0, 0)
	good := append([]byte(nil), s[1].out...)
	s[0].from = s[0].addrs[1]
	if s[0].sender(good) != 1 {
		t.Fatal("a correct message is rejected")
	}
	for i := range good {
		m := append([]byte(nil), good...)
		m[i] ^= 0x10
		if s[0].sender(m) >= 0 {
			t.Errorf("byte %d changed: accepted", i)
		}
	}
	if s[0].sender(good[:len(good)-1]) >= 0 || s[0].sender(append(good, 0)) >= 0 || s[0].sender(nil) >= 0 {
		t.Error("a message of another length is accepted")
	}
	s[0].from = NewRawAddr(netip.MustParseAddrPort("127.0.0.1:9"))
	if s[0].sender(good) >= 0 {
		t.Error("a message from another socket is accepted")
	}
}

// TestListenErrors listens at addresses that are not addresses of this host.
func TestListenErrors(t *testing.T) {
	for _, addr := range []string{"here", ":0", "203.0.113.1:0"} {
		if fd, _, err := Listen(addr); err == nil {
			_ = unix.Close(fd)
			t.Errorf("%q: accepted", addr)
		}
	}
}

// FuzzMessage checks that no bytes without a valid MAC are accepted.
func FuzzMessage(f *testing.F) {
	o := Options{Comm: 0xc0, Counts: 1, Secret: [SecretSize]byte{1, 2, 3}}
	for range 2 {
		o.Addrs = append(o.Addrs, netip.MustParseAddrPort("127.0.0.1:9"))
	}
	s := New(-1, o)
	s.from = s.addrs[1]
	f.Add(make([]byte, len(s.out)))
	f.Add([]byte("short"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s.sender(b) >= 0 {
			t.Errorf("accepted %x", b)
		}
	})
}
