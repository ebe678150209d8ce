package recorder

import (
	"slices"
	"testing"

	"lightpath/collectives/datatype"
	"lightpath/shim/calls"
	"lightpath/shim/dispatch"
	"lightpath/shim/status"
)

// TestTotals checks sizes, factors, algorithms and times of the sums, and which operations are in none.
func TestTotals(t *testing.T) {
	var f Recorder
	f.setUp(1)
	f.Measure(4)
	ring, tree := &dispatch.Entry{Algorithm: "ring"}, &dispatch.Entry{Algorithm: "tree"}
	collective := func(kind calls.Kind, count uint64, e *dispatch.Entry, arrived, ended int64) Operation {
		return Operation{Seq: 1, Shape: calls.Shape{Kind: kind, Type: datatype.Float32, Count: count}, Entry: e,
			Arrived: arrived, Ended: ended}
	}
	oneSided := Operation{Shape: calls.Shape{Kind: calls.PutSignal, Count: 3}, Bytes: 12, Arrived: 700, Ended: 710}
	for _, op := range []Operation{
		collective(calls.AllReduce, 4, ring, 100, 200), // 16 bytes
		collective(calls.AllReduce, 4, ring, 150, 210), // waits for the one before until 200
		collective(calls.AllReduce, 4, tree, 160, 205), // ends before it: no time of its own
		collective(calls.AllReduce, 5, ring, 300, 400), // the next class
		collective(calls.AllGather, 4, ring, 400, 440), // 16 bytes of each rank
		{Messages: 2, Bytes: 10, Arrived: 500, Ended: 600},
		oneSided,
		collective(calls.AllReduce, 4, ring, 0, 0),   // no times
		collective(calls.AllReduce, 4, ring, 800, 0), // put into a graph
	} {
		f.end(&op, Completed, op.Ended)
	}
	failed := collective(calls.AllReduce, 4, ring, 900, 950)
	f.end(&failed, Failed, failed.Ended)
	want := []status.Total{
		{Call: "AllReduce", Size: 16, Algorithm: "ring", Count: 2, Bytes: 32, BusBytes: 48, Seconds: 110e-9,
			AlgBW: 32. / 110, BusBW: 48. / 110},
		{Call: "AllReduce", Size: 16, Algorithm: "tree", Count: 1, Bytes: 16, BusBytes: 24},
		{Call: "AllReduce", Size: 64, Algorithm: "ring", Count: 1, Bytes: 20, BusBytes: 30, Seconds: 100e-9,
			AlgBW: 0.2, BusBW: 0.3},
		{Call: "AllGather", Size: 64, Algorithm: "ring", Count: 1, Bytes: 64, BusBytes: 48, Seconds: 40e-9,
			AlgBW: 1.6, BusBW: 1.2},
		{Call: "Send/Recv", Size: 16, Count: 1, Bytes: 10, BusBytes: 10, Seconds: 100e-9, AlgBW: 0.1, BusBW: 0.1},
		{Call: "PutSignal", Size: 16, Count: 1, Bytes: 12, BusBytes: 12, Seconds: 10e-9, AlgBW: 1.2, BusBW: 1.2},
	}
	if got := f.Totals(); !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// TestTotalsAllocateNothing once there is a sum for the shape.
func TestTotalsAllocateNothing(t *testing.T) {
	var f Recorder
	f.setUp(256)
	if f.Totals() != nil {
		t.Error("totals without Measure")
	}
	f.Measure(8)
	s, e := calls.Shape{Kind: calls.AllReduce, Count: 9}, &dispatch.Entry{Algorithm: "ring"}
	seq := uint64(0)
	if n := testing.AllocsPerRun(1000, func() { seq++; f.End(f.Add(seq, &s, e), Completed) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if all := f.Totals(); len(all) != 1 || all[0].Count != seq {
		t.Errorf("%+v of %d operations", all, seq)
	}
}
