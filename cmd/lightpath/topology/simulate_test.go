package topology

import (
	"encoding/csv"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lightpath/cmd/lightpath/cli"
	"lightpath/cmd/lightpath/cli/clitest"
	"lightpath/internal/require"
)

const jobTrace = `job_id,gpu_num,state,submit_time,duration
1,64,COMPLETED,2020-06-09 18:41:00,600
2,128,FAILED,2020-06-09 18:42:00,300
3,8,COMPLETED,2020-06-09 18:42:30,100
4,0,COMPLETED,2020-06-09 18:42:40,100
`

func TestLumosSimulate(t *testing.T) {
	dir := t.TempDir()
	jobs, picture, table := filepath.Join(dir, "jobs.csv"), filepath.Join(dir, "jobs.svg"),
		filepath.Join(dir, "table.json")
	o := lightpath.Run(t, jobTrace, "topology", "lumos", "simulate", "--gpus", "256", "--fabrics",
		"best,lumos-1-25.6,clos-3-25.6", "--trace", "-",
		"--csv", jobs, "--svg", picture, "--json", table, "--iterations", "3")
	if o.Status != 0 || !strings.HasPrefix(o.Stdout, "fabric            best ") || !strings.Contains(o.Stderr, "1 lines without GPUs") {
		t.Fatalf("%+v", o)
	}
	rows, err := csv.NewReader(strings.NewReader(clitest.Content(t, jobs))).ReadAll()
	if err != nil || len(rows) != 1+3*3 {
		t.Errorf("%d rows, %v", len(rows), err)
	}
	if text := clitest.Content(t, picture); !strings.HasPrefix(text, "<?xml") && !strings.Contains(text, "<svg") {
		t.Errorf("no picture: %.80s", text)
	}
	var back struct{ Rows [][]any }
	if err := json.Unmarshal([]byte(clitest.Content(t, table)), &back); err != nil || len(back.Rows) != 3 ||
		back.Rows[0][0] != "best" {
		t.Errorf("%v: %+v", err, back)
	}
	again := []string{"topology", "lumos", "simulate", "--gpus", "512", "--jobs", "30", "--fabrics", "lumos-1-25.6"}
	if a, b := lightpath.Run(t, "", again...), lightpath.Run(t, "", again...); a.Status != 0 || a.Stdout != b.Stdout {
		t.Errorf("two runs differ: %+v and %+v", a, b)
	}
}

// TestLumosRouting: a controller routes on optical cores unless told otherwise, and nowhere else.
func TestLumosRouting(t *testing.T) {
	for routing, want := range map[string][2]string{"": {"central", "probe"}, "central": {"central", "probe"},
		"probe": {"probe", "probe"}, "ecmp": {"ecmp", "ecmp"}} {
		o := lightpath.Run(t, "", "topology", "lumos", "simulate", "--gpus", "256", "--jobs", "5", "--fabrics",
			"lumos-1-25.6,clos-3-25.6", "--routing", routing)
		lines := strings.Split(o.Stdout, "\n")
		if o.Status != 0 || len(lines) < 3 {
			t.Fatalf("%+v", o)
		}
		if f := strings.Fields(lines[1]); !slices.Equal(f, []string{"routing", want[0], want[1]}) {
			t.Errorf("--routing %q: %v, want %v", routing, f, want)
		}
	}
}

func TestLumosRefuses(t *testing.T) {
	for _, c := range []struct {
		stdin, want string
		args        []string
	}{
		{"", "--fabrics", []string{"simulate", "--fabrics", "ring"}},
		{"", "no whole number of pods", []string{"simulate", "--gpus", "520", "--fabrics", "lumos-1-25.6"}},
		{"", "--routing", []string{"simulate", "--routing", "best"}},
		{"", "0 jobs", []string{"simulate", "--jobs", "0"}},
		{"", "workload level", []string{"simulate", "--level", "-1"}},
		{"", "want a --trace", []string{"simulate", "--rescale"}},
		{"", "iterations", []string{"simulate", "--iterations", "0"}},
		{strings.Replace(jobTrace, ",300", ",-300", 1), "standard input: bad trace: line 3: duration: -300 is negative",
			[]string{"simulate", "--trace", "-", "--gpus", "256"}},
		{strings.TrimSuffix(jobTrace, "\n"), "cut short", []string{"simulate", "--trace", "-", "--gpus", "256"}},
		{strings.Replace(jobTrace, "1,64", "1,512", 1), "line 2: gpu_num: the job has 512 GPUs, the cluster 256",
			[]string{"simulate", "--trace", "-", "--gpus", "256"}},
		{jobTrace, "neither trace nor poisson", []string{"simulate", "--trace", "-", "--gpus", "256", "--arrivals", "now"}},
		{"", "EP 4 does not divide DP 6", []string{"place", "--ep", "4"}},
		{"", "--busy", []string{"place", "--busy", "9"}},
	} {
		o := lightpath.Run(t, c.stdin, append([]string{"topology", "lumos"}, c.args...)...)
		if o.Status != cli.ExitUsage || !strings.Contains(o.Stderr, c.want) || strings.Count(o.Stderr, "\n") != 1 {
			t.Errorf("%v: status %d: %s, want %s", c.args, o.Status, o.Stderr, c.want)
		}
	}
	if o := lightpath.Run(t, "", "topology", "lumos", "place", "--pp", "64", "--dp", "2"); o.Status != cli.ExitNo {
		t.Errorf("a job that does not fit: %+v", o)
	}
}

func TestLumosPlace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "place.json")
	if o := lightpath.Run(t, "", "topology", "lumos", "place", "--busy", "5", "--json", path); o.Status != 0 {
		t.Fatalf("%+v", o)
	}
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var p placement
	require.NoError(t, json.Unmarshal(data, &p))
	sum := 0
	for _, l := range p.Links {
		sum += l.Links
	}
	if len(p.Pods) != 4 || sum == 0 || sum >= p.Without {
		t.Errorf("%s", data)
	}
	if o := lightpath.Run(t, "", "topology", "lumos", "place"); o.Status != 0 || !strings.Contains(o.Stdout, "in 2 pods") {
		t.Errorf("%+v", o)
	}
}
