package main

import (
	"fmt"
	"net"
	"os"
	"strings"
)

// Messages of a service to the service manager.
const (
	notifyReady    = "READY=1"
	notifyStopping = "STOPPING=1"
)

// notify tells systemd, where it started this process with Type=notify, what state it is in
// (sd_notify(3)); elsewhere it does nothing.
func notify(state string) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	if name, abstract := strings.CutPrefix(path, "@"); abstract {
		path = "\x00" + name
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("NOTIFY_SOCKET: %w", err)
	}
	defer hangUp(conn)
	if _, err := conn.Write([]byte(state)); err != nil {
		return fmt.Errorf("NOTIFY_SOCKET: %w", err)
	}
	return nil
}
