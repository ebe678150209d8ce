package plugins

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/dispatch"
	"lightpath/shim/shimtest"
)

// tune returns the log of a communicator with a tuner.
func tune(t *testing.T, version int, says string) string {
	t.Helper()
	plugin := filepath.Join(t.TempDir(), "libnccl-tuner-test.so")
	compile(t, plugin, "testdata/tuner.c", fmt.Sprintf("-DVERSION=%d", version))
	t.Setenv("NCCL_TUNER_PLUGIN", plugin)
	t.Setenv("LIGHTPATH_TEST_TUNER", says)
	return logOfThree(t, "tcp")
}

// logOfThree makes a communicator of three ranks, lets it work, and returns its log.
func logOfThree(t *testing.T, transport string) string {
	t.Helper()
	before := dispatch.UseTuners(Tuners{})
	t.Cleanup(func() { dispatch.UseTuners(before) })
	t.Setenv("LIGHTPATH_TRANSPORT", transport)
	t.Setenv("NCCL_DEBUG_SUBSYS", "INIT,TUNING")
	log := shimtest.UseLogFile(t, "INFO")
	w := shimtest.NewWorld(t, 3)
	w.RunAll(t, rand.New(rand.NewPCG(1, 1)), 100)
	w.Must(func(c *shim.Comm) error {
		return shim.Run([]calls.Call{shimtest.AllReduce(c, make([]float32, 20000))}) // above the tuner's 64 KiB
	})
	w.Destroy()
	return log()
}

// wantLines checks that a log has each of some texts so many times.
func wantLines(t *testing.T, log string, want map[string]int) {
	t.Helper()
	for text, n := range want {
		if got := strings.Count(log, text); got != n {
			t.Errorf("the log has %q %d times, want %d", text, got, n)
		}
	}
	if t.Failed() {
		t.Logf("log:\n%s", log)
	}
}

// TestTuner: only rank 0 asks a tuner, and all ranks use the algorithms that it names.
func TestTuner(t *testing.T) {
	for v := oldestTuner; v <= newestTuner; v++ {
		t.Run(fmt.Sprint(v), func(t *testing.T) {
			want := map[string]int{
				"plugin: tuner of 3 ranks on 1 nodes": 1, "plugin: finalize 1": 1,
				fmt.Sprintf("tuner plugin test (v%d): allreduce by double-binary-tree to 65536, reducescatter by bruck (", v): 1,
				"AllReduce of 20000 float (root 0): algorithm ring, ":                                                         3,
			}
			for rank := range 3 {
				want[fmt.Sprintf("rank %d: AllReduce of 100 float (root 0): algorithm double-binary-tree, ", rank)] = 1
				want[fmt.Sprintf("rank %d: ReduceScatter of 100 float (root 0): algorithm bruck, ", rank)] = 1
			}
			wantLines(t, tune(t, v, "0"), want)
		})
	}
}

// TestTunerWithoutEffect: one line says why a tuner changes nothing, and Lightpath chooses.
func TestTunerWithoutEffect(t *testing.T) {
	chosen := "AllReduce of 100 float (root 0): algorithm recursive-doubling-xor, "
	for _, c := range []struct{ name, says, line string }{
		{"NVLS", "4", "tuner plugin test (v5): NVLS for allreduce: no such algorithm here, so Lightpath chooses"},
		{"nothing", "-1", "tuner plugin test (v5): it names no algorithm. "},
		{"init", "init", "NCCL_TUNER_PLUGIN is not used: plugin cannot be used: "},
		{"ask", "ask", "tuner plugin test (v5) is not used: "},
	} {
		t.Run(c.name, func(t *testing.T) { wantLines(t, tune(t, 5, c.says), map[string]int{c.line: 1, chosen: 3}) })
	}
	t.Run("version", func(t *testing.T) {
		wantLines(t, tune(t, newestTuner+1, "0"), map[string]int{
			"its interface is ncclTunerPlugin_v7, want a version from 2 to 6": 1, chosen: 3})
	})
	t.Run("file", func(t *testing.T) {
		t.Setenv("NCCL_TUNER_PLUGIN", "missing")
		line := "NCCL_TUNER_PLUGIN is not used: plugin cannot be used: no such file: missing, libnccl-tuner-missing.so"
		wantLines(t, logOfThree(t, "tcp"), map[string]int{line: 1, chosen: 3})
		t.Setenv("NCCL_TUNER_PLUGIN", "")
		line = "no tuner plugin: plugin cannot be used: no such file: libnccl-tuner.so"
		wantLines(t, logOfThree(t, "tcp"), map[string]int{line: 1, chosen: 3})
	})
	t.Run("memory", func(t *testing.T) {
		t.Setenv("NCCL_TUNER_PLUGIN", "missing")
		wantLines(t, logOfThree(t, "shm"), map[string]int{"NCCL_TUNER_PLUGIN has no effect: ": 1})
	})
	t.Run("LIGHTPATH_ALGORITHM", func(t *testing.T) {
		t.Setenv("LIGHTPATH_ALGORITHM", "allreduce:bruck")
		wantLines(t, tune(t, 5, "0"), map[string]int{"AllReduce of 100 float (root 0): algorithm bruck, ": 3})
	})
}
