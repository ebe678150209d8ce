package lumos

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"lightpath/internal/require"
	"lightpath/plans/lumos/decompose"
)

// sized is a cluster of 51.2 Tb/s chips at 1.6 Tb/s a port, K_leaf = K_spine = 16: 128 GPUs in a pod where tau is
// 2, 256 where it is 1.
func sized(gpus, tau int) Fabric {
	f := Fabric{Pods: 1, KLeaf: 16, KSpine: 16, Tau: tau, KOCS: TableOCS}
	f.Pods = gpus / f.gpusPerPod()
	return f
}

// full has every leaf use nearly all links that it may.
func full(b testing.TB, f Fabric, most int) *Requirement {
	return randomRequirement(b, rand.New(rand.NewPCG(1, 2)), f, most, 12*f.Leaves()*f.KLeaf/16)
}

var scales = []int{2048, 4096, 8192, 16384, 32768}

// BenchmarkDecompose times what the logical topology of a full cluster takes: L halved, then split over spines.
func BenchmarkDecompose(b *testing.B) {
	for _, gpus := range scales {
		r := full(b, sized(gpus, 2), 16)
		half, err := decompose.Halve(r.links, nil)
		require.NoError(b, err)
		b.Run(fmt.Sprintf("halve/gpus=%d", gpus), func(b *testing.B) {
			for b.Loop() {
				if _, err := decompose.Halve(r.links, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("split/gpus=%d", gpus), func(b *testing.B) {
			for b.Loop() {
				if _, err := decompose.Split(half, r.Fabric().Spines(), nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// job is the links that it needs, each once.
type job [][3]int

// churn is a sequence of requirements: in each a job has come or one has gone. A job of 2 to 8 pods has a ring of
// 1 to 32 links between neighbours, on the leaves with most room.
func churn(b testing.TB, f Fabric, events int) []*Requirement {
	rng := rand.New(rand.NewPCG(5, 5))
	r, err := NewRequirement(f)
	require.NoError(b, err)
	roomiest := func(pod int) int {
		best := pod * f.leavesPerPod()
		for l := best; l < (pod+1)*f.leavesPerPod(); l++ {
			if r.Sum(l) < r.Sum(best) {
				best = l
			}
		}
		return best
	}
	var running []job
	var all []*Requirement
	for len(all) < events+f.Pods {
		if gone := rng.IntN(4 * f.Pods); gone < len(running) {
			for _, l := range running[gone] {
				require.NoError(b, r.Add(l[0], l[1], -l[2]))
			}
			running[gone] = running[len(running)-1]
			running = running[:len(running)-1]
		} else {
			pods, width := rng.Perm(f.Pods)[:2+rng.IntN(min(7, f.Pods-1))], 1+rng.IntN(32)
			var j job
			for i, p := range pods {
				for range width {
					a, c := roomiest(p), roomiest(pods[(i+1)%len(pods)])
					if r.Sum(a) < f.KLeaf && r.Sum(c) < f.KLeaf {
						_ = r.Add(a, c, 1)
						j = append(j, [3]int{a, c, 1})
					}
				}
			}
			running = append(running, j)
		}
		all = append(all, r.Clone())
	}
	return all
}

// rewirer takes a cluster from one requirement to the next, and says what it made anew.
type rewirer interface {
	update(r *Requirement) (Change, error)
}

// incremental uses [Core].
type incremental struct{ *Core }

func (c incremental) update(r *Requirement) (Change, error) { return c.Update(r, false) }

// anew plans everything from nothing each time.
type anew struct{ has *Configuration }

func (a *anew) update(r *Requirement) (Change, error) {
	core, err := CoreFor(r)
	if err != nil {
		return Change{}, err
	}
	to := core.Configuration()
	made := 0
	for _, m := range Moves(a.has, to) {
		made += a.has.Even[m.Group][m.Pair].Changes(m.Even)
	}
	a.has = to
	return Change{Links: r.Fabric().Pods * r.Fabric().ocses() / 2, Made: made}, nil
}

// BenchmarkRewire follows jobs that come and go. It reports the links made anew per event, in percent of the core's,
// and how many any configuration would have to make.
func BenchmarkRewire(b *testing.B) {
	for _, gpus := range scales {
		if gpus > 8192 && os.Getenv("LIGHTPATH_TEST_LONG") == "" {
			continue
		}
		f := sized(gpus, 2)
		all := churn(b, f, 60)
		for _, way := range []struct {
			name  string
			start func() rewirer
		}{
			{"slots", func() rewirer { c, _ := NewCore(f); return incremental{c} }},
			{"anew", func() rewirer { return &anew{NewConfiguration(f)} }},
		} {
			b.Run(fmt.Sprintf("gpus=%d/%s", gpus, way.name), func(b *testing.B) {
				made, needed, links, events := 0, 0, 0, 0
				for b.Loop() {
					w := way.start()
					for n, r := range all {
						c, err := w.update(r)
						require.NoError(b, err)
						if n >= f.Pods { // the cluster has filled
							made, needed, links, events = made+c.Made, needed+c.Needed, links+c.Links, events+1
						}
					}
				}
				b.ReportMetric(100*float64(made)/float64(links), "%made/event")
				b.ReportMetric(100*float64(needed)/float64(links), "%needed/event")
				b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N*len(all)), "ms/event")
			})
		}
	}
}

// TestLarge holds the theorems at the size of 32k GPUs.
func TestLarge(t *testing.T) {
	gpus := 2048
	if os.Getenv("LIGHTPATH_TEST_LONG") != "" {
		gpus = 32768
	}
	for _, tau := range []int{1, 2} {
		f := sized(gpus, tau)
		for _, most := range []int{f.KLeaf, f.KLeaf / 2} {
			r := full(t, f, most)
			core, err := CoreFor(r)
			require.NoError(t, err)
			judge(t, core.Logical(), core.Configuration(), r, contention(r))
			next := r.Clone() // a job ends, another begins
			for a := range 50 {
				for b := range f.Leaves() {
					if n := next.At(a, b); n > 0 {
						require.NoError(t, next.Add(a, b, -n))
						break
					}
				}
			}
			if _, err := core.Update(next, false); err != nil {
				t.Fatal(err)
			}
			judge(t, core.Logical(), core.Configuration(), next, contention(next))
			t.Logf("%d GPUs, tau %d, up to %d links of a leaf: %d links", gpus, tau, most, r.Links())
		}
	}
}
