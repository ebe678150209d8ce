package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// within runs f on a thread of its own in a namespace. The thread ends with f and never returns to the scheduler, so no
// other goroutine runs in the namespace. Sockets and netlink handles that f opens stay in the namespace.
func within(namespace string, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and not unlocked: the runtime ends the thread
		done <- func() error {
			if err := enter(namespace); err != nil {
				return err
			}
			return f()
		}()
	}()
	return <-done
}

// enter moves the calling thread, which must be locked and expendable.
func enter(namespace string) error {
	fd, err := unix.Open(filepath.Join(netnsDir, namespace), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("namespace %s: %w", namespace, err)
	}
	defer shutFD(fd)
	if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("namespace %s: %w", namespace, err)
	}
	return nil
}

// makeNamespace makes a namespace with a name, as "ip netns add" does.
func makeNamespace(namespace string) error {
	if err := os.MkdirAll(netnsDir, 0o755); err != nil {
		return err
	}
	path := filepath.Join(netnsDir, namespace)
	f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return err
	}
	f.Close()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and not unlocked, see within
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("unshare: %w", err)
			return
		}
		source := fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid())
		if err := unix.Mount(source, path, "none", unix.MS_BIND, ""); err != nil {
			done <- fmt.Errorf("bind %s: %w", path, err)
			return
		}
		done <- nil
	}()
	return <-done
}

// removeNamespace removes a namespace's name, in any state. The kernel removes the namespace and its links with its
// last user.
func removeNamespace(namespace string) error {
	path := filepath.Join(netnsDir, namespace)
	err := unix.Unmount(path, unix.MNT_DETACH)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) { // never mounted: half made
		err = nil
	}
	if rm := os.Remove(path); rm != nil && !errors.Is(rm, fs.ErrNotExist) {
		err = errors.Join(err, rm)
	}
	return err
}
