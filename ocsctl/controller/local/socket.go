package local

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// lockSocket ensures that one controller at a time serves a path, and removes the socket of a controller that has
// ended. The lock is on a file beside the socket and ends with its process.
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

// inPlace reports whether the file still has its name: a controller that ends removes its lock.
func inPlace(f *os.File) bool {
	mine, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(f.Name())
	return err == nil && os.SameFile(mine, named)
}

// listen opens the socket for this user alone. If the umask gives the group access and others none (0007), as for a
// system service, it opens the socket for the group, too. Then the file's mode decides from the beginning which users
// may connect. Otherwise the server checks the credentials of connections made before the mode is set.
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
