package verbs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestLayout compares the structures and values of ibverbs.h with those of the installed header of libibverbs.
func TestLayout(t *testing.T) {
	if _, err := os.Stat("/usr/include/infiniband/verbs.h"); err != nil {
		t.Skip("the headers of libibverbs (package libibverbs-dev) are not installed")
	}
	layout := func(name string, flags ...string) string {
		program := filepath.Join(t.TempDir(), name)
		args := append(flags, "-o", program, "testdata/layout.c")
		if out, err := exec.Command("cc", args...).CombinedOutput(); err != nil {
			t.Fatalf("cc %v: %v\n%s", args, err, out)
		}
		out, err := exec.Command(program).Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	if ours, installed := layout("ours"), layout("installed", "-DINSTALLED"); ours != installed {
		t.Errorf("ibverbs.h has\n%s\nthe installed header has\n%s", ours, installed)
	}
}
