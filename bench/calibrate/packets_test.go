package calibrate

import (
	"math"
	"strings"
	"testing"
	"time"

	"lightpath/bench"
	"lightpath/internal/require"
)

// TestFitPackets: times of the cost model give its costs, whatever the collective and the algorithm.
func TestFitPackets(t *testing.T) {
	const alpha, gbps = 123.0, 1.96
	d := &bench.Document{Ranks: 4}
	for _, c := range []struct {
		collective, algorithm string
		rounds, part          float64 // of the bytes, which the busiest rank sends or receives
	}{
		{"allreduce", "ring", 6, 1.5}, {"allreduce", "rabenseifner", 4, 1.5}, {"alltoall", "pairwise", 1, 0.75},
	} {
		for _, bytes := range []int64{64 << 10, 1 << 20, 16 << 20} {
			us := c.rounds*alpha + 8e-3/gbps*c.part*float64(bytes)
			d.Results = append(d.Results,
				bench.Result{Collective: c.collective, Algorithm: c.algorithm, Bytes: bytes, TimeUS: us})
		}
	}
	got, err := FitPackets(d)
	require.NoError(t, err)
	if math.Abs(got.AlphaUS-alpha) > 1e-6 || math.Abs(got.BandwidthGbps-gbps) > 1e-9 || got.Off > 1e-9 {
		t.Errorf("%+v, want %v us and %v Gb/s", got, alpha, gbps)
	}
	if f := got.Fabric(); f.Alpha != 123*time.Microsecond || f.Bandwidth != 1.96e9 {
		t.Errorf("%v", f)
	}
	d.Results[0].TimeUS *= 1.5 // a disturbed time counts little, and is reported
	if got, err = FitPackets(d); err != nil || math.Abs(got.BandwidthGbps/gbps-1) > 0.01 || got.Off < 0.3 {
		t.Errorf("with a disturbed time: %+v, %v", got, err)
	}
}

func TestFitPacketsRefuses(t *testing.T) {
	result := func(algorithm string, bytes int64, us float64) bench.Result {
		return bench.Result{Collective: "allreduce", Algorithm: algorithm, Bytes: bytes, TimeUS: us}
	}
	for name, c := range map[string]struct {
		results []bench.Result
		says    string
	}{
		"other library": {[]bench.Result{result("", 8, 1), result("", 16, 2)},
			"allreduce of 8 bytes: the library has reported"},
		"one host":  {[]bench.Result{result("shared-memory", 8, 1)}, "LIGHTPATH_TRANSPORT=tcp"},
		"unknown":   {[]bench.Result{result("magic", 8, 1)}, "magic"},
		"one size":  {[]bench.Result{result("ring", 8, 1), result("ring", 8, 2)}, errFit.Error()},
		"no growth": {[]bench.Result{result("ring", 1<<20, 9), result("ring", 1<<24, 9)}, "take no longer"},
	} {
		_, err := FitPackets(&bench.Document{Ranks: 4, Results: c.results})
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want an error with %q", name, err, c.says)
		}
	}
}
