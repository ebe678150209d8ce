package emulator

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// lockSocket makes sure that one switch at a time serves a path, and clears what a dead
// one left there. The lock, on a file beside the socket, dies with its process.
func lockSocket(path string) (*os.File, error) {
	f, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("emulator: socket: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil || !inPlace(f) {
		f.Close()
		return nil, fmt.Errorf("emulator: a switch at %s is %w", path, ErrRunning)
	}
	switch st, err := os.Lstat(path); {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		f.Close()
		return nil, fmt.Errorf("emulator: socket: %w", err)
	case st.Mode().Type() != os.ModeSocket:
		f.Close()
		return nil, fmt.Errorf("emulator: socket: %s exists and is not a socket", path)
	default:
		os.Remove(path)
	}
	return f, nil
}

// inPlace reports whether the file is still the one of its name: a switch that ends
// removes its lock.
func inPlace(f *os.File) bool {
	mine, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(f.Name())
	return err == nil && os.SameFile(mine, named)
}

// listen opens the socket for this user alone. A connection that slips in before the mode
// is set is refused by its credentials.
func listen(path string) (*net.UnixListener, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("emulator: socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, fmt.Errorf("emulator: socket: %w", err)
	}
	return l, nil
}

// trusted reports whether the peer runs as this user or as root.
func trusted(c *net.UnixConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	ok := false
	err = raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		ok = err == nil && (cred.Uid == 0 || int(cred.Uid) == os.Geteuid())
	})
	return err == nil && ok
}
