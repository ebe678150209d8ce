package job

import (
	"errors"
	"strings"
	"testing"

	"lightpath/internal/require"
	"lightpath/plans/iteration/learn"
	"lightpath/plans/iteration/trace"
	"lightpath/shim/flight"
)

// dump is the recorder of a rank that made three calls per iteration, 4 iterations.
func dump(comm string, ranks, rank, pid int, calls ...string) *flight.Dump {
	d := &flight.Dump{Version: 1, Comm: comm, Ranks: ranks, Rank: rank, Host: "h", PID: pid, Time: 5000, UnixTime: 1e9}
	at := int64(1000)
	for k := range 4 {
		for i, c := range calls {
			detail := c + "(count 10, type float)"
			if c == "Broadcast" {
				detail = "Broadcast(count 10, type float, root 1)"
			}
			d.Operations = append(d.Operations, flight.Operation{Number: uint64(k*len(calls) + i + 1), Seq: 1, Call: c,
				Detail: detail, Bytes: 40, Algorithm: "ring", Outcome: flight.Completed, Arrived: at, Ended: at + 10_000})
			at += 10_000 + int64(1+i)*20_000
		}
		at += 500_000
	}
	return d
}

func TestFind(t *testing.T) {
	world := []string{"AllGather", "Broadcast"}
	var dumps []*flight.Dump
	for r := range 4 {
		dumps = append(dumps, dump("world", 4, r, 100+r, world...))
	}
	for r := range 4 { // two pairs: 0 and 2, 1 and 3
		dumps = append(dumps, dump([]string{"even", "odd"}[r%2], 2, r/2, 100+r, "AllReduce"))
	}
	dumps[0].Operations = append(dumps[0].Operations[:1:1],
		append([]flight.Operation{{Number: 9, Call: "Group", Outcome: flight.Completed}}, dumps[0].Operations[1:]...)...)
	found, err := Find(dumps)
	require.NoError(t, err)
	if found.Omitted != 1 || found.Repeats() < 3 {
		t.Errorf("%+v", found)
	}
	tr := found.Trace
	if tr.Ranks != 4 || len(tr.Communicators) != 2 || len(tr.Communicators[1].Groups) != 2 ||
		tr.Communicators[1].Groups[1][1] != 3 {
		t.Errorf("%s", tr.Encode())
	}
	kinds := map[string]trace.Call{}
	for _, c := range tr.Calls {
		kinds[c.Collective] = c
	}
	if kinds["allgather"].Bytes != 160 || kinds["allreduce"].Bytes != 40 || kinds["broadcast"].Root != 1 {
		t.Errorf("%s", tr.Encode())
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct {
		dumps []*flight.Dump
		says  string
	}{
		{nil, "there are none"},
		{[]*flight.Dump{dump("w", 4, 0, 1, "AllReduce"), dump("w", 2, 1, 2, "AllReduce")}, "has 4 ranks"},
		{[]*flight.Dump{dump("w", 4, 0, 1, "AllReduce"), dump("p", 2, 0, 1, "AllReduce")}, "the dump of rank 1 is missing"},
		{[]*flight.Dump{dump("w", 4, 0, 1, "AllReduce"), dump("p", 2, 0, 1, "AllReduce"), dump("p", 2, 1, 7, "AllReduce")},
			"has no dump of communicator w"},
	} {
		if _, err := Find(c.dumps); !errors.Is(err, ErrDumps) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v, want %q", err, c.says)
		}
	}
	one := dump("w", 2, 0, 1, "AllReduce")
	one.Operations = one.Operations[:1]
	if _, err := Find([]*flight.Dump{one}); !errors.Is(err, learn.ErrNoPeriod) {
		t.Error(err)
	}
}
