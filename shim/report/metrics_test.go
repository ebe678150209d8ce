package report

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"lightpath/internal/require"
	"lightpath/shim/settings"
)

// TestMetricsInterval: the file is written at once and then every 10 s. Files that processes have left are removed
// after an hour, and no other files.
func TestMetricsInterval(t *testing.T) {
	dir := t.TempDir()
	name := func(s string) string { return filepath.Join(dir, s) }
	there := func(s string) bool { _, err := os.Stat(name(s)); return err == nil }
	for _, s := range []string{"lightpath-h-12.prom", "lightpath-h-34.prom", "lightpath-h-12.jsonl", "lightpath.prom"} {
		require.NoError(t, os.WriteFile(name(s), nil, 0o600))
		if s != "lightpath-h-34.prom" {
			require.NoError(t, os.Chtimes(name(s), time.Time{}, time.Now().Add(-2*metricsLeft)))
		}
	}
	f := &metricsFile{Metrics: settings.Metrics{Dir: dir}, path: name("own.prom")}
	f.removeOld()
	if there("lightpath-h-12.prom") || !there("lightpath-h-34.prom") || !there("lightpath-h-12.jsonl") ||
		!there("lightpath.prom") {
		left, err := os.ReadDir(dir)
		t.Errorf("left: %v, %v", left, err)
	}
	synctest.Test(t, func(t *testing.T) {
		stop := make(chan struct{})
		go f.run(stop)
		for i := range 3 {
			if synctest.Wait(); !there("own.prom") {
				t.Errorf("no file after %d intervals", i)
			}
			require.NoError(t, os.Remove(name("own.prom")))
			time.Sleep(metricsInterval)
		}
		close(stop)
	})
}
