package exchange

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"lightpath/bench/benchtest"
	"lightpath/internal/require"
	"lightpath/plans/fabric"
)

// installed returns options that use what make built, or skips.
func installed(t *testing.T) *Options {
	t.Helper()
	bin := benchtest.Bin(t)
	return &Options{
		Lightpath: filepath.Join(bin, "lightpath"), Worker: filepath.Join(bin, "lightpath-rank"),
		Ranks: 3, Planes: 2, Rate: fabric.Rate(100e6), Reconfig: time.Millisecond, Bytes: 100000, Rounds: 1, Iters: 2,
		Progress: func(string, ...any) {},
	}
}

func skewed(i int) [][]float64 {
	return [][]float64{{9, 1, float64(5 + i)}, {0, 0, 3}, {7, 0, 2}}
}

// TestRun checks that every byte arrives by circuits, in both orders, whether matrices repeat or not.
func TestRun(t *testing.T) {
	o := installed(t)
	o.Matrices = []Matrix{{Name: "same", Demand: func(int) [][]float64 { return skewed(0) }},
		{Name: "fresh", Demand: skewed, Fresh: true}}
	results, err := Run(t.Context(), o)
	require.NoError(t, err)
	if len(results) != 4 {
		t.Fatalf("%d results", len(results))
	}
	var table strings.Builder
	WriteTable(&table, o, results)
	for _, r := range results {
		if r.Wrong > 0 || r.BoundUS <= 0 || r.PredictedUS <= 0 || len(r.times) != 2 {
			t.Errorf("%+v", r)
		}
		// No exchange is faster than the transmissions of the busiest port over all planes, without reconfigurations.
		if least := float64(r.BusiestPort) * 8 / 200; r.MinUS < 0.95*least {
			t.Errorf("%s, %s: %v us, but its port needs %v", r.Matrix, r.Order, r.MinUS, least)
		}
		if !strings.Contains(table.String(), r.Matrix) {
			t.Errorf("not in the table:\n%s", &table)
		}
	}
}

func TestCounts(t *testing.T) {
	o := &Options{Bytes: 4000, Iters: 3}
	m := Matrix{Demand: skewed}
	got, busiest := o.counts(&m)
	want := [][][]int64{{{0, 125, 625}, {0, 0, 375}, {875, 0, 0}}}
	if !reflect.DeepEqual(got, want) || busiest != 4000 {
		t.Errorf("%v with %d bytes", got, busiest)
	}
	m.Fresh = true
	if got, _ = o.counts(&m); len(got) != 3 || reflect.DeepEqual(got[0], got[1]) {
		t.Errorf("fresh: %v", got)
	}
	if text := string(matrixText(want[0])); text != "0 125 625 \n0 0 375 \n875 0 0 \n" {
		t.Errorf("%q", text)
	}
}

func TestPredict(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace")
	text := `{"event":"program","rank":0,"collective":"allreduce","predicted_us":7}
{"event":"program","rank":1,"collective":"alltoallv","predicted_us":8}
{"event":"program","rank":0,"collective":"alltoallv","predicted_us":9}
{"event":"program","rank":0,"collective":"alltoallv","predicted_us":10}
`
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	for _, c := range []struct {
		path      string
		exchanges int
		fresh     bool
		want      []float64
		says      string
	}{
		{path, 1, false, []float64{10}, ""},
		{path, 2, true, []float64{9, 10}, ""},
		{path, 1, true, nil, "1 matrices, but 2 plans"},
		{path, 3, true, nil, "2 of 3 matrices used circuits"},
		{path + "-none", 1, false, nil, "0 of 1 matrices used circuits"},
	} {
		r := &Result{}
		err := r.predict(c.path, c.exchanges, c.fresh)
		if !slices.Equal(r.predicted, c.want) || (c.says == "") != (err == nil) || err != nil && err.Error() != c.says {
			t.Errorf("%+v: %v, %v", c, r.predicted, err)
		}
	}
}
