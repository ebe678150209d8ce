package cli

import (
	"fmt"
	"net"
	"os"
	"strings"
)

// Messages of a service to the service manager.
const (
	Ready    = "READY=1"
	Stopping = "STOPPING=1"
)

// Notify tells systemd, where it started this process with Type=notify, what state it is in
// (sd_notify(3)); elsewhere it does nothing.
func Notify(state string) error {
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
	defer HangUp(conn)
	if _, err := conn.Write([]byte(state)); err != nil {
		return fmt.Errorf("NOTIFY_SOCKET: %w", err)
	}
	return nil
}
