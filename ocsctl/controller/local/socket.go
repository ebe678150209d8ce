package local

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
		return nil, fmt.Errorf("ocs: socket: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil || !inPlace(f) {
		f.Close()
		return nil, fmt.Errorf("ocs: a controller at %s is %w", path, ErrRunning)
	}
	switch st, err := os.Lstat(path); {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		f.Close()
		return nil, fmt.Errorf("ocs: socket: %w", err)
	case st.Mode().Type() != os.ModeSocket:
		f.Close()
		return nil, fmt.Errorf("ocs: socket: %s exists and is not a socket", path)
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

// listen opens the socket: for this user alone, or, where the umask lets the group write and others do
// nothing (0007), for the group as well, as a system's service wants it. Then the file's mode decides
// who connects, from the beginning. Otherwise a connection that slips in before the mode is set is
// refused by its credentials.
func listen(path string) (l *net.UnixListener, group bool, err error) {
	l, err = net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, false, fmt.Errorf("ocs: socket: %w", err)
	}
	mode := os.FileMode(0o600)
	st, err := os.Lstat(path)
	if err == nil {
		if group = st.Mode().Perm()&0o027 == 0o020; group {
			mode = 0o660
		}
		err = os.Chmod(path, mode)
	}
	if err != nil {
		l.Close()
		return nil, false, fmt.Errorf("ocs: socket: %w", err)
	}
	return l, group, nil
}
