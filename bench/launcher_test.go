package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule"
	"lightpath/internal/await"
	"lightpath/internal/require"
	"lightpath/shim/status"
)

// The test binary is its own worker: with this variable set it behaves as its value says.
const workerVar = "LIGHTPATH_TEST_WORKER"

func TestMain(m *testing.M) {
	switch what := os.Getenv(workerVar); {
	case strings.HasPrefix(what, "switch"):
		os.Exit(fakeSwitch(what))
	case what != "":
		os.Exit(fakeWorker(what))
	}
	os.Exit(m.Run())
}

// fakeWorker reads its job file and reports every run as lightpath-rank would, except on the rank that misbehaves. The
// argument has the form BEHAVIOUR@RANK.
func fakeWorker(what string) int {
	job := map[string]string{}
	var runs []map[string]string
	f := os.Stdin
	if path := os.Args[2]; path != launched {
		var err error
		if f, err = os.Open(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
	}
	lines := bufio.NewScanner(f)
	for lines.Scan() && lines.Text() != "end" {
		if text, isRun := strings.CutPrefix(lines.Text(), "run "); isRun {
			fields := map[string]string{}
			for _, word := range strings.Fields(text) {
				key, value, _ := strings.Cut(word, "=")
				fields[key] = value
			}
			runs = append(runs, fields)
			continue
		}
		key, value, _ := strings.Cut(lines.Text(), "=")
		job[key] = value
	}
	behaviour, at, _ := strings.Cut(what, "@")
	if at != "" && at != job["rank"] && behaviour != "others-hang" {
		behaviour = "good"
	}
	if behaviour == "others-hang" {
		if behaviour = "hang"; at == job["rank"] {
			behaviour = "exit"
		}
	}
	if job["rendezvous"] == launched {
		meet(job["rank"], lines)
	}
	switch behaviour {
	case "error":
		fmt.Printf(`{"rank":%s,"result":5,"error":"allreduce: port \"3\" is dark"}`+"\n", job["rank"])
		return 1
	case "exit":
		fmt.Fprintln(os.Stderr, "no such library: libnccl.so.2")
		return 3
	case "garbage":
		fmt.Println(`{"rank":`)
		time.Sleep(time.Minute)
	case "stranger":
		fmt.Println(`{"rank":99}`)
	case "hang":
		time.Sleep(time.Minute)
	case "long":
		fmt.Println("{" + strings.Repeat("x", 17<<20) + "}")
	case "killed":
		p, _ := os.FindProcess(os.Getpid())
		_ = p.Kill()
		time.Sleep(time.Minute)
	}
	rank, _ := strconv.Atoi(job["rank"])
	threads, _ := strconv.Atoi(job["threads"])
	for _, r := range runs {
		for t := range threads {
			fmt.Printf(`{"rank":%d,"collective":"%s","bytes":%s,"count":%s,"inplace":%s,"time_us":%d.5,"wrong":0}`+"\n",
				rank+t, r["collective"], r["bytes"], r["count"], r["inplace"], 10+rank+t)
		}
	}
	fmt.Println("NCCL INFO bye, said", os.Getenv("LIGHTPATH_TRANSPORT"))
	return 0
}

// meet takes the unique id from the launcher, or gives it, and passes two barriers. A rank that does not get the id of
// rank 0 reports an error.
func meet(rank string, answers *bufio.Scanner) {
	const id = "c0ffee"
	if rank == "0" {
		fmt.Printf(`{"unique_id":"%s"}`+"\n", id)
	} else if !answers.Scan() || answers.Text() != id {
		fmt.Printf(`{"rank":%s,"result":5,"error":"unique id %q"}`+"\n", rank, answers.Text())
	}
	for range 2 {
		fmt.Println(`{"barrier":true}`)
		if !answers.Scan() || answers.Text() != "" {
			fmt.Printf(`{"rank":%s,"result":5,"error":"at the barrier: %q"}`+"\n", rank, answers.Text())
		}
	}
}

func fakeRanks(t *testing.T, n int, behaviour string) *Ranks {
	self, err := os.Executable()
	require.NoError(t, err)
	return &Ranks{N: n, Worker: self, Env: []string{workerVar + "=" + behaviour}, grace: 100 * time.Millisecond}
}

var twoRuns = []string{
	"run collective=allreduce bytes=8 count=2 inplace=0", "run collective=allreduce bytes=16 count=4 inplace=0",
}

func TestRanksReport(t *testing.T) {
	for _, transport := range []string{"shm", "inproc"} {
		r := fakeRanks(t, 3, "good")
		r.Transport = transport
		var heard []int
		r.OnReport = func(p Report) { heard = append(heard, p.Rank) }
		reports, err := r.Run(context.Background(), twoRuns)
		if err != nil {
			t.Fatalf("%s: %v", transport, err)
		}
		for rank, got := range reports {
			if len(got) != 2 || got[0].Bytes != 8 || got[1].Bytes != 16 || got[0].Rank != rank ||
				got[0].TimeUS != 10.5+float64(rank) {
				t.Errorf("%s: rank %d reports %+v", transport, rank, got)
			}
		}
		slices.Sort(heard)
		if want := []int{0, 0, 1, 1, 2, 2}; !slices.Equal(heard, want) {
			t.Errorf("%s: OnReport heard of ranks %v, want %v", transport, heard, want)
		}
	}
}

// Ranks that a command starts elsewhere get job, unique id and barriers over their standard input.
func TestLaunchedRanksMeet(t *testing.T) {
	r := fakeRanks(t, 3, "good")
	var asked []int
	r.Launch = func(rank int) []string {
		if asked = append(asked, rank); rank == 0 {
			return nil
		}
		return []string{"env", "LIGHTPATH_ELSEWHERE=1"}
	}
	reports, err := r.Run(t.Context(), twoRuns)
	require.NoError(t, err)
	for rank, got := range reports {
		if len(got) != 2 || got[1].Rank != rank || got[1].Bytes != 16 {
			t.Errorf("rank %d reports %+v", rank, got)
		}
	}
	if !slices.Equal(asked, []int{0, 1, 2}) {
		t.Errorf("asked how to start ranks %v", asked)
	}
	r.Env = []string{workerVar + "=exit@1"}
	if _, err := r.Run(t.Context(), twoRuns); err == nil || !strings.Contains(err.Error(), "rank 1: exit status 3") {
		t.Errorf("%v, want it to name rank 1", err)
	}
}

func TestRankOfALauncherStartsItselfOnly(t *testing.T) {
	r := fakeRanks(t, 4, "good")
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	r.World = &World{Rank: 2, Size: 4}
	reports, err := r.Run(context.Background(), twoRuns)
	require.NoError(t, err)
	for rank, got := range reports {
		if want := 2 * b2i(rank == 2); len(got) != want {
			t.Errorf("rank %d reported %d runs, want %d", rank, len(got), want)
		}
	}
	// The next run of the job must not find the file of this one.
	r.World.Rank = 0
	met, err := r.World.rendezvous()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(met, nil, 0o600))
	r.OnReport = func(Report) {
		if _, err := os.Stat(met); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("all ranks have met, and their file is still there: %v", err)
		}
	}
	_, err = r.Run(t.Context(), twoRuns)
	require.NoError(t, err)
}

func TestRankFailures(t *testing.T) {
	for _, c := range []struct {
		behaviour string
		says      []string
	}{
		{"error@1", []string{`rank 1: allreduce: port "3" is dark`}},
		{"exit@2", []string{"rank 2: exit status 3: no such library: libnccl.so.2"}},
		{"garbage@0", []string{`rank 0: unreadable report "{\"rank\":"`}},
		{"stranger@1", []string{`rank 1: unreadable report "{\"rank\":99}"`}},
		{"long@1", []string{"rank 1: bufio.Scanner: token too long"}},
		{"killed@2", []string{"rank 2: signal: killed"}},
		// The launcher stops the ranks that hang after the failure, and does not report them as failed.
		{"others-hang@1", []string{"rank 1: exit status 3", "\n  ranks 0, 2: did not end; stopped"}},
	} {
		t.Run(c.behaviour, func(t *testing.T) {
			_, err := fakeRanks(t, 3, c.behaviour).Run(context.Background(), twoRuns)
			if !errors.Is(err, ErrRankFailed) {
				t.Fatalf("%v, want ErrRankFailed", err)
			}
			for _, s := range c.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%q does not say %q", err, s)
				}
			}
			if first, _, _ := strings.Cut(err.Error(), "\n"); !strings.Contains(first, c.says[0]) {
				t.Errorf("%q does not begin with the first failure", err)
			}
		})
	}
}

func TestRanksDeadline(t *testing.T) {
	r := fakeRanks(t, 2, "hang")
	r.Deadline = 300 * time.Millisecond
	_, err := r.Run(context.Background(), twoRuns)
	if !errors.Is(err, ErrRankFailed) || !strings.Contains(err.Error(), "not done within 300ms") ||
		!strings.Contains(err.Error(), "ranks 0-1: did not end") {
		t.Errorf("%v", err)
	}
}

// TestSuspendedRank: if ranks do not end in time, the error of one that a signal has suspended says so. It comes first.
func TestSuspendedRank(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	j := &job{ranks: fakeRanks(t, 1, "hang"), dir: t.TempDir(), reports: make([][]Report, 1)}
	p, err := j.start(ctx, 0, 1, twoRuns)
	require.NoError(t, err)
	require.NoError(t, p.Process.Signal(syscall.SIGSTOP))
	await.Until(t, "stopped", func() bool { return status.ProcessAnswer(p.Process.Pid) == status.Stopped })
	cancel()
	j.watch(ctx, 0, p, func() {})
	if len(j.errs) != 1 || j.errs[0].how != died || !strings.Contains(j.errs[0].text, "suspended") {
		t.Errorf("%+v", j.errs)
	}
}

func TestRanksCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	r := fakeRanks(t, 2, "hang@1")
	r.OnReport = func(Report) { cancel() }
	if _, err := r.Run(ctx, twoRuns); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the context's error", err)
	}
}

func TestNoWorker(t *testing.T) {
	r := Ranks{N: 2, Worker: filepath.Join(t.TempDir(), "lightpath-rank")}
	if _, err := r.Run(context.Background(), twoRuns); err == nil ||
		!strings.Contains(err.Error(), "cannot start rank 0") ||
		!strings.Contains(err.Error(), "build it with make") {
		t.Errorf("%v", err)
	}
	r = Ranks{N: 2, Worker: t.TempDir()} // cannot be run, for another reason
	if _, err := r.Run(context.Background(), twoRuns); err == nil || strings.Contains(err.Error(), "build it with make") {
		t.Errorf("%v", err)
	}
}

// TestRun goes from options to the document with fake ranks.
func TestRun(t *testing.T) {
	r := fakeRanks(t, 2, "good")
	r.Transport = "shm"
	var heard []Result
	o := &Options{
		Specs: []Spec{{
			Collective: schedule.AllReduce, Type: datatype.Float32, Op: datatype.Sum, MinBytes: 8, MaxBytes: 32, Factor: 2,
			Iters: 1, OutOfPlace: true, InPlace: true,
		}},
		Ranks: *r, OnResult: func(r Result) { heard = append(heard, r) },
	}
	doc, err := Run(context.Background(), o)
	require.NoError(t, err)
	if doc.Ranks != 2 || doc.Transport != "shm" || len(doc.Results) != 6 || !reflect.DeepEqual(heard, doc.Results) {
		t.Fatalf("%+v after %+v", doc, heard)
	}
	for i, want := range []struct {
		bytes   int64
		inPlace bool
	}{{8, false}, {8, true}, {16, false}, {16, true}, {32, false}, {32, true}} {
		if got := doc.Results[i]; got.Bytes != want.bytes || got.InPlace != want.inPlace || got.TimeUS != 11 {
			t.Errorf("result %d: %+v, want %+v in 11 us", i, got, want)
		}
	}
}

func TestEnvironment(t *testing.T) {
	o := Options{Fabric: "f.yaml", Planner: "swot", Algorithm: "ring", Planes: 2, Ranks: Ranks{Env: []string{"A=1"}}}
	o.Specs = []Spec{{Collective: schedule.AllToAll}}
	want := []string{"A=1", "LIGHTPATH_FABRIC=f.yaml", "LIGHTPATH_PLANNER=swot", "LIGHTPATH_ALGORITHM=alltoall:ring",
		"LIGHTPATH_PLANES=2"}
	if got := o.environment(); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := (&Options{}).environment(); len(got) != 0 {
		t.Errorf("%v, want nothing that the user did not ask for", got)
	}
}

func TestTail(t *testing.T) {
	var w Tail
	for i := range 1000 {
		fmt.Fprintf(&w, "line %d\n", i)
	}
	if s := w.String(); len(s) > tailBytes || !strings.HasSuffix(s, "line 999\n") {
		t.Errorf("%d bytes ending in %q", len(s), s[len(s)-10:])
	}
}
