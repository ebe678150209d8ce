package nic_test

import (
	"errors"
	"testing"

	"lightpath/collectives/datatype"
	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/device/devicetest"
	"lightpath/shim/flight"
	"lightpath/shim/path/nic"
	"lightpath/shim/recorder"
	"lightpath/shim/report"
	"lightpath/shim/shimtest"
	"lightpath/shim/stream"
)

// TestGPUDirectReplays checks that each replay of a graph is counted, and is one operation of the flight recorder: from
// the time when its stream reaches it until the stream has left it. The capture is not recorded.
func TestGPUDirectReplays(t *testing.T) {
	g := shimtest.UseGPUDirect(t, 2, 1, 1)
	w := shimtest.NewWorld(t, 2)
	const count = 3000
	graphs := make([]*devicetest.Graph, 2)
	for r, c := range w.Comms {
		at := g.Memory(r, count)
		base := calls.Call{Comm: c, Kind: calls.AllReduce, Type: datatype.Uint8, Count: count, Send: at, Recv: at,
			Stream: g.Streams[r][0]}
		require.NoError(t, shim.Run([]calls.Call{base}))
		send, recv := base, base
		send.Kind, send.Peer, recv.Kind, recv.Peer = calls.Send, int32(1-r), calls.Recv, int32(1-r)
		g.Capture(g.Streams[r][0])
		require.NoError(t, errors.Join(shim.Run([]calls.Call{base}), shim.Run([]calls.Call{send, recv})))
		graphs[r] = g.End(g.Streams[r][0])
	}
	require.NoError(t, errors.Join(g.SynchronizeRank(0), g.SynchronizeRank(1)))
	f := recorder.Of(w.Comms[0])
	if n := f.Snapshot().Counts[calls.AllReduce]; n != 1 {
		t.Errorf("%d calls where one has run", n)
	}
	g.Replay(graphs[0], g.Streams[0][0])
	for !f.Snapshot().Running { // rank 1 has not come
		require.NoError(t, w.Comms[0].AsyncError())
	}
	if op := f.Snapshot().Op; !op.Replay || op.Shape.Kind != calls.AllReduce || op.Shape.Count != count || op.Seq != 0 {
		t.Errorf("in progress: %+v", op)
	}
	if s := report.Self(w.Comms[0]); s.Op == nil || s.Op.Call != "AllReduce" || s.Counts["AllReduce"] != 2 {
		t.Errorf("in progress: %+v", s)
	}
	g.Replay(graphs[1], g.Streams[1][0])
	g.Replay(graphs[0], g.Streams[0][0])
	g.Replay(graphs[1], g.Streams[1][0])
	require.NoError(t, errors.Join(g.SynchronizeRank(0), g.SynchronizeRank(1)))
	for r, c := range w.Comms {
		seen := recorder.Of(c).Snapshot()
		if n := seen.Counts; n[calls.AllReduce] != 3 || n[calls.Send] != 2 || n[calls.Recv] != 2 ||
			seen.Groups != 2 || seen.Running {
			t.Errorf("rank %d: counted %v, %d groups, running %v", r, n, seen.Groups, seen.Running)
		}
		d, err := recorder.Record(c, nil)
		require.NoError(t, err)
		if len(d.Operations) != 5 {
			t.Fatalf("%d operations", len(d.Operations))
		}
		for i, want := range []flight.Operation{
			{Seq: 1, Call: "AllReduce", Bytes: count}, {Call: "AllReduce", Bytes: count},
			{Call: "Send/Recv", Bytes: 2 * count, Detail: "2 messages, in a graph"},
			{Call: "AllReduce", Bytes: count}, {Call: "Send/Recv", Bytes: 2 * count, Detail: "2 messages, in a graph"},
		} {
			o := d.Operations[i]
			if o.Seq != want.Seq || o.Call != want.Call || o.Bytes != want.Bytes || want.Detail != "" &&
				o.Detail != want.Detail || o.Outcome != flight.Completed || o.Ended < o.Arrived {
				t.Errorf("rank %d: operation %d: %+v", r, i, o)
			}
		}
	}
	begins := nic.ReplayBegins(nic.Of(w.Comms[0]))
	for range 2 { // the second time the graph is gone, and its places with it
		stream.Places().Ready(begins)
		if n := f.Snapshot().Counts[calls.Send]; n != 3 {
			t.Errorf("%d sends counted, want 3", n)
		}
		for _, graph := range graphs {
			g.Discard(graph)
		}
	}
	shimtest.DestroyAll(w)
}
