package scpi

import (
	"bufio"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lightpath/internal/require"
	"lightpath/ocsctl/device"
)

// TestSlowClients on a fake clock: a client that takes too long loses the session, and the server does not execute half
// a line.
func TestSlowClients(t *testing.T) {
	for name, c := range map[string]struct {
		do    func(conn net.Conn)
		limit time.Duration
	}{
		"says nothing": {func(net.Conn) {}, 11 * time.Minute},
		"half a line":  {func(conn net.Conn) { _, _ = conn.Write([]byte(":OXC:SWIT:CONN:ADD (@1),(@5)")) }, 11 * time.Second},
		"drips": {func(conn net.Conn) {
			for _, b := range []byte(":OXC:SWIT:CONN:ADD (@1),(@5)" + strings.Repeat(" ", 1000)) {
				time.Sleep(time.Second)
				if _, err := conn.Write([]byte{b}); err != nil {
					return
				}
			}
		}, 12 * time.Second},
		"does not listen": {func(conn net.Conn) { _, _ = conn.Write([]byte("*IDN?\n")) }, 11 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, err := device.New(device.Config{Ports: 4, Preset: "plzt-ns"})
				require.NoError(t, err)
				defer d.Close()
				ours, theirs := net.Pipe()
				defer ours.Close()
				start, ended := time.Now(), make(chan struct{})
				go func() {
					defer close(ended)
					(&session{d: d, conn: theirs}).run(t.Context())
					theirs.Close()
				}()
				did := make(chan struct{})
				go func() { defer close(did); c.do(ours) }()
				<-ended
				if took := time.Since(start); took > c.limit {
					t.Errorf("it took %v, want at most %v", took, c.limit)
				}
				ours.Close()
				<-did
				if d.Revision() != 0 {
					t.Error("half a line was carried out")
				}
			})
		})
	}
}

// TestTooManyClients: the server keeps its clients and refuses further ones at once.
func TestTooManyClients(t *testing.T) {
	d, err := device.New(device.Config{Ports: 4, Preset: "plzt-ns"})
	require.NoError(t, err)
	defer d.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- Serve(t.Context(), l, d) }()
	served := 0
	for range maxSessions + 4 {
		conn, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		defer conn.Close()
		require.NoError(t, conn.SetDeadline(time.Now().Add(60*time.Second)))
		_, _ = conn.Write([]byte("*IDN?\n")) // one that is turned away may see this fail
		if _, err := bufio.NewReader(conn).ReadString('\n'); err == nil {
			served++
		}
	}
	if served != maxSessions {
		t.Errorf("%d clients were served, want %d", served, maxSessions)
	}
	l.Close()
	if err := <-done; err == nil {
		t.Error("the listener broke, and no error")
	}
}
