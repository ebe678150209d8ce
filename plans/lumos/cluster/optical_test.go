package cluster

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"lightpath/internal/require"
	"lightpath/plans/lumos/matrix"
	"lightpath/plans/lumos/place"
)

// TestOpticalTenants starts and ends jobs at random. The links of all jobs must be those of the logical
// topology, and that topology must meet the requirement. The jobs that are reported as moved must be the
// moved ones. Links between leaf and spine must carry as many flows as the paths say.
func TestOpticalTenants(t *testing.T) {
	movedEver, crossed := 0, 0
	for _, name := range []string{"lumos-1-25.6", "lumos-2-25.6", "lumos-2-51.2"} {
		for seed := range uint64(3) {
			f, err := ParseFabric(name, 512)
			require.NoError(t, err)
			o, err := newOptical(&f, seed)
			require.NoError(t, err)
			r := rand.New(rand.NewPCG(seed, 8))
			pool := place.NewPool(o.shape)
			held := map[int]place.Allocation{}
			for job := range 60 {
				g := place.Grid{PP: 1 << r.IntN(4), DP: 1 + r.IntN(8), EP: 1}
				a, ok := pool.Whole(g.Servers(), 1)
				for !ok {
					old := o.running(-1)[r.IntN(len(held))]
					pool.Release(held[old])
					o.release(old)
					delete(held, old)
					a, ok = pool.Whole(g.Servers(), 1)
				}
				held[job] = a
				arranged, err := place.Arrange(o.shape, g, a.Servers, place.Volume{0.01, 0, 0.01, 0.1})
				require.NoError(t, err)
				before := map[int]string{}
				for k, tenant := range o.tenant {
					before[k] = fmt.Sprint(tenant.spines)
				}
				done, err := o.admit(job, arranged, place.Volume{0.01, 0, 0.01, 0.1})
				require.NoError(t, err)
				if len(o.tenant[job].pairs) == 0 {
					continue // the topology stays as it was, with links of jobs that have ended
				}
				if err := o.core.Logical().Check(o.need); err != nil {
					t.Fatalf("%s, seed %d, job %d: %v", name, seed, job, err)
				}
				shares := make([]*matrix.Matrix, o.fabric.Spines())
				for h := range shares {
					shares[h] = matrix.New(o.fabric.Leaves())
				}
				for k, tenant := range o.tenant {
					for i, p := range tenant.pairs {
						crossed++
						if len(tenant.spines[i]) != p.Links {
							t.Fatalf("%s, seed %d: job %d has spines %v for %+v", name, seed, k, tenant.spines[i], p)
						}
						for _, h := range tenant.spines[i] {
							shares[h].Add(int(p.A), int(p.B), 1)
							shares[h].Add(int(p.B), int(p.A), 1)
						}
					}
					moved, said := k != job && fmt.Sprint(tenant.spines) != before[k], reflect.DeepEqual(done.moved[k], paths{})
					if _, listed := done.moved[k]; moved != listed || listed && said || listed && !slices.Contains(done.dark, k) {
						t.Fatalf("%s, seed %d: job %d moved: %v, said so: %v", name, seed, k, moved, listed)
					}
					if moved {
						movedEver++
					}
				}
				for h, share := range o.core.Logical().Share {
					if !share.Equal(shares[h]) {
						t.Fatalf("%s, seed %d, job %d: the links of jobs by spine %d are not its share", name, seed, job, h)
					}
				}
				var flows, routed [place.NumPhases]float64
				for phase := range place.NumPhases {
					for _, fl := range arranged.Flows(o.shape, phase, nil) {
						if fl.From/int32(o.fabric.KLeaf) != fl.To/int32(o.fabric.KLeaf) {
							flows[phase] += 2 * fl.Share
						}
					}
					for _, u := range done.paths[phase].uses {
						routed[phase] += u.Flows
					}
				}
				checkTurns(t, o, o.tenant[job], done.paths)
				if flows != routed {
					t.Fatalf("%s, seed %d, job %d: %v uses of links, want %v", name, seed, job, routed, flows)
				}
			}
		}
	}
	if crossed == 0 {
		t.Error("no job had links between pods")
	}
	t.Logf("%d pairs of leaves, %d jobs moved", crossed, movedEver)
}

// checkTurns: the flows of a pair of leaves are as evenly on its links as they can be, and the busiest link
// says how fast all are.
func checkTurns(t *testing.T, o *optical, tenant *tenant, p paths) {
	t.Helper()
	for phase := range place.NumPhases {
		count := map[[2]int32]int{}
		for _, f := range tenant.arrangement.Flows(o.shape, phase, nil) {
			count[[2]int32{f.From / int32(o.fabric.KLeaf), f.To / int32(o.fabric.KLeaf)}]++
		}
		most := 1
		onSpine := map[int32]float64{} // links up, of flows between pods
		for _, pair := range tenant.pairs {
			for _, way := range [][2]int32{{pair.A, pair.B}, {pair.B, pair.A}} {
				n := count[way]
				most = max(most, (n+pair.Links-1)/pair.Links)
				for _, h := range tenant.spines[indexOf(tenant.pairs, pair)] {
					onSpine[o.up(way[0], h)] += float64(n / pair.Links) // at least
				}
			}
		}
		if want := o.rate / float64(most); p[phase].limit != want {
			t.Fatalf("%v: limit %v, want %v", phase, p[phase].limit, want)
		}
		has := map[int32]float64{}
		for _, u := range p[phase].uses {
			has[u.Link] = u.Flows
		}
		for link, n := range onSpine {
			if has[link] < n {
				t.Fatalf("%v: link %d has %v flows, want %v at least", phase, link, has[link], n)
			}
		}
	}
}

func indexOf(pairs []place.Pair, p place.Pair) int {
	return slices.IndexFunc(pairs, func(q place.Pair) bool { return q.A == p.A && q.B == p.B })
}
