package bench_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"lightpath/bench"
	"lightpath/bench/benchtest"
	"lightpath/internal/require"
)

// start runs a command that must succeed.
func start(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := prepare(t, dir, name, args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", filepath.Base(name), strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out)
}

// prepare makes a command without the launcher and the settings of this process in its environment.
func prepare(t *testing.T, dir, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	for _, v := range os.Environ() {
		foreign := slices.ContainsFunc([]string{"LIGHTPATH_", "NCCL_", "OMPI_", "PMI", "SLURM_", "RANK=", "WORLD_SIZE="},
			func(prefix string) bool { return strings.HasPrefix(v, prefix) })
		if !foreign {
			cmd.Env = append(cmd.Env, v)
		}
	}
	return cmd
}

// checkDocument checks the format that other programs read, for allreduce of floats on two ranks from 8 B to 64 KiB.
func checkDocument(t *testing.T, text, transport string) {
	t.Helper()
	var doc bench.Document
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatalf("%v in %.200q", err, text)
	}
	if doc.Ranks != 2 || doc.Transport != transport {
		t.Errorf("%d ranks over %q, want 2 over %q", doc.Ranks, doc.Transport, transport)
	}
	var raw struct {
		Results []map[string]any `json:"results"`
	}
	require.NoError(t, json.Unmarshal([]byte(text), &raw))
	sizes := map[int64]int{}
	for i, r := range doc.Results {
		for _, field := range []string{
			"collective", "bytes", "count", "type", "op", "time_us", "algbw_gbs", "busbw_gbs", "wrong", "algorithm", "planner",
			"predicted_us",
		} {
			if _, there := raw.Results[i][field]; !there {
				t.Errorf("result %d has no %s", i, field)
			}
		}
		sizes[r.Bytes]++
		if r.Collective != "allreduce" || r.Type != "float" || r.Op != "sum" || r.Count != r.Bytes/4 ||
			r.Wrong == nil || *r.Wrong != 0 || r.Algorithm == "" || !(r.TimeUS > 0) {
			t.Errorf("%+v", r)
		}
		// On two ranks the bus bandwidth of an allreduce is its algorithm bandwidth.
		if want := float64(r.Bytes) / r.TimeUS / 1e3; math.Abs(r.AlgBW-want) > 1e-9*want ||
			math.Abs(r.BusBW-want) > 1e-9*want {
			t.Errorf("%d bytes in %v us: %v and %v GB/s, want %v", r.Bytes, r.TimeUS, r.AlgBW, r.BusBW, want)
		}
	}
	for size := int64(8); size <= 64<<10; size *= 2 {
		if sizes[size] != 2 {
			t.Errorf("%d bytes are listed %d times, want out of place and in place", size, sizes[size])
		}
	}
	if len(sizes) != 14 {
		t.Errorf("%d sizes, want 14", len(sizes))
	}
}

var quick = []string{"-b", "8", "-e", "64K", "-f", "2", "-w", "1", "-i", "2"}

func TestBenchOverEveryTransport(t *testing.T) {
	lightpath := filepath.Join(benchtest.Bin(t), "lightpath")
	for _, transport := range []string{"shm", "tcp", "inproc"} {
		t.Run(transport, func(t *testing.T) {
			dir := t.TempDir()
			args := append([]string{"bench", "allreduce", "-n", "2", "--transport", transport, "--json", "out.json"}, quick...)
			table := start(t, dir, lightpath, args...)
			if !strings.Contains(table, "busbw") || !strings.Contains(table, "# Out of bounds values : 0 OK") {
				t.Errorf("the table is\n%s", table)
			}
			text, err := os.ReadFile(filepath.Join(dir, "out.json"))
			require.NoError(t, err)
			checkDocument(t, string(text), transport)
		})
	}
}

func TestBenchSyncToStandardOutput(t *testing.T) {
	lightpath := filepath.Join(benchtest.Bin(t), "lightpath")
	args := append([]string{"bench", "allreduce", "-n", "2", "--sync", "--transport", "shm", "--json", "-"}, quick...)
	checkDocument(t, start(t, t.TempDir(), lightpath, args...), "shm")
}

// TestBenchTraces: a trace of the user may have a file for each rank.
func TestBenchTraces(t *testing.T) {
	lightpath := filepath.Join(benchtest.Bin(t), "lightpath")
	dir := t.TempDir()
	args := append([]string{"bench", "allreduce", "--transport", "shm", "--json", "-"}, quick...)
	cmd := prepare(t, dir, lightpath, args...)
	cmd.Env = append(cmd.Env, "LIGHTPATH_TRACE="+filepath.Join(dir, "trace.%r"))
	out, err := cmd.Output()
	require.NoError(t, err)
	checkDocument(t, string(out), "shm")
}

func TestBenchAlgorithm(t *testing.T) {
	lightpath := filepath.Join(benchtest.Bin(t), "lightpath")
	text := start(t, t.TempDir(), lightpath, "bench", "allreduce", "-n", "4", "-b", "4K", "-e", "4K", "-i", "1", "-w", "0",
		"-d", "bfloat16", "-o", "max", "--transport", "shm", "--algorithm", "ring", "--json", "-")
	var doc bench.Document
	require.NoError(t, json.Unmarshal([]byte(text), &doc))
	for _, r := range doc.Results {
		if r.Algorithm != "ring" || r.Type != "bfloat16" || r.Op != "max" || r.Count != 2048 || r.Wrong == nil ||
			*r.Wrong != 0 {
			t.Errorf("%+v", r)
		}
	}
}

// TestBenchNarrowTypes: the expected results of many ranks are exact in types that hold few numbers. A sum of ones
// would stay 8 in the narrowest type. A product of twos would be infinite. A sum of bytes wraps before the division.
func TestBenchNarrowTypes(t *testing.T) {
	lightpath := filepath.Join(benchtest.Bin(t), "lightpath")
	for _, args := range [][]string{
		{"-d", "f8e5m2", "-n", "12", "-b", "14K", "-e", "14K"},
		{"-d", "half", "-o", "prod", "-n", "64", "-b", "14K", "-e", "14K", "--threads"},
		{"-d", "uint8", "-o", "avg", "-n", "128", "-b", "1K", "-e", "1K", "--threads"},
	} {
		common := []string{"bench", "allreduce", "-i", "1", "-w", "0", "--transport", "shm"}
		start(t, t.TempDir(), lightpath, append(common, args...)...)
	}
}

// TestRankWithoutBarrier: a rank that cannot open the barrier fails, since the others would wait for it.
func TestRankWithoutBarrier(t *testing.T) {
	dir := t.TempDir()
	job := filepath.Join(dir, "job")
	require.NoError(t, os.WriteFile(job, []byte("rank=0\nworld=1\nbarrier=/proc/none\n"+
		"run collective=allreduce type=float op=sum bytes=8 count=2 iters=1 mode=loop\n"), 0o600))
	out, err := prepare(t, dir, filepath.Join(benchtest.Bin(t), "lightpath-rank"), "--job", job).Output()
	if err == nil || !strings.Contains(string(out), `"error":"barrier: No such file or directory"`) {
		t.Errorf("%v: %s", err, out)
	}
}

// TestBenchUnderMPI lets mpirun start the ranks, directly and by a script that runs the benchmark twice.
func TestBenchUnderMPI(t *testing.T) {
	lightpath := filepath.Join(benchtest.Bin(t), "lightpath")
	mpirun, err := exec.LookPath("mpirun")
	if err != nil {
		t.Skipf("%v: apt-get install openmpi-bin", err)
	}
	launch := []string{"-n", "2", "--allow-run-as-root", "--oversubscribe"}
	benchmark := append([]string{lightpath, "bench", "allreduce", "--json", "out.json"}, quick...)
	for name, args := range map[string][]string{
		"directly": benchmark,
		"script":   {"sh", "-c", `"$@" && "$@"; exit $?`, "sh"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if name == "script" {
				args = append(args, benchmark...)
			}
			table := start(t, dir, mpirun, append(slices.Clone(launch), args...)...)
			runs := 1
			if name == "script" {
				runs = 2
			}
			if strings.Count(table, "# Out of bounds values : 0 OK") != runs {
				t.Errorf("want %d tables, and none of other ranks:\n%s", runs, table)
			}
			text, err := os.ReadFile(filepath.Join(dir, "out.json"))
			require.NoError(t, err)
			checkDocument(t, string(text), "auto")
		})
	}
}

// TestBenchUnderLaunchers sets the variables of other launchers, for one process a rank.
func TestBenchUnderLaunchers(t *testing.T) {
	lightpath := filepath.Join(benchtest.Bin(t), "lightpath")
	for name, env := range map[string]func(rank string) []string{
		"torchrun": func(rank string) []string { return []string{"RANK=" + rank, "WORLD_SIZE=2", "MASTER_PORT=29500"} },
		"Slurm": func(rank string) []string {
			job := fmt.Sprintf("SLURM_JOB_ID=test-%d", os.Getpid())
			return []string{"SLURM_PROCID=" + rank, "SLURM_STEP_NUM_TASKS=2", job, "SLURM_STEP_ID=0"}
		},
		"MPICH": func(rank string) []string { return []string{"PMI_RANK=" + rank, "PMI_SIZE=2"} },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			ranks := make([]*exec.Cmd, 2)
			outputs := make([]bytes.Buffer, 2)
			for r := range ranks {
				ranks[r] = prepare(t, dir, lightpath, append([]string{"bench", "allreduce", "--json", "out.json"}, quick...)...)
				ranks[r].Env = append(ranks[r].Env, env(strconv.Itoa(r))...)
				ranks[r].Stdout, ranks[r].Stderr = &outputs[r], &outputs[r]
				require.NoError(t, ranks[r].Start())
			}
			for r := range ranks {
				if err := ranks[r].Wait(); err != nil {
					t.Errorf("rank %d: %v\n%s", r, err, &outputs[r])
				}
			}
			if outputs[1].Len() > 0 {
				t.Errorf("rank 1 prints %q, too", &outputs[1])
			}
			text, err := os.ReadFile(filepath.Join(dir, "out.json"))
			require.NoError(t, err)
			checkDocument(t, string(text), "auto")
		})
	}
}

// TestBenchRefusesUnderLaunchers: a bad value from a launcher is bad input, and the error names it.
func TestBenchRefusesUnderLaunchers(t *testing.T) {
	lightpath := filepath.Join(benchtest.Bin(t), "lightpath")
	for _, c := range []struct {
		env, flag, says string
	}{
		{"RANK=2", "", "WORLD_SIZE"}, {"RANK=x", "", "RANK"}, {"RANK=0", "--sync", "--sync"},
		{"RANK=0", "-n 3", "torchrun started 2 ranks (RANK=0)"},
	} {
		cmd := prepare(t, t.TempDir(), lightpath, append([]string{"bench", "allreduce"}, strings.Fields(c.flag)...)...)
		cmd.Env = append(cmd.Env, c.env, "WORLD_SIZE=2")
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(out), c.says) ||
			strings.Count(string(out), "\n") != 1 {
			t.Errorf("%s %s: %v %q; want status 2 and one line with %s", c.env, c.flag, err, out, c.says)
		}
	}
}

// TestBenchOverFabric switches circuits during the collective. The switch runs only as long as the benchmark.
func TestBenchOverFabric(t *testing.T) {
	lightpath := filepath.Join(benchtest.Bin(t), "lightpath")
	dir, socket := fabricDir(t, "1Gbps", false)
	out := start(t, dir, lightpath, "bench", "allreduce", "-n", "4", "-b", "64K", "-e", "256K", "-f", "4", "-w", "1", "-i",
		"2",
		"--fabric", "fabric.yaml", "--planner", "swot", "--algorithm", "rabenseifner", "--json", "-")
	var doc bench.Document
	require.NoError(t, json.Unmarshal([]byte(out), &doc))
	if len(doc.Results) != 4 {
		t.Errorf("%d results, want 4", len(doc.Results))
	}
	for _, r := range doc.Results {
		if r.Wrong == nil || *r.Wrong != 0 || r.Algorithm != "rabenseifner" || r.Planner != "swot" || !(r.PredictedUS > 0) {
			t.Errorf("%+v", r)
		}
	}
	if _, err := os.Stat(socket); !os.IsNotExist(err) {
		t.Errorf("the switch left its socket: %v", err)
	}
}

// A root completes before its data has left the wire. Its end then must lose no data.
func TestBenchRootLeavesFirst(t *testing.T) {
	lightpath := filepath.Join(benchtest.Bin(t), "lightpath")
	dir, _ := fabricDir(t, "20Mbps", true) // no circuit switches, so ranks wait for the wire only
	out := start(t, dir, lightpath, "bench", "broadcast", "-n", "4", "-b", "256K", "-e", "256K", "-w", "0", "-i", "1",
		"--out-of-place", "--fabric", "fabric.yaml", "--timeout", "30s")
	if !strings.Contains(out, "# Out of bounds values : 0 OK") {
		t.Errorf("the table is\n%s", out)
	}
}

// fabricDir makes a directory with a fabric file for 4 ranks and two emulated planes.
func fabricDir(t *testing.T, rate string, forwarding bool) (dir, socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "lp") // a socket's path is short
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket = filepath.Join(dir, "ocs.sock")
	text := fmt.Sprintf(`version: 1
name: two
ranks: 4
planes:
  - {name: p0, bandwidth: %[1]s, ocs: ocs0}
  - {name: p1, bandwidth: %[1]s, ocs: ocs0}
ocs:
  - {name: ocs0, driver: emulator, endpoint: "unix:%[2]s", reconfig: 1ms}
forwarding: %[3]v
`, rate, socket, forwarding)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "fabric.yaml"), []byte(text), 0o600))
	return dir, socket
}
