package delay_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"lightpath/internal/require"
	"lightpath/ocsctl/kernel/delay"
	"lightpath/ocsctl/kernel/kerneltest"
)

// TestDelay checks that frames between two hosts arrive whole, joined ones too, and not before their time.
func TestDelay(t *testing.T) {
	const by = 3 * time.Millisecond
	hosts, ethernet := kerneltest.Wired(t, 2, 1, 9000)
	addresses := []string{"10.78.0.1", "10.78.0.2"}
	for i, host := range hosts {
		kerneltest.Within(t, host, func() error {
			link, err := netlink.LinkByName(kerneltest.Interface(0))
			require.NoError(t, err)
			address, err := netlink.ParseAddr(addresses[i] + "/24")
			require.NoError(t, err)
			return errors.Join(netlink.AddrAdd(link, address), netlink.LinkSetUp(link))
		})
	}
	ethernet.Slow(t, 0, by)
	var listener net.Listener
	kerneltest.Within(t, hosts[1], func() (err error) {
		listener, err = net.Listen("tcp4", addresses[1]+":0")
		return err
	})
	defer listener.Close()
	go func() {
		c, err := listener.Accept()
		if err != nil {
			return
		}
		_, _ = io.Copy(c, c) // the other end sees what comes back
		c.Close()
	}()
	var c *net.TCPConn
	kerneltest.Within(t, hosts[0], func() error {
		conn, err := net.Dial("tcp4", listener.Addr().String())
		c, _ = conn.(*net.TCPConn)
		return err
	})
	defer func() { require.NoError(t, c.Close()) }()
	begun := time.Now()
	echo(t, c, make([]byte, 1))
	if took := time.Since(begun); took < 2*by {
		t.Errorf("there and back in %v", took)
	}
	data := make([]byte, 4<<20)
	_, _ = rand.Read(data)
	echo(t, c, data)
}

// echo sends data and checks that it comes back.
func echo(t *testing.T, c *net.TCPConn, data []byte) {
	t.Helper()
	require.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(data)
		sent <- err
	}()
	back := make([]byte, len(data))
	_, err := io.ReadFull(c, back)
	require.NoError(t, err)
	require.NoError(t, <-sent)
	if !bytes.Equal(back, data) {
		t.Errorf("%d bytes come back changed", len(data))
	}
}

// TestRefuses checks that an interface outside bridges is refused.
func TestRefuses(t *testing.T) {
	hosts := kerneltest.Hosts(t, 1, 1, 1500)
	kerneltest.Within(t, hosts[0], func() error {
		_, err := delay.New([]string{kerneltest.Interface(0)}, time.Millisecond)
		if err == nil || err.Error() != "delay: interface e0: is no port of a bridge" {
			t.Errorf("%v", err)
		}
		return nil
	})
}
