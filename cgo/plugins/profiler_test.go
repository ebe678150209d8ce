package plugins

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"lightpath/internal/assert"
	"lightpath/internal/require"
	"lightpath/plans/fabric"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/recorder"
	"lightpath/shim/shimtest"
)

// profile makes a communicator of two ranks with a profiler, lets it work, and returns the profiler's lines.
func profile(t *testing.T, version int, transport string, work func(w *shimtest.World)) []string {
	t.Helper()
	t.Setenv("LIGHTPATH_TRANSPORT", transport)
	return profileOf(t, version, 2, work)
}

func profileOf(t *testing.T, version, ranks int, work func(w *shimtest.World)) []string {
	t.Helper()
	before := recorder.UseProfilers(Profilers{})
	t.Cleanup(func() { recorder.UseProfilers(before) })
	dir := t.TempDir() // a library of its own, which opens a file of its own
	plugin, out := filepath.Join(dir, "libnccl-profiler-test.so"), filepath.Join(dir, "out")
	compile(t, plugin, "testdata/profiler.c", fmt.Sprintf("-DVERSION=%d", version))
	t.Setenv("NCCL_PROFILER_PLUGIN", plugin)
	t.Setenv("LIGHTPATH_TEST_PROFILE", out)
	w := shimtest.NewWorld(t, ranks)
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

// namesOf returns how a version of the interface tells a call that moves count of a type.
func namesOf(version int, function string, number, count int, kind string, kindNumber int) string {
	if version == 1 {
		return fmt.Sprintf("%d %d %d", number, count, kindNumber)
	}
	return fmt.Sprintf("%s %d %s", function, count, kind)
}

// wantEvents checks how many events of each kind begin and end on each rank, and that nothing is wrong.
func wantEvents(t *testing.T, lines []string, ranks int, events map[string]int) {
	t.Helper()
	for rank := range ranks {
		for kind, n := range events {
			begins, ends := 0, 0
			for _, l := range lines {
				end := fmt.Sprintf("rank %d: end of %s", rank, kind)
				if strings.HasPrefix(l, fmt.Sprintf("rank %d: %s in ", rank, kind)) {
					begins++
				}
				if l == end || strings.HasPrefix(l, end+":") {
					ends++
				}
			}
			if begins != ends || begins != n && n >= 0 {
				t.Errorf("rank %d: %d %s events begin and %d end, want %d", rank, begins, kind, ends, n)
			}
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
}

// statesOf are the states of a message's events on a plane, by version and direction: proxy, then step.
func statesOf(version int, sends bool) [2]string {
	switch {
	case version < 4 && sends:
		return [2]string{"0 1 2 3, 20", "8 9, 20"}
	case version < 4:
		return [2]string{"4 5 6 7, 20", "10 11 12, 20"}
	case sends:
		return [2]string{"19, 20", "8 20 9, 20"}
	}
	return [2]string{"19, 0", "10 11 12, 20"}
}

// TestProfiler compares what profilers of every version are told.
func TestProfiler(t *testing.T) {
	for v := oldestProfiler; v <= newestProfiler; v++ {
		t.Run(fmt.Sprint(v), func(t *testing.T) {
			lines := profile(t, v, []string{"inproc", "shm"}[v%2], work)
			parent := map[string]string{"collective": "group", "message": "group"}
			events := map[string]int{"group": 4, "collective": 3, "message": 4, "kernel": 7, "control": 0}
			events["proxy"], events["step"] = 8, 8
			if v%2 == 1 { // shared memory carries the collectives
				events["proxy"], events["step"] = 2, 2
			}
			switch {
			case v <= 2:
				events["kernel"] = 0
			case v >= 5:
				parent["collective"], parent["message"] = "collective-api", "message-api"
				events["group-api"], events["collective-api"], events["message-api"] = 4, 3, 4
			}
			want := []string{}
			for rank := range 2 {
				for i := range 3 {
					want = append(want, fmt.Sprintf("rank %d: collective in %s: %s root 0 seq %d by ", rank, parent["collective"],
						namesOf(v, "AllReduce", 4, 10, "ncclFloat32", 7), i+1))
				}
				for peer := range 2 {
					for way, function := range []string{"Send", "Recv"} {
						want = append(want, fmt.Sprintf("rank %d: message in %s: %s peer %d", rank, parent["message"],
							namesOf(v, function, 6+way, 20, "ncclInt8", 0), peer))
					}
				}
				for _, way := range []string{"sends", "receives"} {
					states := statesOf(v, way == "sends")
					want = append(want, fmt.Sprintf("rank %d: proxy in message: %s plane 0 peer %d transfers 1 of 20 bytes", rank,
						way, 1-rank), fmt.Sprintf("rank %d: step in proxy: %s plane 0", rank, way),
						fmt.Sprintf("rank %d: end of proxy: %s bytes", rank, states[0]),
						fmt.Sprintf("rank %d: end of step: %s bytes", rank, states[1]))
				}
				if v >= 4 {
					want = append(want, fmt.Sprintf("init  nodes 1 ranks 2 rank %d", rank))
				}
			}
			for _, l := range want {
				if !slices.ContainsFunc(lines, func(s string) bool { return strings.HasPrefix(s, l) }) {
					t.Errorf("no line %q...", l)
				}
			}
			wantEvents(t, lines, 2, events)
		})
	}
}

// TestProfilerOnCircuits: a profiler sees each plane, and that planes wait for their circuits.
func TestProfilerOnCircuits(t *testing.T) {
	const ranks, count = 4, 5000
	shimtest.UseEmulator(t, ranks, 2, func(f *fabric.Fabric) { f.OCS[0].Reconfig = 2 * time.Millisecond })
	t.Setenv("LIGHTPATH_PLANNER", "perstep")
	for _, v := range []int{oldestProfiler, newestProfiler} {
		t.Run(fmt.Sprint(v), func(t *testing.T) {
			lines := profileOf(t, v, ranks, func(w *shimtest.World) {
				w.RunAll(t, rand.New(rand.NewPCG(1, 2)), count)
				for _, err := range exchange(w, 100*count) { // large enough for circuits
					require.NoError(t, err)
				}
			})
			wantEvents(t, lines, ranks, map[string]int{"proxy": -1, "step": -1, "control": -1, "group": -1})
			text := strings.Join(lines, "\n")
			assert.Contains(t, text, "sends plane 0", "sends plane 1", "receives plane 0", "receives plane 1",
				"control in nothing", "end of control: 15 16, ", "proxy in message")
		})
	}
}

// TestProfilerMask: a profiler gets the events that it wants, and their parents.
func TestProfilerMask(t *testing.T) {
	for mask, kinds := range map[int]string{
		1 << 1: "group group-api collective collective-api",
		1 << 3: "group group-api collective collective-api message message-api proxy",
		1 << 4: "group group-api collective collective-api message message-api proxy step",
		1 << 5: "", // no plane waits for circuits
	} {
		t.Run(fmt.Sprint(mask), func(t *testing.T) {
			t.Setenv("LIGHTPATH_TEST_PROFILE_MASK", fmt.Sprint(mask))
			got := map[string]bool{}
			for _, l := range profile(t, 5, "inproc", work) {
				if _, event, ok := strings.Cut(l, ": "); ok && strings.Contains(event, " in ") {
					kind, _, _ := strings.Cut(event, " in ")
					got[kind] = true
				}
			}
			want := strings.Fields(kinds)
			slices.Sort(want)
			if have := slices.Sorted(maps.Keys(got)); !slices.Equal(have, want) {
				t.Errorf("events %v, want %v", have, want)
			}
		})
	}
}

// TestProfilerMaskChanges: a profiler has one mask, and may change it while communicators work. An operation has the
// mask of its begin.
func TestProfilerMaskChanges(t *testing.T) {
	t.Setenv("LIGHTPATH_TEST_PROFILE_MASK", "1") // groups
	t.Setenv("LIGHTPATH_TEST_PROFILE_LATER", "26")
	lines := profile(t, 4, "inproc", work)
	wantEvents(t, lines, 2, map[string]int{"group": 4, "message": 4, "collective": -1, "proxy": -1, "step": -1})
	n := strings.Count(strings.Join(lines, "\n"), "collective in group")
	if n < 4 || n > 5 { // of 6; the first operation of one rank or of both began with the first mask
		t.Errorf("%d collectives", n)
	}
}

// TestProfilerRefuses: an event that a profiler refuses has no children on planes.
func TestProfilerRefuses(t *testing.T) {
	for _, c := range []struct {
		kind   string
		events map[string]int
	}{
		{"collective", map[string]int{"group": 4, "message": 4, "proxy": 2, "step": 2}},
		{"proxy", map[string]int{"group": 4, "collective": 3, "message": 4, "step": 0}},
		{"step", map[string]int{"group": 4, "collective": 3, "message": 4, "proxy": 8, "step": 0}},
	} {
		t.Run(c.kind, func(t *testing.T) {
			t.Setenv("LIGHTPATH_TEST_PROFILE_REFUSES", c.kind)
			wantEvents(t, profile(t, 4, "inproc", work), 2, c.events)
		})
	}
}

// TestProfilerOfFailure: all events end if a call fails in the middle.
func TestProfilerOfFailure(t *testing.T) {
	lines := profile(t, newestProfiler, "inproc", func(w *shimtest.World) {
		c := w.Comms[0]
		failed := make(chan error, 1)
		go func() { failed <- shim.Run([]calls.Call{shimtest.AllReduce(c, make([]float32, 10))}) }()
		if !shimtest.Eventually(func() bool {
			text, err := os.ReadFile(os.Getenv("LIGHTPATH_TEST_PROFILE"))
			return err == nil && strings.Contains(string(text), "rank 0: end of step")
		}) {
			t.Error("nothing was sent")
		}
		require.NoError(t, c.Abort())
		if <-failed == nil {
			t.Error("a call without the other rank returned no error")
		}
	})
	wantEvents(t, lines, 1, map[string]int{"group": 1, "collective": 1, "proxy": 2, "step": 1, "kernel": 1})
}

// TestUnusableProfiler: a communicator works without its profiler, and the log says why it has none.
func TestUnusableProfiler(t *testing.T) {
	t.Setenv("LIGHTPATH_TEST_PROFILE_FAILS", "1")
	log := shimtest.UseLogFile(t, "WARN")
	if lines := profile(t, 5, "inproc", work); lines != nil {
		t.Errorf("lines:\n%s", strings.Join(lines, "\n"))
	}
	assert.Contains(t, log(), "NCCL_PROFILER_PLUGIN is not used: plugin cannot be used: ", "init returned 3")
}
