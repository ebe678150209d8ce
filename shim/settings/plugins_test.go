package settings

import (
	"reflect"
	"testing"
)

func TestPluginFiles(t *testing.T) {
	for setting, want := range map[string][][]string{
		"":                {{"libnccl-net.so"}},
		"none":            nil,
		"ofi":             {{"ofi", "libnccl-net-ofi.so"}},
		"libnccl-net.so":  {{"libnccl-net.so"}},
		"a/b,, lib,c.so,": {{"a/b"}, {" lib", "libnccl-net- lib.so"}, {"c.so", "libnccl-net-c.so.so"}},
	} {
		if got := PluginFiles("net", setting); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %q, want %q", setting, got, want)
		}
	}
}
