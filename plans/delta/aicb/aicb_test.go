package aicb

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lightpath/internal/require"
	"lightpath/plans/delta/train"
)

func read(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	return string(text)
}

var options = Options{Name: "t", GPUsPerPod: 4, Gbps: 400, ScaleUpGBs: 100}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Max(1, math.Abs(b)) }

// TestSimAI compares with sums by hand: two micro-batches of two layers on 2 stages of 2 GPUs,
// 2 replicas.
func TestSimAI(t *testing.T) {
	c, err := SimAI(read(t, "small.txt"), options)
	require.NoError(t, err)
	if c.TP != 2 || c.PP != 2 || c.EP != 1 || c.GPUs != 8 || c.MicroBatches != 2 || c.Replicas() != 2 ||
		c.BoundaryBytes != 2*4e6 {
		t.Fatalf("%+v", c)
	}
	k := c.Stages[1]
	// The first layer takes 1000 us and has an all-gather of 2 MB, of which half is sent at 100 GB/s. Its
	// backward takes 800 + 800 us and has a scatter of the same size. The second layer takes 500 us and has
	// an all-reduce of 1 MB.
	for name, v := range map[string][2]float64{
		"forward":  {k.Forward, 1000 + 10 + 500 + 10},
		"backward": {k.Backward, 1600 + 10 + 400},
		"flow":     {k.Flow, (3e9 + 6e9) / 2},
		"scatter":  {k.Scatter, 0},
		"gather":   {k.Gather, 3 + 4},
	} {
		if !near(v[0], v[1]) {
			t.Errorf("%s %v, want %v", name, v[0], v[1])
		}
	}
	if c.Stages[0] != k {
		t.Error("stages differ")
	}
	g, err := train.Generate(*c)
	require.NoError(t, err)
	transfers := 0
	for i := range g.Tasks {
		if g.Tasks[i].Transfer() {
			transfers++
		}
	}
	if transfers != 2 { // both stages are in one pod, so only gradients cross
		t.Errorf("%d transfers", transfers)
	}
}

func TestSimAIRefused(t *testing.T) {
	good := read(t, "small.txt")
	for want, change := range map[string][2]string{
		"line 8: cut short: 5 of 6": {
			"mlp\t-1\t500000\tALLREDUCE\t1000000\t400000\tNONE\t0\t0\tNONE\t0\t100\n", ""},
		"line 1: all_gpus is missing":                {"all_gpus: 8", "seats: 8"},
		"line 1: ga: \"many\"":                       {"ga: 2", "ga: many"},
		"line 2: \"x\" is no number of layers":       {"\n6\n", "\nx\n"},
		"line 4: backward_comm: \"RUMOUR\"":          {"NONE\t0\t1000\tNONE\t0\t2000\t", "NONE\t0\t1000\tRUMOUR\t0\t2000\t"},
		"line 5: forward_compute_time: \"-1000000\"": {"\t1000000\t", "\t-1000000\t"},
		"line 8: more than 5 layers":                 {"\n6\n", "\n5\n"},
		"is not the header":                          {"HYBRID_TRANSFORMER_FWD_IN_BCKWD", "MICRO"},
		"line 5: 11 fields":                          {"attention\t-1", "attention"},
		"gpus: 6 are no whole number":                {"all_gpus: 8", "all_gpus: 6"},
	} {
		text := strings.Replace(good, change[0], change[1], 1)
		if text == good {
			t.Fatalf("%q is not there", change[0])
		}
		if _, err := SimAI(text, options); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for n := range len(good) - 20 {
		if _, err := SimAI(good[:n], options); !errors.Is(err, ErrWorkload) {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
}

// TestGPUs: a number of GPUs that contradicts the file is refused; the same number, or one where the file says
// nothing, is taken.
func TestGPUs(t *testing.T) {
	for _, c := range []struct {
		name string
		read func(string, Options) (*train.Config, error)
		says func(text string) string // leaves out what the file says
	}{
		{"small.txt", SimAI, func(text string) string { return strings.Replace(text, "all_gpus: 8", "seats: 8", 1) }},
		{"small.csv", CSV, func(text string) string { return strings.ReplaceAll(text, "dp_group", "elsewhere") }},
	} {
		text := read(t, c.name)
		o := options
		for o.GPUs = range 9 {
			got, err := c.read(text, o)
			if o.GPUs != 0 && o.GPUs != 8 {
				if !errors.Is(err, ErrWorkload) || !strings.Contains(err.Error(), "the file says 8") {
					t.Errorf("%s, %d given: %v", c.name, o.GPUs, err)
				}
			} else if err != nil || got.GPUs != 8 {
				t.Errorf("%s, %d given: %v", c.name, o.GPUs, err)
			}
		}
		o.GPUs = 12
		if got, err := c.read(c.says(text), o); err != nil || got.GPUs != 12 {
			t.Errorf("%s: 12 given, and the file says nothing: %v", c.name, err)
		}
	}
}

// TestWarnsOfNoGradients: replicas that exchange no gradients are said.
func TestWarnsOfNoGradients(t *testing.T) {
	text := read(t, "small.csv")
	var said []string
	o := options
	o.Warn = func(text string) { said = append(said, text) }
	if _, err := CSV(text, o); err != nil || said != nil {
		t.Fatalf("%v, %q", err, said)
	}
	var silent strings.Builder
	for line := range strings.Lines(text) {
		if strings.Contains(line, "CommGroup.dp_group") {
			line = strings.NewReplacer(",4000000000,", ",0,", ",2000000000,", ",0,").Replace(line)
		}
		silent.WriteString(line)
	}
	_, err := CSV(silent.String(), o)
	if err != nil || len(said) != 1 || !strings.Contains(said[0], "2 of 2 stages have gradients of 0 bytes") {
		t.Errorf("%v, %q", err, said)
	}
}

func TestCSV(t *testing.T) {
	c, err := CSV(read(t, "small.csv"), options)
	require.NoError(t, err)
	if c.TP != 2 || c.PP != 2 || c.GPUs != 8 || c.MicroBatches != 2 || c.BoundaryBytes != 2*4e6 {
		t.Fatalf("%+v", c)
	}
	// Stage 0: 2 ms and 1 MB all-reduced for each of two micro-batches; stage 1 twice that.
	for s, k := range c.Stages {
		f := float64(s + 1)
		if !near(k.Forward, f*2000+10) || !near(k.Backward, f*4000+10) || !near(k.Flow, 3e9) {
			t.Errorf("stage %d: %+v", s, k)
		}
	}
}

func TestCSVRefused(t *testing.T) {
	good := read(t, "small.csv")
	for want, change := range map[string][2]string{
		"stage 0 has 2 rows send_next, stage 1 has 1 recv_prev": {
			"CommType.irecv,CommGroup.pp_group,1,4000000,forward_step,None,None,recv_prev,None,None,None,1\n", ""},
		"line 5: comm_type: \"Gossip.all_reduce\"": {"CommType.all_reduce,CommGroup.tp_group",
			"Gossip.all_reduce,CommGroup.tp_group"},
		"line 5: comm_type: \"shout\" is no collective": {"CommType.all_reduce,CommGroup.tp_group",
			"CommType.shout,CommGroup.tp_group"},
		"line 5: msg_size: \"-1000000\"":     {"1000000,forward.Row", "-1000000,forward.Row"},
		"line 2: column msg_size is missing": {"msg_size", "message"},
		"line 5: 11 fields": {"1000000,forward.Row,None,None",
			"1000000,forward.Row,None"},
		"line 19: stage 0 is cut short": {"CommType.epoch_end,None,None,0,,None,None,,None,None,None,1\n[", "["},
	} {
		text := strings.Replace(good, change[0], change[1], 1)
		if text == good {
			t.Fatalf("%q is not there", change[0])
		}
		if _, err := CSV(text, options); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	var silent strings.Builder
	for line := range strings.Lines(good) {
		if !strings.HasPrefix(line, "CommType.computation") {
			silent.WriteString(line)
		}
	}
	o := options
	if _, err := CSV(silent.String(), o); err == nil || !strings.Contains(err.Error(),
		"stage 0: no row has a computation's time") {
		t.Errorf("%v", err)
	}
	o.ForwardUS, o.BackwardUS = 5, 7
	c, err := CSV(silent.String(), o)
	if err != nil || !near(c.Stages[0].Forward, 15) || !near(c.Stages[0].Backward, 17) {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestPublic reads workloads that AICB's authors have published, where a checkout has them.
func TestPublic(t *testing.T) {
	dir := os.Getenv("LIGHTPATH_TEST_AICB")
	if dir == "" {
		t.Skip("LIGHTPATH_TEST_AICB names no folder of AICB's workloads")
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		o := options
		o.GPUs, o.GPUsPerPod, o.ForwardUS, o.BackwardUS = 1024, 64, 1000, 2000
		parse := SimAI
		if strings.HasSuffix(file, ".csv") {
			parse, o.GPUs = CSV, 0
		}
		c, err := parse(string(text), o)
		if err != nil {
			t.Logf("%s: %v", filepath.Base(file), err)
			continue
		}
		t.Logf("%s: TP %d, PP %d, %d GPUs, %d micro-batches, stage 0 %+v", filepath.Base(file), c.TP, c.PP, c.GPUs,
			c.MicroBatches, c.Stages[0])
	}
}

func FuzzWorkloads(f *testing.F) {
	f.Add(read(f, "small.txt"))
	f.Add(read(f, "small.csv"))
	f.Fuzz(func(t *testing.T, text string) {
		for _, parse := range []func(string, Options) (*train.Config, error){SimAI, CSV} {
			c, err := parse(text, options)
			switch {
			case err == nil:
				err = c.Validate()
			case errors.Is(err, ErrWorkload), errors.Is(err, train.ErrConfig):
				err = nil
			}
			if err != nil {
				t.Error(err)
			}
		}
	})
}
