package netplugin

import (
	"errors"
	"testing"

	"lightpath/collectives/transport"
)

// TestCallError: only a failure of a message means a lost peer.
func TestCallError(t *testing.T) {
	for e, lost := range map[CallError]bool{
		{"P", "isend", 6}: true, {"P", "test", 2}: true, {"P", "irecv", 3}: false, {"P", "connect", 6}: false,
		{"P", "test", 99}: false,
	} {
		if errors.Is(&e, transport.ErrPeerLost) != lost || errors.Is(&e, ErrPlugin) == lost {
			t.Errorf("%v: lost %t", &e, !lost)
		}
	}
}
