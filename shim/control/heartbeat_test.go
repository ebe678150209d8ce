package control_test

import (
	"testing"

	"lightpath/shim/errdefs"
	"lightpath/shim/settings"
	"lightpath/shim/shimtest"
)

// TestLongestHeartbeat: the kernel takes every heartbeat that settings allow.
func TestLongestHeartbeat(t *testing.T) {
	t.Parallel()
	cfg := shimtest.Settings(t, "LIGHTPATH_HEARTBEAT", "24h", "LIGHTPATH_TRANSPORT", "tcp")
	shimtest.NewWorldWith(t, 2, cfg).Must(shimtest.CheckSums)
	cfg, err := settings.Of("LIGHTPATH_HEARTBEAT", "100h")
	if err == nil {
		shimtest.NewWorldWith(t, 2, cfg)
	}
	shimtest.WantError(t, err, errdefs.ErrInvalidUsage, "from 2s to 24h")
}
