package bench

import (
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule"
	"lightpath/internal/require"
)

func TestSpans(t *testing.T) {
	reports := []Report{{Iters: [][2]int64{{10, 20}, {40, 50}}}, {Iters: [][2]int64{{12, 30}, {35, 41}}}}
	if got, want := Spans(reports), [][2]int64{{10, 30}, {35, 50}}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if reports[0].Iters[0] != [2]int64{10, 20} {
		t.Errorf("Spans has changed a report: %v", reports[0].Iters)
	}
}

func TestCompletions(t *testing.T) {
	got := Completions([]Report{
		{Iters: [][2]int64{{1000, 5000}, {10000, 11000}}},
		{Iters: [][2]int64{{2000, 7500}, {9000, 10500}, {1, 2}}},
	})
	if want := []float64{6.5, 2}; !slices.Equal(got, want) {
		t.Errorf("completions %v us, want %v: last end less first start", got, want)
	}
}

func loopSpec() Spec {
	return Spec{
		Collective: schedule.AllReduce, Type: datatype.Float32, Op: datatype.Sum, Iters: 2, MinBytes: 64, MaxBytes: 128,
		Factor: 2, Check: true,
	}
}

// wrong is a count of wrong elements in a result.
func wrong(n int64) *int64 { return &n }

// collect gives the reports of here ranks to a collector, a rank after the other.
func collect(here int, points []point, reports [][]Report) ([]Result, error) {
	c := &collector{points: points, here: here, reports: make([][]Report, len(reports))}
	for rank, all := range reports {
		for _, r := range all {
			r.Rank = rank
			c.add(r)
		}
	}
	return c.end()
}

func TestCollectLoop(t *testing.T) {
	s := loopSpec()
	_, points := runLines(&s, 2)
	reports := [][]Report{
		{{Rank: 0, Collective: "allreduce", Bytes: 64, TimeUS: 10, Wrong: 1}, {Rank: 0, Collective: "allreduce", Bytes: 128,
			TimeUS: 20}},
		{{Rank: 1, Collective: "allreduce", Bytes: 64, TimeUS: 30, Wrong: 2}, {Rank: 1, Collective: "allreduce", Bytes: 128,
			TimeUS: 40}},
	}
	got, err := collect(2, points, reports)
	require.NoError(t, err)
	want := []Result{
		{Collective: "allreduce", Bytes: 64, Count: 16, Type: "float", Op: "sum", TimeUS: 20, AlgBW: 64 / 20e3,
			BusBW: 64 / 20e3, Wrong: wrong(3)},
		{Collective: "allreduce", Bytes: 128, Count: 32, Type: "float", Op: "sum", TimeUS: 30, AlgBW: 128 / 30e3,
			BusBW: 128 / 30e3, Wrong: wrong(0)},
	}
	for i := range want {
		if math.Abs(got[i].AlgBW-want[i].AlgBW) > 1e-12 || math.Abs(got[i].BusBW-want[i].BusBW) > 1e-12 {
			t.Errorf("bandwidths %v %v, want %v", got[i].AlgBW, got[i].BusBW, want[i].AlgBW)
		}
		got[i].AlgBW, got[i].BusBW = want[i].AlgBW, want[i].BusBW
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	// Under a foreign launcher only one rank's reports are here.
	got, err = collect(1, points, [][]Report{nil, reports[1]})
	if err != nil || got[0].TimeUS != 30 || *got[0].Wrong != 2 {
		t.Errorf("one local rank: %+v, %v", got, err)
	}
}

func TestCollectSync(t *testing.T) {
	s := loopSpec()
	s.Sync, s.MaxBytes = true, 64
	_, points := runLines(&s, 2)
	reports := [][]Report{
		{{Collective: "allreduce", Bytes: 64, TimeUS: 1, Iters: [][2]int64{{0, 4000}, {10000, 12000}}}},
		{{Rank: 1, Collective: "allreduce", Bytes: 64, TimeUS: 1, Iters: [][2]int64{{1000, 3000}, {9000, 17000}}}},
	}
	got, err := collect(2, points, reports)
	require.NoError(t, err)
	if r := got[0]; r.TimeUS != 6 || r.MinUS != 4 || r.MaxUS != 8 {
		t.Errorf("median %v min %v max %v, want 6, 4 and 8", r.TimeUS, r.MinUS, r.MaxUS)
	}
}

func TestCollectRefuses(t *testing.T) {
	good := func() [][]Report {
		return [][]Report{
			{{Collective: "allreduce", Bytes: 64, Iters: make([][2]int64, 2)},
				{Collective: "allreduce", Bytes: 128, Iters: make([][2]int64, 2)}},
			{{Collective: "allreduce", Bytes: 64, Iters: make([][2]int64, 2)},
				{Collective: "allreduce", Bytes: 128, Iters: make([][2]int64, 2)}},
		}
	}
	s := loopSpec()
	s.Sync = true
	_, points := runLines(&s, 2)
	if _, err := collect(2, points, good()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		bend func(r [][]Report) [][]Report
		says string
	}{
		{"no rank", func([][]Report) [][]Report { return make([][]Report, 2) }, "reported allreduce of 64 bytes: 0 of 2"},
		{"a run is missing", func(r [][]Report) [][]Report { r[1] = r[1][:1]; return r },
			"reported allreduce of 128 bytes: 1 of 2"},
		{"a rank without reports", func(r [][]Report) [][]Report { r[1] = nil; return r }, "of 64 bytes: 1 of 2"},
		{"another size", func(r [][]Report) [][]Report { r[0][1].Bytes = 64; return r },
			"rank 0 reported allreduce of 64 bytes"},
		{"another collective", func(r [][]Report) [][]Report { r[0][0].Collective = "reduce"; return r },
			"rank 0 reported reduce"},
		{"in place", func(r [][]Report) [][]Report { r[1][0].InPlace = 1; return r }, "in place 1"},
		{"no iterations", func(r [][]Report) [][]Report { r[1][0].Iters = nil; return r }, "rank 1 reported 0 iterations"},
	} {
		if _, err := collect(2, points, c.bend(good())); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want an error with %q", c.name, err, c.says)
		}
	}
}

// TestCollectUnchecked: without a check the number of wrong elements is unknown, and not zero.
func TestCollectUnchecked(t *testing.T) {
	s := loopSpec()
	s.Check, s.MaxBytes = false, 64
	_, points := runLines(&s, 1)
	got, err := collect(1, points, [][]Report{{{Collective: "allreduce", Bytes: 64, TimeUS: 10}}})
	if err != nil || got[0].Wrong != nil {
		t.Errorf("%+v, %v; want an unknown number", got, err)
	}
}

// TestTraceSizes finds the files of all ranks and no others.
func TestTraceSizes(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"trace-0.7", "trace-1.8", "other-0.7"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600))
	}
	want := map[string]int64{filepath.Join(dir, "trace-0.7"): 9, filepath.Join(dir, "trace-1.8"): 9}
	if got := traceSizes(filepath.Join(dir, "trace-%r.%p")); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := traceSizes(filepath.Join(dir, "none")); len(got) != 0 {
		t.Errorf("%v of a file that does not exist", got)
	}
}

func TestAnnotate(t *testing.T) {
	trace := filepath.Join(t.TempDir(), "trace")
	const before = `{"event":"program","collective":"reduce","type":"float","count":16,"algorithm":"of an earlier run"}
`
	const text = `{"event":"program","collective":"allreduce","type":"float","count":16,"in_place":false,"algorithm":"ring"}
not JSON
{"event":"other","collective":"allreduce","type":"float","count":16,"algorithm":"wrong"}
{"event":"program","collective":"allreduce","type":"float","count":16,"algorithm":"rabenseifner","planner":"swot","predicted_us":7.5}
{"event":"program","collective":"allreduce","type":"float","count":99,"in_place":true,"algorithm":"swing"}
`
	require.NoError(t, os.WriteFile(trace, []byte(before+text), 0o600))
	results := []Result{
		{Collective: "allreduce", Type: "float", Count: 16}, {Collective: "allreduce", Type: "float", Count: 16,
			InPlace: true},
		{Collective: "reduce", Type: "float", Count: 16}, {Collective: "allreduce", Type: "int8", Count: 16},
	}
	programs, err := ReadTrace(trace, int64(len(before)))
	if err != nil || len(programs) != 3 {
		t.Fatalf("%d programs, %v; want 3", len(programs), err)
	}
	annotate(results, programs)
	if r := results[0]; r.Algorithm != "rabenseifner" || r.Planner != "swot" || r.PredictedUS != 7.5 {
		t.Errorf("out of place: %+v; the last program of the shape ran", r)
	}
	if r := results[1]; r.Algorithm == "" {
		t.Errorf("in place: %+v; it shares the program of the out-of-place call", r)
	}
	for _, r := range results[2:] {
		if r.Algorithm != "" {
			t.Errorf("%s of %s has the program of another shape: %+v", r.Collective, r.Type, r)
		}
	}
	if programs, err := ReadTrace(filepath.Join(t.TempDir(), "none"), 0); err != nil || programs != nil {
		t.Errorf("no trace: %v, %v", programs, err)
	}
}

// The clocks of hosts differ: only times of one rank are comparable.
func TestLongest(t *testing.T) {
	ranks := []Report{{Iters: [][2]int64{{1000, 3000}, {5000, 6000}}},
		{Iters: [][2]int64{{9e9, 9e9 + 1500}, {9e9, 9e9 + 4000}}}}
	if got := Longest(ranks); !slices.Equal(got, []float64{2, 4}) {
		t.Errorf("%v, want 2 and 4 us", got)
	}
}
