package shim

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"lightpath/collectives/datatype"
	"lightpath/ocsctl/emulator"
	"lightpath/plans"
	"lightpath/plans/fabric"
	"lightpath/shim/calls"
	"lightpath/shim/path/optical"
)

// lightFabric starts a switch and points the environment at a fabric of it.
func lightFabric(t testing.TB, ranks, planes int, edit func(*fabric.Fabric)) *emulator.Server {
	t.Helper()
	dir := t.TempDir()
	f := &fabric.Fabric{
		Version: fabric.Version, Name: "test", Ranks: ranks, Circuits: plans.Simplex, Forwarding: true,
		OCS: []fabric.OCS{{Name: "ocs0", Driver: fabric.DriverEmulator, Endpoint: "unix:" + filepath.Join(dir, "ocs.sock"), Reconfig: 200 * time.Microsecond}},
	}
	for p := range planes {
		f.Planes = append(f.Planes, fabric.Plane{Name: fmt.Sprintf("p%d", p), Bandwidth: 2e9, OCS: "ocs0"})
	}
	if edit != nil {
		edit(f)
	}
	config := emulator.Config{Socket: filepath.Join(dir, "ocs.sock"), Ports: ranks, FrameLog: filepath.Join(dir, "frames.log")}
	for _, p := range f.Planes {
		config.Planes = append(config.Planes, emulator.PlaneConfig{Name: p.Name, BandwidthBitsPerSec: float64(p.Bandwidth), Reconfig: f.OCS[0].Reconfig, PinnedBy: f.PinnedBy})
	}
	server, err := emulator.Start(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Errorf("switch: %v", err)
		}
	})
	path := filepath.Join(dir, "fabric.yaml")
	if err := os.WriteFile(path, f.Encode(), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("LIGHTPATH_FABRIC", path)
	t.Setenv("LIGHTPATH_TIMEOUT", "50s")
	return server
}

// TestOpticalOracle runs every collective on circuits, under each planner; those that a
// planner has no plan for run on packet planes, by everyone's decision.
func TestOpticalOracle(t *testing.T) {
	for _, c := range []struct {
		n       int
		planner string
		wait    string
		initial string
	}{
		{4, "swot", "1", "free"}, {4, "perstep", "1", "current"}, {4, "static", "1", "free"},
		{4, "harvest", "1", "current"}, {4, "auto", "0", "free"}, {3, "auto", "1", "free"}, {2, "auto", "0", "current"},
	} {
		t.Run(fmt.Sprintf("%d/%s/wait=%s/%s", c.n, c.planner, c.wait, c.initial), func(t *testing.T) {
			server := lightFabric(t, c.n, 2, nil)
			t.Setenv("LIGHTPATH_PLANNER", c.planner)
			t.Setenv("LIGHTPATH_PLAN_WAIT", c.wait)
			t.Setenv("LIGHTPATH_PLAN_INITIAL", c.initial)
			t.Setenv("LIGHTPATH_PLAN_LIMIT", "50ms")
			rng := rand.New(rand.NewPCG(uint64(c.n), 7))
			w := newWorld(t, c.n)
			for _, size := range []int{0, 1, 1023, 20011} {
				for _, kind := range oracleKinds {
					k := collectiveCase{
						kind: kind, typ: datatype.Type(rng.IntN(int(datatype.NumTypes))), op: datatype.Op(rng.IntN(int(datatype.NumOps))),
						root: rng.IntN(c.n), count: size, inPlace: rng.IntN(3) == 0,
					}
					if err := k.run(w, rng); err != nil {
						t.Fatalf("%v: %v", k, err)
					}
				}
			}
			noLosses(t, server)
		})
	}
}

// noLosses checks the switch's own count of frames.
func noLosses(t testing.TB, server *emulator.Server) {
	t.Helper()
	stats, err := server.Stats()
	if err != nil {
		t.Fatal(err)
	}
	for j, s := range stats {
		if s.Frames == 0 {
			t.Errorf("plane %d carried nothing", j)
		}
		for v, n := range s.Lost {
			if n > 0 {
				t.Errorf("plane %d lost %d frames: %v", j, n, emulator.Verdict(v))
			}
		}
	}
}

// planFiles lists the files of a plan cache.
func planFiles(t testing.TB, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// damage changes one digit of a plan file.
func damage(t testing.TB, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(data, []byte("end_us"))
	for ; data[at] < '0' || data[at] > '9'; at++ {
	}
	data[at] ^= 1
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestMixedSteps runs algorithms whose steps hold several permutations, which the planners divide
// over the planes flow by flow, under the planners that do so.
func TestMixedSteps(t *testing.T) {
	for _, planner := range []string{"perstep", "swot", "weave", "auto"} {
		t.Run(planner, func(t *testing.T) {
			server := lightFabric(t, 4, 2, nil)
			t.Setenv("LIGHTPATH_PLANNER", planner)
			t.Setenv("LIGHTPATH_PLAN_WAIT", "1")
			t.Setenv("LIGHTPATH_PLAN_LIMIT", "50ms")
			t.Setenv("LIGHTPATH_PLAN_TOLERANCE", "0")
			t.Setenv("LIGHTPATH_ALGORITHM", "alltoall:bruck:3,allreduce:swing:2x2,allgather:pairwise:2@3.1.2,reducescatter:direct")
			rng := rand.New(rand.NewPCG(4, 7))
			w := newWorld(t, 4)
			for _, size := range []int{1, 1023, 20011} {
				for _, kind := range []calls.Kind{calls.AllToAll, calls.AllReduce, calls.AllGather, calls.ReduceScatter} {
					k := collectiveCase{kind: kind, typ: datatype.Int32, op: datatype.Sum, count: size, inPlace: rng.IntN(2) == 0}
					if err := k.run(w, rng); err != nil {
						t.Fatalf("%v: %v", k, err)
					}
				}
			}
			if n := len(optical.Of(w.comms[0]).Packet); n > 0 {
				t.Errorf("%d shapes ran on packet planes", n)
			}
			noLosses(t, server)
		})
	}
}
