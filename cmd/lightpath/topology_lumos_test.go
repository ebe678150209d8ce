package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lightpath/internal/require"
	"lightpath/ocsctl/controller/controllertest"
	"lightpath/ocsctl/controller/rpc"
	"lightpath/plans/fabric"
	"lightpath/plans/lumos"
)

const lumosHead = `{"version":1,"fabric":{"pods":4,"k_leaf":4,"k_spine":4,"tau":2,"k_ocs":8},"links":`

// checkSVG fails unless the whole file is XML.
func checkSVG(t *testing.T, path string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(content(t, path)))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
}

func TestLumosSizes(t *testing.T) {
	out := succeed(t, "", "topology", "lumos", "sizes")
	if !strings.Contains(out, "LumosCore(tau=1)  524.29k  131.07k") {
		t.Error(out)
	}
	if out := succeed(t, "", "topology", "lumos", "sizes", "--json"); !strings.Contains(out, `"gpus": 131072`) {
		t.Error(out)
	}
}

func TestLumosWire(t *testing.T) {
	dir := t.TempDir()
	list, svg := filepath.Join(dir, "cables.csv"), filepath.Join(dir, "wire.svg")
	size := []string{"topology", "lumos", "wire", "--pods", "3", "--k-leaf", "4", "--k-spine", "4"}
	succeed(t, "", append(size, "--out", list, "--svg", svg)...)
	checkSVG(t, svg)
	if out := succeed(t, "", append(size, "--check", list)...); !strings.Contains(out, "48 cables, interleaved") {
		t.Error(out)
	}
	text := content(t, list)
	for want, list := range map[string]string{
		"want OCS":                 strings.Replace(text, "0,0,0,egress,0,0,0", "0,0,0,egress,0,1,5", 1),
		"47 cables, want 48":       strings.Replace(text, "0,0,0,egress,0,0,0\n", "", 1),
		"is at the same end of":    text + "0,0,0,egress,0,0,0\n",
		"pod 0 spine 0 port 0 ing": strings.Replace(text, "0,0,0,ingress,0,1,0", "0,0,0,ingress,0,1,6", 1),
	} {
		if o := command(t, list, append(size, "--check", "-")...); o.status != exitNo || !strings.Contains(o.stderr, want) {
			t.Errorf("status %d: %s, want %q", o.status, o.stderr, want)
		}
	}
	refuse(t, text+"0,0,0,sideways,0,0,0\n", []string{"line 50", "direction", "sideways"}, append(size, "--check", "-")...)
	refuse(t, text+"0,0,0,egress,1,0,0\n", []string{"line 50", "group"}, append(size, "--check", "-")...)
	refuse(t, text+"0,0\n", []string{"line 50", "wrong number of fields"}, append(size, "--check", "-")...)
	refuse(t, "", []string{"k_leaf", "7 is odd"}, "topology", "lumos", "wire", "--k-leaf", "7")
}

func TestLumosPlanAndRewire(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	succeed(t, lumosHead+`[[0,2,1],[1,4,2],[3,6,1],[0,5,2]]}`, "topology", "lumos", "plan", "--in", "-", "--out",
		file("core.json"),
		"--fabric", file("f.yaml"), "--ocsd", file("o.yaml"), "--maps", file("maps"), "--svg", file("logical.svg"))
	checkSVG(t, file("logical.svg"))
	if n := strings.Count(content(t, file("logical.svg")), ">pod<"); n != 2*3 {
		t.Errorf("%d axes of three matrices are labelled", n)
	}
	f, err := fabric.Load(file("f.yaml"))
	if err != nil || f.Ranks != 4 || len(f.Planes) != 8 {
		t.Fatalf("%v: %+v", err, f)
	}
	o, _, err := fabric.LoadOCSD(file("o.yaml"))
	if err != nil || len(o.Initial) != 8 || !o.Initial[1].Equal(o.Initial[0].Inverse()) {
		t.Fatalf("%v: %+v", err, o)
	}
	if got, err := readMap(file("maps/g0o0.json"), 4); err != nil || !got.Equal(o.Initial[0]) {
		t.Errorf("%v: %v, want %v", err, got, o.Initial[0])
	}
	out := command(t, lumosHead+`[[0,2,1],[1,4,2],[3,6,1],[1,7,2]]}`, "topology", "lumos", "rewire", "--core",
		file("core.json"), "--in", "-", "--out", file("core2.json"),
		"--steps", file("steps.json"), "--maps", file("steps"), "--svg", file("steps.svg"), "--iota", "0.5")
	if out.status != 0 || !strings.Contains(out.stderr, "2 of 16 links made") {
		t.Fatalf("%d: %s", out.status, out.stderr)
	}
	checkSVG(t, file("steps.svg"))
	if _, steps, err := lumos.DecodeSteps([]byte(content(t, file("steps.json")))); err != nil || len(steps) == 0 {
		t.Errorf("%v: %v", err, steps)
	}
	if _, err := os.Stat(file("steps/step1")); err != nil {
		t.Error(err)
	}
	refuse(t, lumosHead+`[[0,1,1]]}`, []string{"links[0]", "both in pod 0"}, "topology", "lumos", "plan", "--in", "-")
	refuse(t, lumosHead+`[]}`, []string{"iota", "2"}, "topology", "lumos", "rewire", "--core", file("core.json"), "--in",
		"-", "--iota", "2")
	refuse(t, lumosHead+`[]}`, []string{"groups"}, "topology", "lumos", "plan", "--in", "-", "--fabric", file("g.yaml"),
		"--groups", "0,9")
}

// TestOCSRewire carries out a plan and then a change of it on a controller's planes.
func TestOCSRewire(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	head := strings.Replace(lumosHead, `"k_leaf":4`, `"k_leaf":2`, 1) // one group: 4 planes
	dark, err := lumos.NewCore(lumos.Fabric{Pods: 4, KLeaf: 2, KSpine: 4, Tau: 2, KOCS: 8})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file("core.json"), dark.Encode(), 0o600))
	core, address := controllerOf(t, controllertest.NewPanel(4, 4), rpc.ServerOptions{}, "g0o0", "g0o1", "g0o2", "g0o3")
	for _, links := range []string{`[[0,2,1],[1,4,2],[3,6,1]]}`, `[[0,4,2],[2,6,1],[3,7,2]]}`} {
		if o := command(t, head+links, "topology", "lumos", "rewire", "--core", file("core.json"), "--in", "-", "--out",
			file("core.json"), "--steps", file("steps.json"), "--prune"); o.status != 0 {
			t.Fatal(o.stderr)
		}
		if out := succeed(t, "", "ocs", "rewire", "--controller", address, "--steps",
			file("steps.json")); !strings.Contains(out, "step 1 of") {
			t.Error(out)
		}
		c, err := lumos.DecodeCore([]byte(content(t, file("core.json"))))
		require.NoError(t, err)
		s, err := core.Snapshot()
		require.NoError(t, err)
		for k, p := range s.Planes {
			if want := c.Configuration().Map(0, k); !p.Map.Equal(want) || p.Reason != "" {
				t.Errorf("plane %s has %v, want %v; %s", p.Name, p.Map, want, p.Reason)
			}
		}
	}
	_, other := startController(t, controllertest.NewPanel(4, 2), rpc.ServerOptions{})
	refuse(t, "", []string{"step 1", "no plane g0o"}, "ocs", "rewire", "--controller", other, "--steps",
		file("steps.json"))
	refuse(t, "", []string{"--controller is required"}, "ocs", "rewire", "--steps", file("steps.json"))
	refuse(t, `{"version":1}`, []string{"standard input", "k_leaf"}, "ocs", "rewire", "--controller", other, "--steps",
		"-")
}
