package bench

import (
	"strings"
	"testing"

	"lightpath/shim/status"
)

// TestSummary: the first line names the rank at fault, whichever rank has reported first, and equal errors of many
// ranks take one line.
func TestSummary(t *testing.T) {
	const lost = "ocs: plane 0 epoch 167: rank of port 7 disconnected"
	met := func(rank string) string {
		return "allreduce: exec: rank " + rank + " plane 0 epoch 168 operation 9: " + lost
	}
	long := "ocs: " + strings.Repeat("a circuit without light, ", 20) + "end"
	for _, c := range []struct {
		errs []rankError
		want string
	}{
		{[]rankError{{1, said, "ocs: plane 1 is down"}}, "rank 1: ocs: plane 1 is down"},
		{
			[]rankError{
				{6, said, met("6")}, {0, said, met("0")}, {7, died, "signal: killed"},
				{1, said, met("0") + status.ReportedByPeer}, {2, stopped, "did not end; stopped"},
			},
			"rank 7: signal: killed\n" +
				"  ranks 0-1, 6: allreduce: exec: plane 0 epoch 168 operation 9: " + lost + "\n" +
				"  rank 2: did not end; stopped",
		},
		{
			[]rankError{{3, said, "init: rank 3: no RDMA"}, {13, said, "init: rank 13: no RDMA"}}, "ranks 3, 13: init: no RDMA",
		},
		{ // one rank met it, the others repeat it: its place stays
			[]rankError{{3, said, met("3")}, {0, said, met("3") + status.ReportedByPeer}}, "ranks 0, 3: " + met("3"),
		},
		{
			[]rankError{{0, died, "exit status 2: panic: index\ngoroutine 1"}},
			"rank 0: exit status 2: panic: index\n  rank 0: exit status 2: panic: index\n    goroutine 1",
		},
		{[]rankError{{0, said, long}}, ("rank 0: " + long)[:maxReason-3] + "...\n  rank 0: " + long},
	} {
		if got := summary(c.errs); got != c.want {
			t.Errorf("%s\nwant\n%s", got, c.want)
		}
	}
}
