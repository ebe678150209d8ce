package benchtest

import (
	"os"
	"path/filepath"
	"testing"
)

// Bin returns the directory of the built commands. It skips the test in short mode, and if make has not built the
// commands, the libraries or the additional files (relative to the repository).
func Bin(t testing.TB, files ...string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("short: starts rank processes")
	}
	root := root(t)
	built := []string{"bin/lightpath", "bin/lightpath-rank", "lib/libnccl.so.2", "lib/liblightpath.so"}
	for _, file := range append(built, files...) {
		if _, err := os.Stat(filepath.Join(root, file)); err != nil {
			t.Skipf("%v: build it with make", err)
		}
	}
	return filepath.Join(root, "bin")
}

// root returns the root of the repository.
func root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for !exists(filepath.Join(dir, "go.mod")) {
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod above the working directory")
		}
		dir = filepath.Dir(dir)
	}
	return dir
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Long reports whether the slow tests are to run: those of `make test-long`.
func Long() bool { return os.Getenv("LIGHTPATH_TEST_LONG") != "" }
