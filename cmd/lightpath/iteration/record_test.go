package iteration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lightpath/internal/require"
)

// TestRecordRefused: each is one line that names the flag, or the file and its field. cgo/record/tests records jobs.
func TestRecordRefused(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad")
	require.NoError(t, os.Mkdir(bad, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(bad, "h-1.record"), []byte("LPRECORD\x02\x00\x00\x00"+
		strings.Repeat("\x00", 600)), 0o600))
	for _, c := range []struct {
		args []string
		says string
	}{
		{nil, "want a program after --, or --merge FOLDER"},
		{[]string{"--merge", dir, "--", "true"}, "--merge reads files"},
		{[]string{"--merge", dir, "--library", "x"}, "--merge goes with --out only"},
		{[]string{"--merge", filepath.Join(dir, "none")}, "none: no such file"},
		{[]string{"--merge", filepath.Join(bad, "h-1.record")}, "h-1.record: not a directory"},
		{[]string{"--merge", bad}, "h-1.record: no recording of calls: version: is 2, not 1"},
		{[]string{"--merge", t.TempDir()}, "no process has recorded a communicator"},
	} {
		o := lightpath.Run(t, "", append([]string{"iteration", "record"}, c.args...)...)
		if o.Status == 0 || strings.Count(o.Stderr, "\n") != 1 || !strings.Contains(o.Stderr, c.says) {
			t.Errorf("%v: %+v, want %q", c.args, o, c.says)
		}
	}
}
