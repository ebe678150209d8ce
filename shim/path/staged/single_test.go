package staged_test

import (
	"errors"
	"testing"

	"lightpath/collectives/datatype"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/shimtest"
)

// TestSingleMessage checks that a rank's only message of a group follows the group's collectives, as the messages of
// ranks with several do.
func TestSingleMessage(t *testing.T) {
	const count = 100000 // more than a piece
	t.Setenv("LIGHTPATH_STAGING", "64K")
	t.Setenv("LIGHTPATH_TIMEOUT", "20s")
	g := shimtest.UseGPUs(t, 3, 1)
	w := shimtest.NewWorld(t, 3)
	w.Must(func(c *shim.Comm) error {
		at, s := g.Memory(c.Rank, count), g.Streams[c.Rank][0]
		sum := calls.Call{Comm: c, Kind: calls.AllReduce, Type: datatype.Uint8, Count: count, Send: at, Recv: at, Stream: s}
		message := calls.Call{Comm: c, Kind: calls.Recv, Type: datatype.Uint8, Count: 1, Recv: g.Memory(c.Rank, 1), Stream: s}
		group := []calls.Call{message, sum}
		if c.Rank == 0 {
			message.Kind, message.Send, message.Recv, message.Peer = calls.Send, message.Recv, nil, 1
			group[0] = message
			message.Peer = 2
			group = append(group, message)
		}
		return errors.Join(shim.Run(group), g.SynchronizeRank(c.Rank), c.AsyncError())
	})
}
