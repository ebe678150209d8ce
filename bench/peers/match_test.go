package peers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"lightpath/bench"
	"lightpath/bench/benchtest"
	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule"
	"lightpath/internal/require"
)

// If this variable is set, the test binary is a rank that behaves as the value says.
const rankVar = "LIGHTPATH_TEST_PEER"

func TestMain(m *testing.M) {
	if what := os.Getenv(rankVar); what != "" {
		os.Exit(fakeRank(what, os.Args[len(os.Args)-1]))
	}
	os.Exit(m.Run())
}

// fakeRank answers runs as a rank of cgo/rank would, in times that depend on what it is.
func fakeRank(what, job string) int {
	text, err := os.ReadFile(job)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	fields := map[string]string{}
	for _, line := range strings.Fields(string(text)) {
		key, value, _ := strings.Cut(line, "=")
		fields[key] = value
	}
	if what == "absent" {
		fmt.Fprintln(os.Stderr, "cannot open the device")
		return 3
	}
	conn, err := net.Dial("unix", fields["commands"])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	fmt.Fprintf(conn, `{"rank":%s,"library":"fake 1.0"}`+"\n", fields["rank"])
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		answer := `"time_us":10`
		switch {
		case what == "slow":
			answer = `"time_us":20`
		case what == "cold" && strings.Contains(lines.Text(), " iters=2 "):
			answer = `"time_us":5000`
		case what == "wrong":
			answer = `"time_us":1,"wrong":3`
		case what == "poor" && strings.Contains(lines.Text(), "=alltoall "):
			answer = `"unsupported":"it has none"`
		case what == "dies" && fields["rank"] == "1":
			conn.Close() // a failing rank may close its sockets long before it has written the reason
			time.Sleep(50 * time.Millisecond)
			fmt.Fprintln(os.Stderr, "caught a bus error")
			return 3
		case what == "fails" && fields["rank"] == "1":
			answer = `"error":"allreduce: no buffer space"`
		case what == "silent":
			time.Sleep(time.Hour)
		}
		fmt.Fprintf(conn, `{"rank":%s,%s}`+"\n", fields["rank"], answer)
	}
	return 0
}

func fake(t *testing.T, name, what string) contender {
	self, err := os.Executable()
	require.NoError(t, err)
	return contender{Name: name, commands: func(_ *Programs, _ setting, job []string) (all []command) {
		for _, j := range job {
			all = append(all, command{argv: []string{self, "--job", j}, env: []string{rankVar + "=" + what}})
		}
		return all
	}}
}

// play measures fake contenders with two ranks.
func play(t *testing.T, chosen ...contender) (*Document, error) {
	t.Helper()
	o := &Options{
		Collectives: []schedule.Collective{schedule.AllReduce, schedule.AllToAll}, Sizes: []int64{4, 64},
		Type: datatype.Float32,
		Op:   datatype.Sum, Rounds: 3, Timeout: time.Minute, Progress: func(string, ...any) {},
	}
	d := &Document{Rounds: o.Rounds}
	m := match{o: o, d: d, setting: setting{transport: "shm", ranks: 2, cores: 2}}
	defer m.end()
	err := m.play(t.Context(), chosen)
	d.Summaries = summarize(d.Points)
	return d, err
}

func TestMatch(t *testing.T) {
	d, err := play(t, fake(t, Subject, "good"), fake(t, "openmpi", "wrong"), fake(t, "mpich", "slow"),
		fake(t, "gloo", "poor"))
	require.NoError(t, err)
	var bytes []int64
	for _, p := range d.Points {
		bytes = append(bytes, p.Bytes)
		best, ratio := "gloo", 1.0
		if p.Collective == "alltoall" {
			best, ratio = "mpich", 2
		}
		if p.Best != best || p.Ratio == nil || p.Ratio.Value != ratio {
			t.Errorf("%s: best %s, want %s at %v", p, p.Best, best, ratio)
		}
		if w := p.Contenders["openmpi"]; w.Wrong == 0 || w.cell() != "wrong" {
			t.Errorf("%s: openmpi's wrong results: %+v", p, w)
		}
		if n := len(p.Contenders[Subject].TimesUS); n != 3 {
			t.Errorf("%s: %d samples, want 3", p, n)
		}
	}
	// 4 bytes are less than an element for each rank of an all-to-all.
	if !slices.Equal(bytes, []int64{4, 64, 8, 64}) || d.Wrong() != 0 || len(d.Failures) != 0 {
		t.Errorf("sizes %v, %d wrong, failures %v", bytes, d.Wrong(), d.Failures)
	}
	if !strings.Contains(string(d.markdown()), "fake 1.0") || len(d.Libraries) != 4 {
		t.Errorf("libraries %+v", d.Libraries)
	}
}

// TestCalibrate checks that a slow first round does not set the length of samples.
func TestCalibrate(t *testing.T) {
	d, err := play(t, fake(t, Subject, "cold"), fake(t, "mpich", "slow"))
	require.NoError(t, err)
	for _, p := range d.Points {
		if p.Iters != 2000 || p.Contenders[Subject].Iters != 0 {
			t.Errorf("%s: %d and %d iterations; want the 2000 that take 20 ms, of everybody", p, p.Iters,
				p.Contenders[Subject].Iters)
		}
	}
}

func TestMatchLosesPeers(t *testing.T) {
	for what, want := range map[string]string{
		"absent": "cannot open the device", "dies": "caught a bus error", "fails": "rank 1: allreduce: no buffer space",
	} {
		d, err := play(t, fake(t, Subject, "good"), fake(t, "openmpi", what), fake(t, "mpich", "slow"))
		if err != nil || len(d.Points) != 4 || d.Points[3].Best != "mpich" {
			t.Errorf("%s: %v, %d points; want 4, compared with mpich", what, err, len(d.Points))
		}
		if len(d.Failures) != 1 || !strings.Contains(d.Failures[0], want) || !strings.Contains(d.Failures[0], "openmpi") {
			t.Errorf("%s: failures %q; want %q", what, d.Failures, want)
		}
		if _, err := play(t, fake(t, Subject, what), fake(t, "mpich", "slow")); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("subject %s: %v; want %q", what, err, want)
		}
	}
}

func TestMatchWrongSubject(t *testing.T) {
	d, err := play(t, fake(t, Subject, "wrong"), fake(t, "mpich", "slow"))
	if err != nil || d.Wrong() == 0 || d.Points[0].Ratio != nil {
		t.Errorf("%v, %d wrong elements, ratio %v; want wrong elements and no ratio", err, d.Wrong(), d.Points[0].Ratio)
	}
}

func TestSessionTimeout(t *testing.T) {
	c := fake(t, "mpich", "silent")
	s, err := startSession(t.Context(), &c, &Programs{}, setting{ranks: 2, cores: 2}, time.Minute)
	require.NoError(t, err)
	s.timeout = 10 * time.Millisecond
	if _, err := s.run("run"); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a silent rank: %v, want a deadline exceeded", err)
	}
	s.patience = 0
	s.close()
	if _, err := os.Stat(s.dir); err == nil {
		t.Errorf("%s is left behind", s.dir)
	}
}

// installed returns the programs of this installation, or skips where it is not complete.
func installed(t *testing.T) Programs {
	t.Helper()
	return Programs{Bin: benchtest.Bin(t)}
}

// TestInstalled runs every installed contender on small messages. All results must be correct. The C rank and gloo.py
// must expect the same values.
func TestInstalled(t *testing.T) {
	programs := installed(t)
	for _, known := range contenders() {
		t.Run(known.Name, func(t *testing.T) {
			t.Parallel()
			p := programs
			if why := known.missing(&p); why != "" {
				t.Skip(why)
			}
			s, err := startSession(context.WithoutCancel(t.Context()), &known, &p, setting{transport: "shm", ranks: 2, cores: 1},
				2*time.Minute)
			require.NoError(t, err)
			defer s.close()
			spec := bench.Spec{Type: datatype.Float32, Op: datatype.Sum, Iters: 2, Check: true}
			for _, c := range []schedule.Collective{schedule.AllReduce, schedule.AllToAll, schedule.AllGather,
				schedule.ReduceScatter, schedule.Broadcast} {
				for _, count := range []int64{1, 37, 5000} {
					spec.Collective = c
					one, err := s.run(spec.RunLine(count*4, count, c == schedule.Broadcast))
					if known.Name == "gloo" && c == schedule.ReduceScatter {
						if !errors.Is(err, errUnsupported) {
							t.Errorf("reducescatter of gloo: %v, want unsupported", err)
						}
						continue
					}
					if err != nil || one.wrong != 0 || one.us <= 0 || one.cpuUS <= 0 {
						t.Errorf("%s of %d elements: %+v, %v", c, count, one, err)
					}
				}
			}
		})
	}
}

func TestChoose(t *testing.T) {
	p := Programs{Bin: t.TempDir(), Python: filepath.Join(t.TempDir(), "python")}
	if _, _, err := choose(nil, &p, false); err == nil || !strings.Contains(err.Error(), "run make") {
		t.Errorf("without a rank of our own: %v", err)
	}
	require.NoError(t, os.WriteFile(filepath.Join(p.Bin, "lightpath-rank"), nil, 0o700))
	chosen, why, err := choose(nil, &p, false)
	if err != nil || slices.ContainsFunc(chosen, func(c contender) bool { return c.plain && c.Name != Subject }) {
		t.Errorf("%v, %v; want none but the subject's", chosen, err)
	}
	has := func(name, remedy string) bool {
		return slices.ContainsFunc(why, func(line string) bool {
			return strings.HasPrefix(line, name+" is left out: ") && strings.Contains(line, remedy)
		})
	}
	if len(why) != 5 || !has("openmpi", "make peers") || !has("ucc", "UCC=PREFIX") ||
		!has("gloo", "apt-get install python3-torch") {
		t.Errorf("what to do: %q", why)
	}
	p.Python = filepath.Join(p.Bin, "python")
	if _, _, err := choose([]string{"gloo"}, &p, false); err == nil || !strings.Contains(err.Error(), "gloo: no Python") {
		t.Errorf("a contender that is asked for and not here: %v", err)
	}
	if _, _, err := choose([]string{"openmp"}, &p, false); err == nil || !strings.Contains(err.Error(), `"openmp"`) {
		t.Errorf("an unknown contender: %v", err)
	}
}

// TestResume makes three runs. The first has no time, so it measures nothing and reports how much is left. The second
// measures the missing points, and the third nothing.
func TestResume(t *testing.T) {
	dir := t.TempDir()
	o := &Options{
		Transports: []string{"shm"}, Ranks: []int{2}, Collectives: []schedule.Collective{schedule.AllToAll,
			schedule.AllReduce},
		Sizes: []int64{64, 8}, Type: datatype.Float32, Op: datatype.Sum, Rounds: 2,
	}
	run := func(sizes []int64, until time.Time) (*Document, int) {
		before, err := Read(dir)
		require.NoError(t, err)
		d := &Document{Cores: 2, Rounds: o.Rounds}
		require.NoError(t, d.goOn(before))
		measured := 0
		with := *o
		with.Sizes, with.Timeout = sizes, time.Minute
		with.Progress = func(string, ...any) { measured++ }
		with.Save = func(d *Document) error { return d.Save(dir) }
		m := match{o: &with, d: d, setting: setting{transport: "shm", ranks: 2, cores: 2}, until: until}
		defer m.end()
		require.NoError(t, m.play(t.Context(), []contender{fake(t, Subject, "good"), fake(t, "mpich", "slow")}))
		d.sort()
		return d, measured
	}
	if d, n := run([]int64{64}, time.Now().Add(-time.Second)); n != 0 || d.Left != 2 || len(d.Libraries) != 0 {
		t.Errorf("without time: %d points measured, %d left, %d libraries", n, d.Left, len(d.Libraries))
	}
	if d, n := run([]int64{64}, time.Time{}); n != 2 || d.Left != 0 {
		t.Errorf("first: %d points measured, %d left", n, d.Left)
	}
	d, n := run([]int64{8, 64}, time.Time{})
	var got []string
	for _, p := range d.Points {
		got = append(got, fmt.Sprint(p.Collective, p.Bytes))
	}
	if n != 2 || len(d.Libraries) != 2 || !slices.Equal(got, []string{"allreduce8", "allreduce64", "alltoall8",
		"alltoall64"}) {
		t.Errorf("second: %d points measured, %d libraries, in all %v", n, len(d.Libraries), got)
	}
	if _, n := run([]int64{8, 64}, time.Time{}); n != 0 {
		t.Errorf("third: %d points measured", n)
	}
	for word, other := range map[string]Document{
		"rounds":  {Cores: 2, Rounds: 3},
		"cores":   {Cores: 3, Rounds: 2},
		"buffers": {Cores: 2, Rounds: 2, LibraryMemory: true},
		"hosts":   {Cores: 2, Rounds: 2, HostPlanes: 1},
	} {
		if err := other.goOn(d); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("points of another run are taken over: %v, want an error about %s", err, word)
		}
	}
	between := Options{Rounds: 2, Hosts: Hosts{Tag: "t", Planes: 2}, Before: &Document{Cores: runtime.NumCPU(), Rounds: 2}}
	_, err := Run(t.Context(), &between)
	if err == nil || !strings.Contains(err.Error(), "over 0 planes between hosts, not") {
		t.Errorf("points of one host are taken over between hosts: %v", err)
	}
}
