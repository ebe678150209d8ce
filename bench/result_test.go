package bench

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		in   []float64
		want float64
	}{{[]float64{3}, 3}, {[]float64{1, 2}, 1.5}, {[]float64{1, 2, 9}, 2}, {[]float64{1, 2, 4, 9}, 3}} {
		if got := Median(c.in); got != c.want {
			t.Errorf("Median(%v) = %v, want %v", c.in, got, c.want)
		}
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
	return Spec{Collective: schedule.AllReduce, Type: datatype.Float32, Op: datatype.Sum, Iters: 2, MinBytes: 64, MaxBytes: 128, Factor: 2}
}

func TestCollectLoop(t *testing.T) {
	s := loopSpec()
	_, points := runLines(&s, 2)
	reports := [][]Report{
		{{Rank: 0, Collective: "allreduce", Bytes: 64, TimeUS: 10, Wrong: 1}, {Rank: 0, Collective: "allreduce", Bytes: 128, TimeUS: 20}},
		{{Rank: 1, Collective: "allreduce", Bytes: 64, TimeUS: 30, Wrong: 2}, {Rank: 1, Collective: "allreduce", Bytes: 128, TimeUS: 40}},
	}
	got, err := collect(&s, 2, points, reports)
	if err != nil {
		t.Fatal(err)
	}
	want := []Result{
		{Collective: "allreduce", Bytes: 64, Count: 16, Type: "float", Op: "sum", TimeUS: 20, AlgBW: 64 / 20e3, BusBW: 64 / 20e3, Wrong: 3},
		{Collective: "allreduce", Bytes: 128, Count: 32, Type: "float", Op: "sum", TimeUS: 30, AlgBW: 128 / 30e3, BusBW: 128 / 30e3},
	}
	for i := range want {
		if math.Abs(got[i].AlgBW-want[i].AlgBW) > 1e-12 || math.Abs(got[i].BusBW-want[i].BusBW) > 1e-12 {
			t.Errorf("bandwidths %v %v, want %v", got[i].AlgBW, got[i].BusBW, want[i].AlgBW)
		}
		got[i].AlgBW, got[i].BusBW = want[i].AlgBW, want[i].BusBW
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	// Under a foreign launcher only one rank's reports are here.
	got, err = collect(&s, 2, points, [][]Report{nil, reports[1]})
	if err != nil || got[0].TimeUS != 30 || got[0].Wrong != 2 {
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
	got, err := collect(&s, 2, points, reports)
	if err != nil {
		t.Fatal(err)
	}
	if r := got[0]; r.TimeUS != 6 || r.MinUS != 4 || r.MaxUS != 8 {
		t.Errorf("median %v min %v max %v, want 6, 4 and 8", r.TimeUS, r.MinUS, r.MaxUS)
	}
}

func TestCollectRefuses(t *testing.T) {
	good := func() [][]Report {
		return [][]Report{
			{{Collective: "allreduce", Bytes: 64, Iters: make([][2]int64, 2)}, {Collective: "allreduce", Bytes: 128, Iters: make([][2]int64, 2)}},
			{{Collective: "allreduce", Bytes: 64, Iters: make([][2]int64, 2)}, {Collective: "allreduce", Bytes: 128, Iters: make([][2]int64, 2)}},
		}
	}
	s := loopSpec()
	s.Sync = true
	_, points := runLines(&s, 2)
	if _, err := collect(&s, 2, points, good()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		bend func(r [][]Report) [][]Report
		says string
	}{
		{"nobody", func([][]Report) [][]Report { return make([][]Report, 2) }, "no rank reported allreduce of 64 bytes"},
		{"a run is missing", func(r [][]Report) [][]Report { r[1] = r[1][:1]; return r }, "rank 1 did not report allreduce of 128 bytes"},
		{"another size", func(r [][]Report) [][]Report { r[0][1].Bytes = 64; return r }, "rank 0 reported allreduce of 64 bytes"},
		{"another collective", func(r [][]Report) [][]Report { r[0][0].Collective = "reduce"; return r }, "rank 0 reported reduce"},
		{"in place", func(r [][]Report) [][]Report { r[1][0].InPlace = 1; return r }, "in place 1"},
		{"no iterations", func(r [][]Report) [][]Report { r[1][0].Iters = nil; return r }, "rank 1 reported 0 iterations"},
	} {
		if _, err := collect(&s, 2, points, c.bend(good())); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want an error with %q", c.name, err, c.says)
		}
	}
}

func TestAnnotate(t *testing.T) {
	trace := filepath.Join(t.TempDir(), "trace")
	text := `{"event":"program","collective":"allreduce","count":16,"in_place":false,"algorithm":"ring","planner":"","predicted_us":5}
not JSON
{"event":"other","collective":"allreduce","count":16,"algorithm":"wrong"}
{"event":"program","collective":"allreduce","count":16,"in_place":false,"algorithm":"rabenseifner","planner":"swot","predicted_us":7.5}
{"event":"program","collective":"allreduce","count":99,"in_place":true,"algorithm":"swing"}
`
	if err := os.WriteFile(trace, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	results := []Result{
		{Collective: "allreduce", Count: 16}, {Collective: "allreduce", Count: 16, InPlace: true}, {Collective: "reduce", Count: 16},
	}
	if err := annotate(results, trace); err != nil {
		t.Fatal(err)
	}
	if r := results[0]; r.Algorithm != "rabenseifner" || r.Planner != "swot" || r.PredictedUS != 7.5 {
		t.Errorf("out of place: %+v; the last program of the shape is the one that ran", r)
	}
	if r := results[1]; r.Algorithm == "" {
		t.Errorf("in place: %+v; it shares the program of its out-of-place twin", r)
	}
	if r := results[2]; r.Algorithm != "" {
		t.Errorf("another collective: %+v", r)
	}
	if err := annotate(results, filepath.Join(t.TempDir(), "none")); err != nil {
		t.Errorf("no trace: %v", err)
	}
}
