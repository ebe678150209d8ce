package train

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"lightpath/internal/assert"
	"lightpath/internal/require"
	"lightpath/plans/delta/check"
	"lightpath/plans/delta/dag"
	"lightpath/plans/delta/sim"
)

func TestParameters(t *testing.T) {
	for _, m := range models() {
		want := map[string]float64{"gpt-7b": 7e9, "megatron-177b": 177e9, "mixtral-8x22b": 141e9, "megatron-462b": 462e9,
			"deepseek-671b": 671e9}[m.Name]
		got := 2 * m.embeddingParams()
		for i := range m.Layers {
			all, _ := m.layerParams(i)
			got += all
		}
		if math.Abs(got/want-1) > 0.03 {
			t.Errorf("%s has %.4g parameters", m.Name, got)
		}
	}
}

func preset(t testing.TB, name string) Config {
	t.Helper()
	c, err := Preset(name)
	require.NoError(t, err)
	return c
}

func generate(t testing.TB, c Config) *dag.Graph {
	t.Helper()
	g, err := Generate(c)
	require.NoError(t, err)
	return g
}

// TestPresets pins what Table I says, and that as many tasks come out as the pipeline has.
func TestPresets(t *testing.T) {
	for _, want := range []struct {
		name                             string
		replicas, pods, stages, ports, b int
	}{
		{"gpt-7b", 2, 2, 2, 4, 8}, {"megatron-177b", 8, 3, 2, 16, 48}, {"mixtral-8x22b", 2, 4, 2, 16, 64},
		{"megatron-462b", 8, 4, 4, 32, 128}, {"deepseek-671b", 2, 4, 4, 32, 128},
	} {
		c := preset(t, want.name)
		if c.Replicas() != want.replicas || c.podsPerReplica() != want.pods || c.stagesPerPod() != want.stages {
			t.Errorf("%s: %d replicas, %d pods each with %d stages", want.name, c.Replicas(), c.podsPerReplica(),
				c.stagesPerPod())
		}
		g := generate(t, c)
		count := make(map[string]int)
		for i := range g.Tasks {
			count[g.Tasks[i].Kind]++
		}
		rings := 1
		if want.replicas > 2 {
			rings = 2
		}
		for kind, n := range map[string]int{"forward": c.PP * want.b, "backward": c.PP * want.b,
			"pp": 2 * (c.PP - 1) * want.b, "dp": c.PP * rings, "gather": c.PP} {
			if count[kind] != n {
				t.Errorf("%s: %d tasks of kind %s, not %d", want.name, count[kind], kind, n)
			}
		}
		if g.Pods[0].Ports != want.ports {
			t.Errorf("%s: %d ports", want.name, g.Pods[0].Ports)
		}
	}
}

// TestPipeline compares with the closed form of one forward, one backward: p stages that take f and b for
// each of m micro-batches take (m + p - 1)(f + b) where communication costs nothing.
func TestPipeline(t *testing.T) {
	for _, overlap := range []bool{false, true} {
		for _, c := range []struct{ p, m int }{{1, 1}, {4, 1}, {4, 3}, {4, 8}, {6, 20}, {3, 2}} {
			cfg := Config{Model: Model{Layers: c.p, Hidden: 1024, FFN: 4096, Heads: 8, HeadDims: 256,
				AttentionParams: multiHead(1024)},
				TP: 2, PP: c.p, EP: 1, ETP: 1, GPUs: 2 * c.p, GPUsPerPod: 2, MicroBatches: c.m, Overlap: overlap}.hardware(0.5)
			cfg.Gbps, cfg.ScaleUpGBs = 1e12, 1e12
			cost := cfg.stageCosts(0)
			g := generate(t, cfg)
			want := float64(c.m+c.p-1) * (cost.Forward + cost.Backward)
			if got := g.LongestPath(g.LeastTime); math.Abs(got/want-1) > 1e-6 {
				t.Errorf("%d stages, %d micro-batches, overlap %v: %v us, want %v", c.p, c.m, overlap, got, want)
			}
		}
	}
}

// TestSynchronous: a forward and the backward that comes the other way are exchanged at once, and
// overlapping saves time.
func TestSynchronous(t *testing.T) {
	c := preset(t, "gpt-7b")
	g := generate(t, c)
	c.Overlap = true
	o := generate(t, c)
	if sync, async := g.LongestPath(g.LeastTime), o.LongestPath(o.LeastTime); !(async < sync) {
		t.Errorf("%v us with overlap, %v without", async, sync)
	}
	head := g.Heads(g.LeastTime)
	at := make(map[string]float64)
	for i := range g.Tasks {
		at[g.Tasks[i].Name] = head[i]
	}
	// the two stages across pods, in steady state
	for _, pair := range [][2]string{{"act4S1", "grad2S2"}, {"act6S1", "grad4S2"}} {
		if math.Abs(at[pair[0]]-at[pair[1]]) > 1e-6 {
			t.Errorf("%s at %v, %s at %v", pair[0], at[pair[0]], pair[1], at[pair[1]])
		}
	}
}

// TestProjection: a projection runs as the whole job does, on any topology.
func TestProjection(t *testing.T) {
	for _, replicas := range []int{1, 2, 3, 4, 5} {
		for _, overlap := range []bool{false, true} {
			c := preset(t, "gpt-7b")
			c.MicroBatches, c.GPUs, c.Gbps, c.Overlap = 5, 8*replicas, 50, overlap
			one := generate(t, c)
			c.Full = true
			full := generate(t, c)
			rng := rand.New(rand.NewPCG(uint64(replicas), 5))
			for range 5 {
				circuits := dag.Circuits{}
				for range one.Links {
					circuits = append(circuits, 1+rng.IntN(2))
				}
				if one.CheckCircuits(circuits) != nil {
					circuits = dag.Circuits{2, 1, 1}[:len(one.Links)]
				}
				wide, err := expand(one, full, circuits)
				require.NoError(t, err)
				name := fmt.Sprintf("%d replicas, overlap %v, circuits %v", replicas, overlap, circuits)
				a, b := run(t, one, circuits), run(t, full, wide)
				if math.Abs(a/b-1) > 1e-9 {
					t.Errorf("%s: %v us in the projection, %v in the whole job", name, a, b)
				}
				usedOne, allOne := one.TotalPorts(circuits)
				usedFull, allFull := full.TotalPorts(wide)
				if usedOne != usedFull || allOne != allFull {
					t.Errorf("%s: %d of %d ports in the projection, %d of %d in the whole job", name, usedOne, allOne, usedFull,
						allFull)
				}
			}
		}
	}
}

// expand finds the links of the whole job by name.
func expand(one, full *dag.Graph, c dag.Circuits) (dag.Circuits, error) {
	wide := make(dag.Circuits, len(full.Links))
	count := make(map[[2]string]int)
	for l, k := range one.Links {
		for _, pair := range k.Copies {
			count[pair] = c[l]
		}
		if k.Copies == nil {
			count[[2]string{one.Pods[k.Pods[0]].Name, one.Pods[k.Pods[1]].Name}] = c[l]
		}
	}
	for l, k := range full.Links {
		wide[l] = count[[2]string{full.Pods[k.Pods[0]].Name, full.Pods[k.Pods[1]].Name}]
	}
	if len(count) != len(full.Links) {
		return nil, fmt.Errorf("%d pairs for %d links", len(count), len(full.Links))
	}
	return wide, full.CheckCircuits(wide)
}

func run(t *testing.T, g *dag.Graph, c dag.Circuits) float64 {
	t.Helper()
	w, err := sim.New(g)
	require.NoError(t, err)
	s := w.NewRunner().Record(c, nil)
	require.NoError(t, check.Check(g, s))
	return s.Makespan
}

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		name string
		bend func(*Config)
		says []string
	}{
		{"tp", func(c *Config) { c.TP = 0 }, []string{"tp", "0"}},
		{"micro_batches", func(c *Config) { c.MicroBatches = -1 }, []string{"micro_batches", "-1"}},
		{"sequence", func(c *Config) { c.Sequence = 1 << 30 }, []string{"sequence"}},
		{"bandwidth", func(c *Config) { c.Gbps = -400 }, []string{"bandwidth_gbps", "-400"}},
		{"efficiency", func(c *Config) { c.Efficiency = 1.5 }, []string{"efficiency", "1.5"}},
		{"scale-up", func(c *Config) { c.ScaleUpGBs = math.NaN() }, []string{"scale_up_gb_s", "NaN"}},
		{"experts of a dense model", func(c *Config) { c.EP = 8 }, []string{"ep", "no experts"}},
		{"stages", func(c *Config) { c.PP = 33 }, []string{"pp", "33 stages for 32 layers"}},
		{"replicas", func(c *Config) { c.GPUs = 20 }, []string{"gpus", "20"}},
		{"pods", func(c *Config) { c.GPUsPerPod = 5 }, []string{"gpus_per_pod", "5"}},
		{"size", func(c *Config) { c.MicroBatches = 1 << 19 }, []string{"micro_batches"}},
		{"an over-subscribed pod", func(c *Config) { c.TP, c.GPUs, c.GPUsPerPod = 1, 16, 1 }, []string{"ports"}},
	} {
		cfg := preset(t, "gpt-7b")
		c.bend(&cfg)
		_, err := Generate(cfg)
		if !errors.Is(err, ErrConfig) && !errors.Is(err, dag.ErrGraph) {
			t.Errorf("%s: got %v", c.name, err)
			continue
		}
		assert.Contains(t, err.Error(), c.says...)
	}
	for range 30 { // the first wrong cost is named, each time
		cfg := preset(t, "gpt-7b")
		cfg.Stages = make([]Costs, cfg.PP)
		cfg.Stages[0] = Costs{Forward: -1, Backward: -1, Gather: -1}
		if err := cfg.checkStages(); err == nil || !strings.Contains(err.Error(), "stages[0].forward_us: -1") {
			t.Fatalf("got %v", err)
		}
	}
	if _, err := Preset("gpt-9"); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "deepseek-671b") {
		t.Errorf("got %v", err)
	}
}
