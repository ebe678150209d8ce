package topology

import (
	"strings"
	"testing"
)

func TestDistance(t *testing.T) {
	at := func(way string, node int) function {
		f := function{node: node}
		parts := strings.Fields(way)
		f.root, f.chain = parts[0], parts[1:]
		return f
	}
	for _, c := range []struct {
		what  string
		a, b  function
		nodes int
		want  Distance
	}{
		{"ports of one adapter", at("pci0000:00 0000:00:03.0", 0), at("pci0000:00 0000:00:03.1", 0), 1, PIX},
		{"ports of one adapter below a root port", at("pci0000:00 0000:00:01.0 0000:01:00.0", 0),
			at("pci0000:00 0000:00:01.0 0000:01:00.1", 0), 1, PIX},
		{"one switch", at("p 0000:00:01.0 0000:01:00.0 0000:02:00.0 0000:03:00.0", 0),
			at("p 0000:00:01.0 0000:01:00.0 0000:02:01.0 0000:04:00.0", 0), 2, PIX},
		{"a switch below a switch", at("p 0000:00:01.0 0000:01:00.0 0000:02:00.0 0000:03:00.0 0000:04:00.0 0000:05:00.0", 0),
			at("p 0000:00:01.0 0000:01:00.0 0000:02:01.0 0000:06:00.0", 0), 2, PXB},
		{"two root ports", at("p 0000:00:01.0 0000:01:00.0", 0), at("p 0000:00:02.0 0000:02:00.0", 0), 2, PHB},
		{"two devices on the root bus", at("p 0000:00:01.0", 0), at("p 0000:00:02.0", 0), 2, PHB},
		{"two host bridges", at("p 0000:00:01.0", 1), at("q 0000:40:01.0", 1), 2, NODE},
		{"two nodes", at("p 0000:00:01.0", 0), at("q 0000:40:01.0", 1), 2, SYS},
		{"unknown nodes", at("p 0000:00:01.0", Unknown), at("q 0000:40:01.0", Unknown), 2, SYS},
		{"unknown nodes where there is one", at("p 0000:00:01.0", Unknown), at("q 0000:40:01.0", Unknown), 1, NODE},
		{"not listed", function{}, at("q 0000:40:01.0", 0), 1, Unplaced},
	} {
		for _, pair := range [][2]function{{c.a, c.b}, {c.b, c.a}} {
			if got := distance(pair[0], pair[1], c.nodes); got != c.want {
				t.Errorf("%s: %s, want %s", c.what, got, c.want)
			}
		}
	}
	if !PIX.nearer(SYS) || SYS.nearer(Unplaced) == false || PHB.far() || !NODE.far() {
		t.Error("the distances are out of order")
	}
}

func TestAddresses(t *testing.T) {
	for text, want := range map[string]bool{
		"0000:3b:00.0": true, "10000:e1:00.0": true, "pci0000:00": false, "virtio2": false, "0000:3b:00": false,
		"0000:3g:00.0": false, "": false,
		"000:3b:00.0": false, "0000:3b:00.00": false,
	} {
		if isPCI(text) != want {
			t.Errorf("isPCI(%q) is %t", text, !want)
		}
	}
	for text, want := range map[string]string{"00000000:0F:00.0": "0000:0f:00.0", "00010000:E1:1F.7": "10000:e1:1f.7",
		"0000:0f:00.0": "0000:0f:00.0", "?": "?"} {
		if got := normalPCI(text); got != want {
			t.Errorf("normalPCI(%q) is %q, want %q", text, got, want)
		}
	}
}
