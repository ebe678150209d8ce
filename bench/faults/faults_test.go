package faults

import (
	"os"
	"path/filepath"
	"testing"

	"lightpath/ocsctl/kernel"
)

// installed returns options that use what make built, or skips.
func installed(t *testing.T) *Options {
	t.Helper()
	if testing.Short() {
		t.Skip("starts controllers and rank processes")
	}
	if err := kernel.Check(); err != nil {
		t.Skipf("planes in the kernel cannot be built here: %v", err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"bin/lightpath", "bin/lightpath-rank", "lib/libnccl.so.2", "lib/liblightpath.so"} {
		if _, err := os.Stat(filepath.Join(root, file)); err != nil {
			t.Skipf("%v: build it with make", err)
		}
	}
	return &Options{Lightpath: filepath.Join(root, "bin", "lightpath"), Worker: filepath.Join(root, "bin", "lightpath-rank"), Progress: t.Logf, Slack: 10}
}

// TestFaults plays every scenario.
func TestFaults(t *testing.T) {
	o := installed(t)
	for _, s := range Scenarios() {
		t.Run(s.Name, func(t *testing.T) {
			r := s.run(t.Context(), o)
			t.Logf("injected: %s\nranks: %s\noperator: %s\ntook %v, %d operations, %d frames lost", r.Injected, r.Ranks, r.Operator, r.Took, r.Operations, r.Lost)
			if r.Problem != "" {
				t.Error(r.Problem)
			}
		})
	}
}
