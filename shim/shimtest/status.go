package shimtest

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"lightpath/shim/status"
)

// statusHere has communicators answer in a directory of the test's own.
func StatusHere(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "s")
	t.Setenv("LIGHTPATH_STATUS_DIR", dir)
	return dir
}

// collectUntil asks until the report of the one communicator satisfies ok.
func CollectUntil(t *testing.T, dir string, ok func(c *status.Comm) bool) *status.Comm {
	t.Helper()
	var last *status.Report
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		r, err := status.Collect(dir, 5*time.Second)
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
