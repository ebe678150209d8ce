package status

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// suffix ends the names of sockets: NUMBER-RANDOM.sock, the number being the process's.
const suffix = ".sock"

// Dir returns the directory with the sockets of a user's processes: dir if it is not empty, else a directory of the
// user below runtime ($XDG_RUNTIME_DIR) or, if that is empty, below the temporary directory.
func Dir(dir, runtime string) string {
	switch {
	case dir != "":
		return dir
	case runtime != "":
		return filepath.Join(runtime, "lightpath")
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("lightpath-%d", os.Geteuid()))
}

// secureDir makes the directory, or checks that an existing one belongs to this user.
func secureDir(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !os.IsExist(err) {
		return fmt.Errorf("status: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("status: %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok || int(st.Uid) != os.Geteuid() || info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("status: %s is not a directory of user %d alone", dir, os.Geteuid())
	}
	return nil
}

// sockets returns the sockets of a directory, and their processes' numbers.
func sockets(dir string) (paths []string, pids []int, err error) {
	entries, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("status: %w", err)
	}
	for _, e := range entries {
		number, _, ok := strings.Cut(e.Name(), "-")
		pid, err := strconv.Atoi(number)
		if ok && err == nil && strings.HasSuffix(e.Name(), suffix) {
			paths, pids = append(paths, filepath.Join(dir, e.Name())), append(pids, pid)
		}
	}
	return paths, pids, nil
}

// ProcessAnswer returns why a process of this host may not answer: Stopped, Gone, or else Silent.
func ProcessAnswer(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Gone
	}
	// The name, in parentheses, may contain anything.
	i := strings.LastIndexByte(string(text), ')')
	if i < 0 || i+2 >= len(text) {
		return Silent
	}
	switch text[i+2] {
	case 'T', 't':
		return Stopped
	case 'Z', 'X':
		return Gone
	}
	return Silent
}
