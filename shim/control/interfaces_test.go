package control

import (
	"slices"
	"strings"
	"testing"
)

func TestIfaceAllowed(t *testing.T) {
	for _, k := range []struct {
		name, list string
		want       bool
	}{
		{"eth0", "", true}, {"eth0", "eth", true}, {"eth0", "=eth", false}, {"eth0", "=eth0", true}, {"eth0", "^eth", false},
		{"ib0", "^eth", true}, {"ib0", "eth,ib", true}, {"lo", "eth,ib", false}, {"eth1", "^=eth0", true},
		{"eth0", "^=eth0", false},
	} {
		if got := ifaceAllowed(k.name, k.list); got != k.want {
			t.Errorf("%s in %q: %v", k.name, k.list, got)
		}
	}
}

func TestIfaceOrder(t *testing.T) {
	names := []string{"lo", "eth10", "eth2", "eth1", "ib0", "ibs1"}
	for list, want := range map[string]string{
		"eth": "eth1 eth2 eth10", "=ib0,eth2": "ib0 eth2", "ib,eth2,eth": "ib0 ibs1 eth2 eth1 eth10",
		"=eth": "", "wl": "", "=lo": "lo", "eth1": "eth1 eth10", "=eth1": "eth1",
	} {
		if got := strings.Join(ifaceOrder(slices.Clone(names), list), " "); got != want {
			t.Errorf("%s: %q, want %q", list, got, want)
		}
	}
}
