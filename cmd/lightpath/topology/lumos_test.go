package topology

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lightpath/cmd/lightpath/cli"
	"lightpath/cmd/lightpath/cli/clitest"
	"lightpath/plans/circuit"
	"lightpath/plans/fabric"
	"lightpath/plans/lumos"
)

const lumosHead = `{"version":1,"fabric":{"pods":4,"k_leaf":4,"k_spine":4,"tau":2,"k_ocs":8},"links":`

// checkSVG fails unless the whole file is XML.
func checkSVG(t *testing.T, path string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(clitest.Content(t, path)))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
}

func TestLumosSizes(t *testing.T) {
	out := lightpath.Succeed(t, "", "topology", "lumos", "sizes")
	if !strings.Contains(out, "LumosCore(tau=1)  524.29k  131.07k") {
		t.Error(out)
	}
	if out := lightpath.Succeed(t, "", "topology", "lumos", "sizes", "--json"); !strings.Contains(out, `"gpus": 131072`) {
		t.Error(out)
	}
}

func TestLumosWire(t *testing.T) {
	dir := t.TempDir()
	list, svg := filepath.Join(dir, "cables.csv"), filepath.Join(dir, "wire.svg")
	size := []string{"topology", "lumos", "wire", "--pods", "3", "--k-leaf", "4", "--k-spine", "4"}
	lightpath.Succeed(t, "", append(size, "--out", list, "--svg", svg)...)
	checkSVG(t, svg)
	if out := lightpath.Succeed(t, "", append(size, "--check", list)...); !strings.Contains(out,
		"48 cables, interleaved") {
		t.Error(out)
	}
	text := clitest.Content(t, list)
	for want, list := range map[string]string{
		"want OCS":                 strings.Replace(text, "0,0,0,egress,0,0,0", "0,0,0,egress,0,1,5", 1),
		"47 cables, want 48":       strings.Replace(text, "0,0,0,egress,0,0,0\n", "", 1),
		"is at the same end of":    text + "0,0,0,egress,0,0,0\n",
		"pod 0 spine 0 port 0 ing": strings.Replace(text, "0,0,0,ingress,0,1,0", "0,0,0,ingress,0,1,6", 1),
	} {
		if o := lightpath.Run(t, list, append(size, "--check", "-")...); o.Status != cli.ExitNo ||
			!strings.Contains(o.Stderr, want) {
			t.Errorf("status %d: %s, want %q", o.Status, o.Stderr, want)
		}
	}
	lightpath.Refuse(t, text+"0,0,0,sideways,0,0,0\n", []string{"line 50", "direction", "sideways"}, append(size,
		"--check", "-")...)
	lightpath.Refuse(t, text+"0,0,0,egress,1,0,0\n", []string{"line 50", "group"}, append(size, "--check", "-")...)
	lightpath.Refuse(t, text+"0,0\n", []string{"line 50", "wrong number of fields"}, append(size, "--check", "-")...)
	lightpath.Refuse(t, "", []string{"k_leaf", "7 is odd"}, "topology", "lumos", "wire", "--k-leaf", "7")
}

func TestLumosPlanAndRewire(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	lightpath.Succeed(t, lumosHead+`[[0,2,1],[1,4,2],[3,6,1],[0,5,2]]}`, "topology", "lumos", "plan", "--in", "-", "--out",
		file("core.json"),
		"--fabric", file("f.yaml"), "--ocsd", file("o.yaml"), "--maps", file("maps"), "--svg", file("logical.svg"))
	checkSVG(t, file("logical.svg"))
	if n := strings.Count(clitest.Content(t, file("logical.svg")), ">pod<"); n != 2*3 {
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
	var got circuit.Permutation
	if err := json.Unmarshal([]byte(clitest.Content(t, file("maps/g0o0.json"))), &got); err != nil ||
		!got.Equal(o.Initial[0]) {
		t.Errorf("%v: %v, want %v", err, got, o.Initial[0])
	}
	out := lightpath.Run(t, lumosHead+`[[0,2,1],[1,4,2],[3,6,1],[1,7,2]]}`, "topology", "lumos", "rewire", "--core",
		file("core.json"), "--in", "-", "--out", file("core2.json"),
		"--steps", file("steps.json"), "--maps", file("steps"), "--svg", file("steps.svg"), "--iota", "0.5")
	if out.Status != 0 || !strings.Contains(out.Stderr, "2 of 16 links made") {
		t.Fatalf("%d: %s", out.Status, out.Stderr)
	}
	checkSVG(t, file("steps.svg"))
	if _, steps, err := lumos.DecodeSteps([]byte(clitest.Content(t, file("steps.json")))); err != nil || len(steps) == 0 {
		t.Errorf("%v: %v", err, steps)
	}
	if _, err := os.Stat(file("steps/step1")); err != nil {
		t.Error(err)
	}
	lightpath.Refuse(t, lumosHead+`[[0,1,1]]}`, []string{"links[0]", "both in pod 0"}, "topology", "lumos", "plan",
		"--in", "-")
	lightpath.Refuse(t, lumosHead+`[]}`, []string{"iota", "2"}, "topology", "lumos", "rewire", "--core",
		file("core.json"), "--in",
		"-", "--iota", "2")
	lightpath.Refuse(t, lumosHead+`[]}`, []string{"groups"}, "topology", "lumos", "plan", "--in", "-", "--fabric",
		file("g.yaml"),
		"--groups", "0,9")
}

// TestPlace checks the order of a job's nodes, the topology that Slurm gets, and that plan takes the links.
func TestPlace(t *testing.T) {
	dir := t.TempDir()
	hosts, topology := filepath.Join(dir, "hosts"), filepath.Join(dir, "topology.conf")
	lightpath.Succeed(t, "", "topology", "lumos", "place", "--gpus", "512", "--pp", "1", "--dp", "2", "--busy", "3",
		"--hostfile", hosts, "--slurm-topology", topology, "--node", "n%d")
	if got := clitest.Content(t, hosts); got != "n3\nn4\n" {
		t.Errorf("hosts: %q", got)
	}
	got := clitest.Content(t, topology)
	for _, want := range []string{"SwitchName=leaf63 Nodes=n63\n", "SwitchName=pod1 Switches=leaf[8-15]\n",
		"SwitchName=core Switches=pod[0-7]\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
	required := lightpath.Succeed(t, "", "topology", "lumos", "place", "--busy", "5", "--requirement", "-", "--json",
		filepath.Join(dir, "place.json"))
	planned := lightpath.Run(t, required, "topology", "lumos", "plan", "--in", "-",
		"--out", filepath.Join(dir, "core.json"))
	if want := "512 GPUs in 8 pods, 64 leaves: 40 links"; !strings.Contains(planned.Stderr, want) {
		t.Errorf("%s: want %q", planned.Stderr, want)
	}
	lightpath.Refuse(t, "", []string{"--node", "one %d"}, "topology", "lumos", "place", "--hostfile", hosts, "--node", "n")
}
