package membership_test

import (
	"testing"

	"lightpath/internal/assert"
	"lightpath/shim"
	"lightpath/shim/errdefs"
	"lightpath/shim/membership"
	"lightpath/shim/shimtest"
)

// TestUnmadeParent: a communicator whose making has failed says why, and no communicator comes from it.
func TestUnmadeParent(t *testing.T) {
	t.Parallel()
	for _, k := range []struct {
		ends string
		end  func(c *shim.Comm) error
		is   error
	}{
		{"revoked", (*shim.Comm).Revoke, errdefs.ErrRevoked},
		{"failed", func(c *shim.Comm) error { return c.Fail(errdefs.ErrRemote) }, errdefs.ErrRemote},
	} {
		t.Run(k.ends, func(t *testing.T) {
			t.Parallel()
			parent := lonely(t, nil)
			_ = k.end(parent)
			shimtest.WantError(t, finished(t, parent), k.is)
			for _, o := range []membership.Origin{
				{How: membership.BySplit}, {How: membership.ByGrow, Ranks: 3},
				{How: membership.ByShrink, Exclude: []int{1}}, {How: membership.ByShrink, Exclude: []int{1}, Abort: true},
			} {
				o.Parent = parent
				_, err := shim.Init([]shim.InitArgs{{From: &o, NonBlocking: true}})
				shimtest.WantError(t, err, k.is)
			}
			assert.NoError(t, parent.Destroy())
		})
	}
}
