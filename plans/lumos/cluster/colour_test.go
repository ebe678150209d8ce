package cluster

import (
	"math/rand/v2"
	"slices"
	"testing"

	"lightpath/internal/require"
	"lightpath/plans/lumos/place"
)

// TestColouringIsProper checks that no two flows from a leaf, or to one, have the same colour, and none has
// that of a bound flow. If no flow is bound and no leaf has more flows than there are colours, all flows have
// a colour (Konig's theorem).
func TestColouringIsProper(t *testing.T) {
	refused := 0
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 31))
		leaves, spines, room := 2+r.IntN(7), 1+r.IntN(6), 1+r.IntN(3)
		c := newColouring(spines, room)
		degree := [2][]int{make([]int, leaves), make([]int, leaves)}
		taken := map[[3]int32]int{} // side, leaf, spine
		bound := 0
		if seed%2 == 1 {
			for range r.IntN(leaves * spines) {
				side, leaf, spine := r.IntN(2), r.IntN(leaves), int32(r.IntN(spines))
				at := [3]int32{int32(side), int32(leaf), spine}
				if taken[at] == room {
					continue
				}
				c.bind(side, int32(leaf), spine)
				taken[at]++
				degree[side][leaf]++
				bound++
			}
		}
		var ends [][2]int32
		for range leaves * spines * room * 4 { // nearly full
			a, b := r.IntN(leaves), r.IntN(leaves)
			if degree[0][a] < spines*room && degree[1][b] < spines*room {
				degree[0][a]++
				degree[1][b]++
				ends = append(ends, [2]int32{int32(a), int32(b)})
				c.add(int32(a), int32(b), func(colour int32) float64 { return float64(colour % int32(spines)) })
			}
		}
		for i, end := range ends {
			h, ok := c.spine(i)
			if !ok {
				if refused++; bound == 0 {
					t.Fatalf("seed %d: flow %d of %d has no colour", seed, i, len(ends))
				}
				continue
			}
			for side, leaf := range end {
				at := [3]int32{int32(side), leaf, h}
				if taken[at]++; taken[at] > room {
					t.Fatalf("seed %d: spine %d has room for %d flows at leaf %d and carries more", seed, h, room, leaf)
				}
			}
		}
	}
	if refused == 0 {
		t.Error("bound flows never stood in the way")
	}
}

// TestCentralRoutesDoNotMeet: flows of a job inside one pod never share a link beyond what it carries, and never
// go slower for it; a controller never does worse there than probing.
func TestCentralRoutesDoNotMeet(t *testing.T) {
	collided := false
	for _, name := range []string{"lumos-1-25.6", "lumos-2-25.6", "lumos-1-51.2", "lumos-2-51.2"} {
		for seed := range uint64(10) {
			r := rand.New(rand.NewPCG(seed, 32))
			f, err := ParseFabric(name, 1024)
			require.NoError(t, err)
			pod := f.Shape().Size(place.Pod)
			g := place.Grid{EP: 1 << r.IntN(3)}
			g.DP = g.EP * (1 + r.IntN(max(1, min(pod, 16)/g.EP)))
			g.PP = 1 + r.IntN(max(1, min(pod, 16)/g.DP))
			if g.Servers() > pod {
				continue
			}
			var servers []int32
			for _, s := range r.Perm(pod)[:g.Servers()] {
				servers = append(servers, int32(s))
			}
			slices.Sort(servers)
			worst := func(routing Routing) float64 {
				f.Routing = routing
				o, err := newOptical(&f, seed)
				require.NoError(t, err)
				shares := place.Volume{0.01, 0.1, 0.01, 0.1}
				done, err := o.admit(1, &place.Arrangement{Grid: g, Server: servers, Mirrored: true}, shares)
				require.NoError(t, err)
				most, capacity := 0.0, o.capacities()
				for phase, p := range done.paths {
					if p.limit != o.rate {
						t.Fatalf("%s, seed %d: %v at most at %v", name, seed, place.Phase(phase), p.limit)
					}
					for _, u := range p.uses {
						most = max(most, u.Flows*o.rate/capacity[u.Link])
					}
				}
				return most
			}
			if load := worst(Central); load > 1+1e-9 {
				t.Errorf("%s, seed %d, %+v: a link carries %v times its rate", name, seed, g, load)
			}
			collided = collided || worst(Probe) > 1+1e-9
		}
	}
	if !collided {
		t.Error("probing never collides: nothing is tested")
	}
}

// TestRoomFromTheOtherEnd: where the chain from the leaf that receives ends at a bound flow, that from the
// one that sends makes room.
func TestRoomFromTheOtherEnd(t *testing.T) {
	const a, b, x, y = 0, 1, 2, 3
	c := newColouring(2, 1)
	last := func(colour int32) float64 { return -float64(colour) }
	c.bind(0, x, 1)
	c.add(x, b, last)
	c.add(a, y, last)
	c.add(a, b, last)
	for i, want := range []int32{0, 0, 1} {
		if h, ok := c.spine(i); !ok || h != want {
			t.Errorf("flow %d: spine %d, %v; want %d", i, h, ok, want)
		}
	}
}

// TestColoursLeaveRoomForCircuits: flows inside pods that get a spine fit beside those between pods.
func TestColoursLeaveRoomForCircuits(t *testing.T) {
	refused, fitted := 0, 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 33))
		f, err := ParseFabric([]string{"lumos-1-25.6", "lumos-2-25.6"}[seed%2], 256)
		require.NoError(t, err)
		o, err := newOptical(&f, seed)
		require.NoError(t, err)
		leaves, spines, share, most := 6, o.fabric.Spines(), 1/float64(1+r.IntN(3)), 1+r.IntN(2)
		load := make([]float64, 2*o.links())
		take := func(h hop) {
			load[o.up(h.from, h.spine)] += h.share
			load[o.down(h.to, h.spine)] += h.share
		}
		room := float64(o.fabric.Tau*most) + 1e-9
		var inside, between []hop
		for range 4 * o.fabric.KLeaf * most {
			h := hop{from: int32(r.IntN(leaves)), to: int32(r.IntN(leaves)), spine: int32(r.IntN(spines)), share: share}
			if r.IntN(2) == 0 {
				inside = append(inside, h)
			} else if load[o.up(h.from, h.spine)]+share <= room && load[o.down(h.to, h.spine)]+share <= room {
				between = append(between, h)
				take(h)
			}
		}
		for i, spine := range o.colour(inside, between, most) {
			if spine < 0 {
				refused++
				continue
			}
			fitted++
			inside[i].spine = spine
			take(inside[i])
		}
		for link, sum := range load {
			if sum > room {
				t.Fatalf("seed %d: link %d carries %v, has room for %v", seed, link, sum, room)
			}
		}
	}
	if refused == 0 || fitted < 10*refused {
		t.Errorf("%d flows fit, %d do not", fitted, refused)
	}
}
