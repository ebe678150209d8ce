package verbs_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestInlineLimit creates queue pairs on devices that take less inline data than asked for, or none.
func TestInlineLimit(t *testing.T) {
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("there is no C compiler")
	}
	program := filepath.Join(t.TempDir(), "inline")
	if out, err := exec.Command("cc", "-Wall", "-o", program, "testdata/inline.c").CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	for limit, want := range map[string]string{"1000": "200", "100": "100", "60": "50", "1": "1", "0": "0"} {
		out, err := exec.Command(program, limit).Output()
		if got := strings.TrimSpace(string(out)); err != nil || got != want {
			t.Errorf("limit %s: %s, %v, want %s", limit, got, err, want)
		}
	}
}
