package control

import (
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pair is two ranks' sockets on the loopback interface.
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

// TestMessages: counts and flags arrive as they were put, and nothing is allocated for them.
func TestMessages(t *testing.T) {
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
			s[0].Send(1, Ask|Bye)
			if src, flags := receive(); src != 0 || flags != Ask|Bye || s[1].Count(0) != 7 || s[1].Count(1) != 1<<63 {
				t.Fatalf("from %d, flags %d: %d, %d", src, flags, s[1].Count(0), s[1].Count(1))
			}
		}
		if n := testing.AllocsPerRun(20, round); n != 0 {
			t.Errorf("%v allocations", n)
		}
		if src, _, more := s[0].Receive(); more || src >= 0 {
			t.Errorf("a message of rank %d that nobody has sent", src)
		}
	}
}

// TestForged: a message counts only where it comes from the rank that it speaks for, unchanged.
func TestForged(t *testing.T) {
	s := pair(t, "127.0.0.1:0")
	s[1].seal(0, 0)
	good := append([]byte(nil), s[1].out...)
	s[0].from = s[0].names[1]
	if s[0].open(good) != 1 {
		t.Fatal("a good message is refused")
	}
	for i := range good {
		m := append([]byte(nil), good...)
		m[i] ^= 0x10
		if s[0].open(m) >= 0 {
			t.Errorf("byte %d changed: taken", i)
		}
	}
	if s[0].open(good[:len(good)-1]) >= 0 || s[0].open(append(good, 0)) >= 0 || s[0].open(nil) >= 0 {
		t.Error("a message of another length is taken")
	}
	s[0].from = NewName(netip.MustParseAddrPort("127.0.0.1:9"))
	if s[0].open(good) >= 0 {
		t.Error("a message from another socket is taken")
	}
}

// TestListenErrors: what is no address of this host is refused.
func TestListenErrors(t *testing.T) {
	for _, addr := range []string{"here", ":0", "203.0.113.1:0"} {
		if fd, _, err := Listen(addr); err == nil {
			_ = unix.Close(fd)
			t.Errorf("%q: accepted", addr)
		}
	}
}

// FuzzMessage: nothing is a message but what is signed.
func FuzzMessage(f *testing.F) {
	o := Options{Comm: 0xc0, Counts: 1, Secret: [SecretSize]byte{1, 2, 3}}
	for range 2 {
		o.Addrs = append(o.Addrs, netip.MustParseAddrPort("127.0.0.1:9"))
	}
	s := New(-1, o)
	s.from = s.names[1]
	f.Add(make([]byte, len(s.out)))
	f.Add([]byte("short"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s.open(b) >= 0 {
			t.Errorf("%x is a message", b)
		}
	})
}
