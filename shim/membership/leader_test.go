package membership_test

import (
	"testing"

	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/control"
	"lightpath/shim/membership"
	"lightpath/shim/shimtest"
)

// TestLaterRequestFails: a request that fails takes none of an earlier number with it. Those of a rank that does not
// block may come in any order.
func TestLaterRequestFails(t *testing.T) {
	w := shimtest.NewWorld(t, 2)
	for rank, how := range []membership.How{membership.BySplit, membership.ByGrow} {
		m := &control.Message{Kind: control.MsgMembership, Seq: 2, Arg: uint64(how), Body: []byte("{}")}
		require.NoError(t, w.Comms[rank].Star.ToLeader(m))
	}
	_, errs := w.InitFrom(func(c *shim.Comm) membership.Origin {
		return membership.Origin{Parent: c, How: membership.BySplit}
	})
	shimtest.NoErrors(t, errs)
}
