package fairshare

import (
	"math"
	"math/rand/v2"
	"testing"
)

// slow is the textbook: all rates rise together until a link or a limit stops a group,
// again and again, from the beginning each time.
func slow(capacity []float64, limits []float64, uses [][]Use) []float64 {
	rates := make([]float64, len(limits))
	open := make([]bool, len(limits))
	for j := range open {
		open[j] = true
	}
	for {
		step, any := math.Inf(1), false
		for j := range open {
			if open[j] {
				any = true
				step = min(step, limits[j]-rates[j])
			}
		}
		if !any {
			return rates
		}
		room := func(l int) (left, flows float64) {
			left = capacity[l]
			for j := range uses {
				for _, u := range uses[j] {
					if int(u.Link) == l {
						left -= u.Flows * rates[j]
						if open[j] {
							flows += u.Flows
						}
					}
				}
			}
			return max(left, 0), flows
		}
		for l := range capacity {
			if left, flows := room(l); flows > 0 {
				step = min(step, left/flows)
			}
		}
		for j := range open {
			if open[j] {
				rates[j] += step
			}
		}
		for j := range open {
			stop := rates[j] >= limits[j]*(1-1e-12)
			for _, u := range uses[j] {
				if left, _ := room(int(u.Link)); left <= 1e-9*capacity[u.Link] {
					stop = true
				}
			}
			if stop {
				open[j] = false
			}
		}
	}
}

func randomUses(r *rand.Rand, links int) []Use {
	var uses []Use
	for _, l := range r.Perm(links)[:r.IntN(min(links, 5)+1)] {
		uses = append(uses, Use{int32(l), float64(1 + r.IntN(3))})
	}
	return uses
}

func TestRatesAsSlow(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		capacity := make([]float64, 1+r.IntN(12))
		for l := range capacity {
			capacity[l] = float64(r.IntN(20)) // 0 too: a dark link
		}
		n := New(capacity)
		reported := map[Group]float64{}
		alive := map[Group][]Use{}
		limit := map[Group]float64{}
		for range 60 {
			switch k := r.IntN(10); {
			case k < 5 || len(alive) == 0:
				uses, lim := randomUses(r, len(capacity)), float64(1+r.IntN(10))
				g := n.Add(lim, uses)
				if _, twice := alive[g]; twice {
					t.Fatalf("seed %d: group %d is there already", seed, g)
				}
				alive[g], limit[g], reported[g] = uses, lim, 0
			case k < 8:
				g := anyOf(r, alive)
				n.Remove(g)
				delete(alive, g)
			default:
				g := anyOf(r, alive)
				limit[g] = float64(r.IntN(10))
				n.SetLimit(g, limit[g])
			}
			if r.IntN(3) == 0 { // several changes at once
				continue
			}
			n.Update(func(g Group, rate float64) { reported[g] = rate })
			var groups []Group
			var uses [][]Use
			var limits []float64
			for g, u := range alive {
				groups, uses, limits = append(groups, g), append(uses, u), append(limits, limit[g])
			}
			want := slow(capacity, limits, uses)
			for k, g := range groups {
				if got := n.groups[g].rate; math.Abs(got-want[k]) > 1e-6*(1+want[k]) || got != reported[g] {
					t.Fatalf("seed %d: group %d has rate %v (reported %v), want %v", seed, g, got, reported[g], want[k])
				}
			}
		}
	}
}

func anyOf(r *rand.Rand, alive map[Group][]Use) Group {
	var least, most Group = math.MaxInt32, 0
	for g := range alive {
		least, most = min(least, g), max(most, g)
	}
	for {
		if g := least + Group(r.IntN(int(most-least)+1)); alive[g] != nil || has(alive, g) {
			return g
		}
	}
}

func has(alive map[Group][]Use, g Group) bool { _, ok := alive[g]; return ok }

// TestBottleneck is the certificate of max-min fairness: every group is at its limit, or on a full
// link on which no group is faster.
func TestBottleneck(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	capacity := make([]float64, 300)
	for l := range capacity {
		capacity[l] = 1 + 9*r.Float64()
	}
	n := New(capacity)
	uses := make([][]Use, 400)
	groups := make([]Group, len(uses))
	for j := range uses {
		uses[j] = randomUses(r, len(capacity))
		groups[j] = n.Add(4, uses[j])
	}
	n.Update(func(Group, float64) {})
	sum, fastest := make([]float64, len(capacity)), make([]float64, len(capacity))
	for j, g := range groups {
		for _, u := range uses[j] {
			sum[u.Link] += u.Flows * n.groups[g].rate
			fastest[u.Link] = max(fastest[u.Link], n.groups[g].rate)
		}
	}
	for l := range sum {
		if sum[l] > capacity[l]*(1+1e-9) {
			t.Errorf("link %d carries %v of %v", l, sum[l], capacity[l])
		}
	}
	for j, g := range groups {
		held := n.groups[g].rate >= 4
		for _, u := range uses[j] {
			held = held || sum[u.Link] >= capacity[u.Link]*(1-1e-9) && n.groups[g].rate >= fastest[u.Link]*(1-1e-9)
		}
		if !held {
			t.Errorf("group %d could be faster than %v", j, n.groups[g].rate)
		}
	}
}

// TestProgress: with capacities and flows of any size, filling ends within the number of rounds that solve promises,
// and gives every group a rate above 0.
func TestProgress(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		size := func() float64 { return math.Pow(10, 30*r.Float64()-15) }
		capacity := make([]float64, 1+r.IntN(12))
		for l := range capacity {
			capacity[l] = size()
		}
		n := New(capacity)
		users := make([]int, len(capacity))
		bound := 0
		for range 40 {
			uses := randomUses(r, len(capacity))
			for k := range uses {
				uses[k].Flows = size()
				users[uses[k].Link]++
			}
			n.Add(size(), uses)
			bound++
		}
		for _, k := range users {
			bound += 1 + k
		}
		rates := 0
		n.Update(func(_ Group, rate float64) {
			if rate > 0 {
				rates++
			}
		})
		if n.fill.rounds > bound || rates != 40 {
			t.Fatalf("seed %d: %d rounds, at most %d; %d of 40 groups have a rate", seed, n.fill.rounds, bound, rates)
		}
	}
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	n := New([]float64{10, 10, 10})
	n.Add(8, []Use{{0, 1}, {1, 1}})
	n.Add(8, []Use{{1, 2}, {2, 1}})
	uses := []Use{{0, 1}, {2, 1}}
	change := func() {
		g := n.Add(8, uses)
		n.Update(func(Group, float64) {})
		n.Remove(g)
		n.Update(func(Group, float64) {})
	}
	change()
	if a := testing.AllocsPerRun(100, change); a != 0 {
		t.Errorf("%v allocations", a)
	}
}

func BenchmarkUpdate(b *testing.B) {
	r := rand.New(rand.NewPCG(3, 3))
	capacity := make([]float64, 4096)
	for l := range capacity {
		capacity[l] = 1
	}
	n := New(capacity)
	var uses [][]Use
	for range 100 {
		var u []Use
		for _, l := range r.Perm(len(capacity))[:200] {
			u = append(u, Use{int32(l), 1})
		}
		uses = append(uses, u)
		n.Add(1, u)
	}
	b.ReportAllocs()
	for b.Loop() {
		g := n.Add(1, uses[0])
		n.Update(func(Group, float64) {})
		n.Remove(g)
		n.Update(func(Group, float64) {})
	}
}
