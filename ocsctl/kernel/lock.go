package kernel

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Locks of a fabric, as files beside its state. The kernel releases a lock when its process ends, even if it is killed.
const (
	buildLock   = "lock"     // held by Up and Down
	writeLocks  = "writer-p" // held by Boards, one per plane
	lockPattern = writeLocks + "*"
)

func writeLock(plane int) string { return writeLocks + strconv.Itoa(plane) }

// writers takes the locks of all planes that have had a writer. If another process holds one of them, it returns an
// error. The caller unlocks the returned files, also after an error.
func writers(name string) ([]*os.File, error) {
	paths, err := filepath.Glob(filepath.Join(runDir, name+"."+lockPattern))
	if err != nil {
		return nil, err
	}
	var all []*os.File
	var busy error
	for _, path := range paths {
		f, err := lock(name, strings.TrimPrefix(filepath.Base(path), name+"."))
		if err == nil {
			all = append(all, f)
		} else if busy == nil {
			busy = err
		}
	}
	return all, busy
}

// lock takes a fabric's lock. If another process holds it, the error wraps ErrBusy and names the process.
func lock(name, kind string) (*os.File, error) {
	if err := os.MkdirAll(runDir, 0o755); err != nil {
		return nil, err
	}
	path := filepath.Join(runDir, name+"."+kind)
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return nil, err
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err != nil {
			holder, _ := io.ReadAll(io.LimitReader(f, 32))
			f.Close()
			if !errors.Is(err, unix.EWOULDBLOCK) {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			return nil, fmt.Errorf("%w: process %s holds %s", ErrBusy, strings.TrimSpace(string(holder)), path)
		}
		// The last owner may have removed the file: then this lock protects nothing.
		if same(f, path) {
			err := f.Truncate(0)
			if err == nil {
				_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
			}
			if err != nil {
				f.Close()
				return nil, err
			}
			return f, nil
		}
		f.Close()
	}
}

// unlock releases a lock and removes its file.
func unlock(f *os.File) {
	os.Remove(f.Name())
	f.Close()
}

func same(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Stat(path)
	return err == nil && os.SameFile(a, b)
}

// shut closes c and ignores the error.
func shut(c io.Closer) { c.Close() }

// shutFD closes a descriptor and ignores the error.
func shutFD(fd int) { _ = unix.Close(fd) }
