package plugins

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/recorder"
	"lightpath/shim/shimtest"
)

// profile makes a communicator of two ranks with a profiler, lets it work, and returns the profiler's lines.
func profile(t *testing.T, version int, transport string, work func(w *shimtest.World)) []string {
	t.Helper()
	before := recorder.UseProfilers(Profilers{})
	t.Cleanup(func() { recorder.UseProfilers(before) })
	dir := t.TempDir() // a library of its own, which opens a file of its own
	plugin, out := filepath.Join(dir, "libnccl-profiler-test.so"), filepath.Join(dir, "out")
	compile(t, plugin, "testdata/profiler.c", fmt.Sprintf("-DVERSION=%d", version))
	t.Setenv("LIGHTPATH_TRANSPORT", transport)
	t.Setenv("NCCL_PROFILER_PLUGIN", plugin)
	t.Setenv("LIGHTPATH_TEST_PROFILE", out)
	w := shimtest.NewWorld(t, 2)
	work(w)
	w.Destroy()
	text, err := os.ReadFile(out)
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(t, err)
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// work calls a collective thrice, so that C would make the third call, and sends messages.
func work(w *shimtest.World) {
	for range 3 {
		w.Must(func(c *shim.Comm) error {
			return shim.Run([]calls.Call{shimtest.AllReduce(c, make([]float32, 10))})
		})
	}
	for _, err := range exchange(w, 5) {
		if err != nil {
			panic(err)
		}
	}
}

// TestProfiler compares what profilers of every version are told.
func TestProfiler(t *testing.T) {
	for v := oldestProfiler; v <= newestProfiler; v++ {
		t.Run(fmt.Sprint(v), func(t *testing.T) {
			lines := profile(t, v, []string{"inproc", "shm"}[v%2], work)
			parent := map[string]string{"collective": "group", "message": "group"}
			events := map[string]int{"group": 4, "collective": 3, "message": 4, "kernel": 7}
			switch {
			case v == 2:
				delete(events, "kernel")
			case v >= 5:
				parent["collective"], parent["message"] = "collective-api", "message-api"
				events["group-api"], events["collective-api"], events["message-api"] = 4, 3, 4
			}
			for rank := range 2 {
				for kind, n := range events {
					begins, ends := 0, 0
					for _, l := range lines {
						if strings.HasPrefix(l, fmt.Sprintf("rank %d: %s in ", rank, kind)) {
							begins++
						}
						if l == fmt.Sprintf("rank %d: end of %s", rank, kind) {
							ends++
						}
					}
					if begins != n || ends != n {
						t.Errorf("rank %d: %d %s events begin and %d end, want %d", rank, begins, kind, ends, n)
					}
				}
				for i := range 3 {
					l := fmt.Sprintf("rank %d: collective in %s: AllReduce 10 ncclFloat32 root 0 seq %d by ", rank,
						parent["collective"], i+1)
					if !slices.ContainsFunc(lines, func(s string) bool { return strings.HasPrefix(s, l) }) {
						t.Errorf("no line %q...", l)
					}
				}
				for peer := range 2 {
					for _, way := range []string{"Send", "Recv"} {
						l := fmt.Sprintf("rank %d: message in %s: %s 20 ncclInt8 peer %d", rank, parent["message"], way, peer)
						if !slices.Contains(lines, l) {
							t.Errorf("no line %q", l)
						}
					}
				}
				if l := fmt.Sprintf("init  nodes 1 ranks 2 rank %d", rank); v >= 4 && !slices.Contains(lines, l) {
					t.Errorf("no line %q", l)
				}
			}
			for _, l := range lines {
				if strings.Contains(l, "twice") || strings.Contains(l, "wrong") || strings.Contains(l, "without a time") {
					t.Error(l)
				}
			}
			if last := lines[len(lines)-1]; last != "finalize" {
				t.Errorf("the last line is %q", last)
			}
			if t.Failed() {
				t.Logf("lines:\n%s", strings.Join(lines, "\n"))
			}
		})
	}
}

// TestProfilerMask: a profiler gets the events that it wants, and their parents.
func TestProfilerMask(t *testing.T) {
	t.Setenv("LIGHTPATH_TEST_PROFILE_MASK", "2") // collectives
	for _, l := range profile(t, 5, "inproc", work) {
		if strings.Contains(l, "message") || strings.Contains(l, "kernel") {
			t.Error(l)
		}
	}
}

// TestUnusableProfiler: a communicator works without its profiler, and the log says why it has none.
func TestUnusableProfiler(t *testing.T) {
	for _, c := range []struct{ variable, value, says string }{
		{"LIGHTPATH_TEST_PROFILE_FAILS", "1", "init returned 3"},
		{"LIGHTPATH_TEST_PROFILE_MASK", "0", "it asks for no events"},
	} {
		t.Run(c.says, func(t *testing.T) {
			t.Setenv(c.variable, c.value)
			log := shimtest.UseLogFile(t, "WARN")
			for _, l := range profile(t, 5, "inproc", work) {
				if strings.HasPrefix(l, "rank") {
					t.Error(l)
				}
			}
			for _, want := range []string{"NCCL_PROFILER_PLUGIN is not used: plugin cannot be used: ", c.says} {
				if !strings.Contains(log(), want) {
					t.Errorf("the log lacks %q:\n%s", want, log())
				}
			}
		})
	}
}
