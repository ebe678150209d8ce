package shimtest

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"lightpath/shim/status"
)

// UseStatusDir gives the communicators of a test a status directory of their own, and returns it.
func UseStatusDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "s")
	t.Setenv("LIGHTPATH_STATUS_DIR", dir)
	return dir
}

// AwaitStatus asks for the status until the report of the only communicator satisfies ok, and returns that report.
func AwaitStatus(t *testing.T, dir string, ok func(c *status.Comm) bool) *status.Comm {
	t.Helper()
	var last *status.Report
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		r, err := status.Collect(dir, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if last = r; len(r.Comms) == 1 && ok(&r.Comms[0]) {
			return &r.Comms[0]
		}
	}
	text, _ := json.MarshalIndent(last, "", " ")
	t.Fatalf("never as wanted, but %s", text)
	return nil
}
