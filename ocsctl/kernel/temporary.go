package kernel

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"lightpath/plans/fabric"
)

// ownerFile names the process to which a temporary fabric belongs. The process creates the file locked, and keeps the
// lock until it ends. So a file without a lock belongs to a process that has ended.
const ownerFile = "owner"

func ownerPath(name string) string { return filepath.Join(runDir, name+"."+ownerFile) }

// Temporary is [Up] for a fabric that ends with this process. The caller calls down at the end. If the process is
// killed before that, the next call of Temporary or [Sweep] on this host removes the fabric.
func Temporary(f *fabric.Fabric, o Options) (s *State, down func() error, err error) {
	_, _ = Sweep() // List shows fabrics that it cannot remove; they are not in the way
	name := NameOn(f, o.Host)
	fail := func(err error) (*State, func() error, error) {
		return nil, nil, fmt.Errorf("kernel: fabric %s: %w", name, err)
	}
	owner, err := own(name)
	if err != nil {
		return fail(err)
	}
	release := func() {
		os.Remove(ownerPath(name))
		shut(owner)
	}
	s, fresh, err := Up(f, o)
	if err != nil || !fresh {
		release()
		if err != nil {
			return nil, nil, err
		}
		return fail(ErrChanged)
	}
	return s, func() error {
		defer release()
		_, err := Down(name, true)
		return err
	}, nil
}

// own makes this process the owner of a fabric, until it closes the file.
func own(name string) (*os.File, error) {
	if err := os.MkdirAll(runDir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(runDir, "."+name+"."+ownerFile+"-*")
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	_, err = fmt.Fprintln(f, os.Getpid())
	// Unlike flock, locks of open file descriptions can be queried without being taken.
	err = errors.Join(err, unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}))
	if err == nil {
		err = os.Link(f.Name(), ownerPath(name)) // fails if there is an owner
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// owner returns the process to which a temporary fabric belongs, and whether it has ended; 0: there is none.
func owner(name string) (pid int, ended bool, err error) {
	f, err := os.Open(ownerPath(name))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	defer f.Close()
	if _, err := fmt.Fscan(io.LimitReader(f, 32), &pid); err != nil {
		return 0, false, fmt.Errorf("%s: %w", f.Name(), err)
	}
	held := unix.Flock_t{Type: unix.F_RDLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &held); err != nil {
		return 0, false, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return pid, held.Type == unix.F_UNLCK, nil
}

// Sweep removes temporary fabrics whose process has ended, and returns their names.
func Sweep() (removed []string, err error) {
	all, err := List()
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		if !p.Left {
			continue
		}
		found, down := Down(p.Name, true)
		if errors.Is(down, ErrBusy) {
			continue // another process sweeps
		}
		err = errors.Join(err, down)
		if found {
			removed = append(removed, p.Name)
		}
	}
	return removed, err
}

// Presence is a fabric on this host.
type Presence struct {
	Name  string `json:"name"`
	Ranks int    `json:"ranks"` // on this host
	// Complete: it can be used. Otherwise it is being built or removed, or a process died meanwhile.
	Complete bool `json:"complete"`
	// Owner is the process of a temporary fabric; 0: the fabric stays until Down. Left: the owner has ended.
	Owner int  `json:"owner,omitempty"`
	Left  bool `json:"left,omitempty"`
	// Down names the planes with a port that is down. List leaves it empty.
	Down string `json:"down,omitempty"`
}

// List returns the fabrics on this host, ordered by name.
func List() ([]Presence, error) {
	names, err := names()
	if err != nil {
		return nil, fmt.Errorf("kernel: %w", err)
	}
	all := make([]Presence, len(names))
	for i, name := range names {
		p := &all[i]
		p.Name = name
		if s, err := Load(name); err == nil {
			p.Ranks, p.Complete = s.Count, s.complete() == nil
		}
		if p.Owner, p.Left, err = owner(name); err != nil {
			return nil, fmt.Errorf("kernel: fabric %s: %w", name, err)
		}
	}
	return all, nil
}
