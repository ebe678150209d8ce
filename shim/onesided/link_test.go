package onesided

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"lightpath/shim/bootstrap"
	"lightpath/shim/comm"
	"lightpath/shim/errdefs"
	"lightpath/shim/settings"
)

// TestPutToSilentTarget puts to a target that does not read, as a process that is stopped.
func TestPutToSilentTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer near.Close()
		defer far.Close()
		c := &comm.Core{Identity: comm.Identity{
			Cfg: &settings.Config{Timeout: time.Minute}, Table: make([]bootstrap.Hello, 2),
		}}
		l := &link{s: &State{c: c}, peer: 1, conn: near, Windows: map[int]*peerWindow{0: {size: 8}}}
		time.AfterFunc(time.Hour, func() { _ = far.Close() })
		for name, call := range map[string]func() error{
			"put":    func() error { return l.put(0, 0, make([]byte, 8)) },
			"signal": l.signal,
		} {
			if err := call(); !errors.Is(err, errdefs.ErrTimeout) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// TestPutToSlowTarget puts to a target that reads, but takes longer than LIGHTPATH_TIMEOUT for all of it.
func TestPutToSlowTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer near.Close()
		defer far.Close()
		c := &comm.Core{Identity: comm.Identity{Cfg: &settings.Config{Timeout: time.Minute}}}
		l := &link{s: &State{c: c}, conn: near}
		const size = 4*sendPiece + 1
		total := make(chan int)
		go func() {
			read, b := 0, make([]byte, sendPiece)
			for read < sideMessageBytes+size {
				time.Sleep(20 * time.Second)
				n, err := far.Read(b)
				if err != nil {
					t.Error(err)
					break
				}
				read += n
			}
			total <- read
		}()
		if err := l.send(&message{kind: sidePut, bytes: size}, make([]byte, size)); err != nil {
			t.Error(err)
		}
		if n := <-total; n != sideMessageBytes+size {
			t.Errorf("%d bytes have arrived, want %d", n, sideMessageBytes+size)
		}
	})
}
