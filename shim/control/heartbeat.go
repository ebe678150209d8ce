package control

import (
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// probes is the number of unanswered probes after which a connection ends.
const probes = 4

// Probe makes the kernel end each connection whose other host sends no answer for a heartbeat.
func (c *Star) Probe(heartbeat time.Duration) error {
	for rank, l := range c.links {
		if l == nil {
			continue
		}
		if err := probe(l.conn.(*net.TCPConn), heartbeat); err != nil {
			return fmt.Errorf("shim: rank %d: control connection to rank %d: %w", c.rank, rank, err)
		}
	}
	return nil
}

// probe covers a connection that is idle with keep-alive probes, and one with data by the age of that data. Every rank
// reads its control connections at once, so data is not old because a rank is slow.
func probe(conn *net.TCPConn, heartbeat time.Duration) error {
	gap := max(heartbeat/(probes+1), time.Second)
	err := conn.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: gap, Interval: gap, Count: probes})
	if err != nil {
		return err
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	controlErr := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(heartbeat/time.Millisecond))
	})
	if controlErr != nil {
		return controlErr
	}
	return err
}
