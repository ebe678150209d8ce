package netplugin

import (
	"errors"
	"reflect"
	"testing"

	"lightpath/collectives/transport"
)

func TestFiles(t *testing.T) {
	for setting, want := range map[string][][]string{
		"":                {{"libnccl-net.so"}},
		"none":            nil,
		"ofi":             {{"ofi", "libnccl-net-ofi.so"}},
		"libnccl-net.so":  {{"libnccl-net.so"}},
		"a/b,, lib,c.so,": {{"a/b"}, {" lib", "libnccl-net- lib.so"}, {"c.so", "libnccl-net-c.so.so"}},
	} {
		if got := Files(setting); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %q, want %q", setting, got, want)
		}
	}
}

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
