package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// SelfPath returns the path of this program, for a command that starts it again.
func SelfPath() string {
	self, err := os.Executable()
	if err != nil {
		return "lightpath"
	}
	return self
}

// NeedRoot returns an error unless root runs the command.
func NeedRoot() error {
	if os.Geteuid() != 0 {
		return errors.New("planes in the kernel need root: network namespaces and eBPF")
	}
	return nil
}

// Preloading returns the variable that preloads a library before those that this process has preloaded.
func Preloading(library string) string {
	if others := os.Getenv("LD_PRELOAD"); others != "" {
		library += ":" + others
	}
	return "LD_PRELOAD=" + library
}

// SiblingFile finds a file of this installation: DIR/NAME beside the directory that holds this program, beside the
// program itself, lib/lightpath/NAME as in the container, or lib/TRIPLET/lightpath/NAME as in packages.
func SiblingFile(dir, name string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	if resolved, err := filepath.EvalSymlinks(self); err == nil {
		self = resolved
	}
	here := filepath.Dir(self)
	prefix := filepath.Dir(here)
	candidates := []string{
		filepath.Join(prefix, dir, name), filepath.Join(here, name), filepath.Join(prefix, "lib", "lightpath", name),
	}
	packaged, _ := fs.Glob(os.DirFS(prefix), "lib/*/lightpath/"+name) // fails for a bad pattern only
	for _, path := range packaged {
		candidates = append(candidates, filepath.Join(prefix, path))
	}
	for _, path := range candidates {
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("there is no %s: build it with make", candidates[0])
}
