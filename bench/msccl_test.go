package bench_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"lightpath/bench"
	"lightpath/bench/benchtest"
	"lightpath/internal/require"
)

// TestBenchMSCCL: algorithms of msccl-tools run between processes, and give right results.
func TestBenchMSCCL(t *testing.T) {
	lightpath := filepath.Join(benchtest.Bin(t), "lightpath")
	for file, collective := range map[string]string{
		"allreduce-hierarchical-2x2": "allreduce", "alltoall-allpairs-3-2inst": "alltoall", "allgather-pcie-4": "allgather",
		"reducescatter-ring-4": "reducescatter",
	} {
		path, err := filepath.Abs("../collectives/schedule/msccl/testdata/" + file + ".xml")
		require.NoError(t, err)
		ranks := "4"
		if collective == "alltoall" {
			ranks = "3"
		}
		text := start(t, t.TempDir(), lightpath, "bench", collective, "-n", ranks, "-b", "3K", "-e", "3M", "-f", "32", "-i",
			"1", "-w", "0",
			"--transport", "shm", "--algorithm", "msccl:"+path, "--json", "-")
		var doc bench.Document
		require.NoError(t, json.Unmarshal([]byte(text), &doc))
		if len(doc.Results) < 2 {
			t.Errorf("%s: %d results", file, len(doc.Results))
		}
		for _, r := range doc.Results {
			if r.Wrong == nil || *r.Wrong != 0 || !strings.HasPrefix(r.Algorithm, "msccl:") {
				t.Errorf("%s: %+v", file, r)
			}
		}
	}
}
