package peer_test

import (
	"errors"
	"slices"
	"testing"

	"lightpath/collectives/datatype"
	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/device/devicetest"
	"lightpath/shim/flight"
	"lightpath/shim/recorder"
	"lightpath/shim/shimtest"
)

// TestDirectReplays checks that each replay of a graph is counted, also with one rank. The flight recorder has its
// operations, which are in progress during their launch. It does not count the capture.
func TestDirectReplays(t *testing.T) {
	for _, n := range []int{1, 2} {
		g := shimtest.UsePeers(t, n, 1)
		w := shimtest.NewWorld(t, n)
		const count = 3000
		graphs := make([]*devicetest.Graph, n)
		for r, c := range w.Comms {
			at := g.Memory(r, count)
			base := calls.Call{Comm: c, Kind: calls.AllReduce, Type: datatype.Uint8, Count: count, Send: at, Recv: at,
				Stream: g.Streams[r][0]}
			require.NoError(t, shim.Run([]calls.Call{base}))
			send, recv := base, base
			send.Kind, send.Peer, recv.Kind, recv.Peer = calls.Send, int32(n-1-r), calls.Recv, int32(n-1-r)
			g.Capture(g.Streams[r][0])
			require.NoError(t, errors.Join(shim.Run([]calls.Call{base}), shim.Run([]calls.Call{send, recv})))
			graphs[r] = g.End(g.Streams[r][0])
		}
		all := func() error {
			var errs []error
			for r := range n {
				errs = append(errs, g.SynchronizeRank(r))
			}
			return errors.Join(errs...)
		}
		require.NoError(t, all())
		f := recorder.Of(w.Comms[0])
		if got := f.Snapshot().Counts; got[calls.AllReduce] != 1 || got[calls.Send] != 0 {
			t.Errorf("counted %v where one AllReduce has run", got)
		}
		g.Replay(graphs[0], g.Streams[0][0])
		for n > 1 && !f.Snapshot().Running { // rank 1 has not come
			require.NoError(t, w.Comms[0].AsyncError())
		}
		if n > 1 {
			if op := f.Snapshot().Op; !op.Replay || op.Shape.Kind != calls.AllReduce || op.Shape.Count != count || op.Seq != 0 {
				t.Errorf("in progress: %+v", op)
			}
			g.Replay(graphs[1], g.Streams[1][0])
		}
		for range 2 {
			for r := range n {
				g.Replay(graphs[r], g.Streams[r][0])
			}
		}
		require.NoError(t, all())
		for r, c := range w.Comms {
			seen := recorder.Of(c).Snapshot()
			if got := seen.Counts; got[calls.AllReduce] != 4 || got[calls.Send] != 3 || got[calls.Recv] != 3 ||
				seen.Groups != 3 || seen.Running {
				t.Errorf("%d ranks, rank %d: counted %v, %d groups, running %v", n, r, got, seen.Groups, seen.Running)
			}
			checkReplays(t, c, 3)
		}
		for _, graph := range graphs {
			g.Discard(graph)
		}
		shimtest.DestroyAll(w)
	}
}

// checkReplays expects replays of an AllReduce and of two messages in the dump, all completed.
func checkReplays(t *testing.T, c *shim.Comm, replays int) {
	t.Helper()
	d, err := recorder.Record(c, nil)
	require.NoError(t, err)
	ops := slices.DeleteFunc(d.Operations, func(o flight.Operation) bool { return o.Seq != 0 })
	if len(ops) != 2*replays {
		t.Fatalf("%d operations of replays", len(ops))
	}
	for i, o := range ops {
		want := [2]string{"AllReduce", "Send/Recv"}[i%2]
		if o.Call != want || o.Outcome != flight.Completed || o.Ended < o.Arrived || o.Arrived == 0 {
			t.Errorf("operation %d: %+v", i, o)
		}
	}
}
