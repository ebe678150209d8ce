package place

import (
	"math/bits"
	"math/rand/v2"
	"testing"

	"lightpath/internal/require"
)

// small has two servers a leaf, four leaves a pod, five pods.
var small = Shape{ServerGPUs: 8, Nest: []int{2, 4, 5}}

// deep has a level above pods.
var deep = Shape{ServerGPUs: 8, Nest: []int{1, 4, 3, 2}}

func randomGrid(r *rand.Rand, most int) Grid {
	for {
		g := Grid{PP: 1 << r.IntN(4), DP: 1 + r.IntN(12), EP: 1 << r.IntN(3)}
		if g.DP%g.EP == 0 && g.Servers() <= most && g.EP <= 4 {
			return g
		}
	}
}

// TestPoolKeepsItsBooks takes and gives back at random and counts everything anew each time.
func TestPoolKeepsItsBooks(t *testing.T) {
	for seed := range uint64(40) {
		shape := small
		if seed%2 == 1 {
			shape = deep
		}
		r := rand.New(rand.NewPCG(seed, 2))
		pool := NewPool(shape)
		type held struct {
			a    Allocation
			gpus int
		}
		var jobs []held
		for range 200 {
			if len(jobs) > 0 && r.IntN(3) == 0 {
				k := r.IntN(len(jobs))
				pool.Release(jobs[k].a)
				jobs[k] = jobs[len(jobs)-1]
				jobs = jobs[:len(jobs)-1]
			} else if r.IntN(3) == 0 {
				n := 1 + r.IntN(7)
				if a, ok := pool.Part(n); ok {
					jobs = append(jobs, held{a, n})
				}
			} else {
				g := randomGrid(r, shape.Servers())
				idle := 0
				for _, busy := range pool.busy {
					if busy == 0 {
						idle++
					}
				}
				a, ok := pool.Whole(g.Servers(), g.EP)
				if !ok {
					if g.EP == 1 && idle >= g.Servers() {
						t.Fatalf("seed %d: no place for %d servers of %d idle ones", seed, g.Servers(), idle)
					}
					continue
				}
				if len(a.Servers) != g.Servers() {
					t.Fatalf("seed %d: %d servers, want %d", seed, len(a.Servers), g.Servers())
				}
				inPod := map[int]int{}
				for _, s := range a.Servers {
					inPod[shape.Of(Pod, s)]++
				}
				for pod, n := range inPod {
					if n > shape.Size(Pod) || n%g.EP != 0 && len(inPod) > 1 {
						t.Fatalf("seed %d: pod %d has %d servers of a job with EP %d", seed, pod, n, g.EP)
					}
				}
				jobs = append(jobs, held{a, g.Servers() * 8})
			}
			used := make([]uint64, shape.Servers())
			gpus := 0
			for _, j := range jobs {
				gpus += j.gpus
				for _, s := range j.a.Servers {
					mask := j.a.GPUs
					if mask == 0 {
						mask = 0xff
					}
					if used[s]&mask != 0 {
						t.Fatalf("seed %d: GPUs of server %d are used twice", seed, s)
					}
					used[s] |= mask
				}
			}
			for s := range used {
				if used[s] != pool.busy[s] {
					t.Fatalf("seed %d: server %d: busy %b, want %b", seed, s, pool.busy[s], used[s])
				}
			}
			if pool.Idle() != shape.gpus()-gpus {
				t.Fatalf("seed %d: %d idle GPUs, want %d", seed, pool.Idle(), shape.gpus()-gpus)
			}
			for level := range shape.Nest {
				count := make([]int, shape.Domains(level))
				for s := range used {
					if used[s] == 0 {
						count[shape.Of(level, int32(s))]++
					}
				}
				for d := range count {
					if count[d] != pool.idle[level][d] {
						t.Fatalf("seed %d: level %d, domain %d: %d idle, want %d", seed, level, d, pool.idle[level][d], count[d])
					}
				}
			}
		}
	}
}

func TestLocalityFirst(t *testing.T) {
	pool := NewPool(small)
	pool.Whole(6, 1) // pod 0 has two idle servers, in one leaf
	for _, c := range []struct {
		servers int
		level   int
		domain  int
	}{{2, Leaf, 3}, {8, Pod, 1}, {5, Pod, 2}, {3, Pod, 2}} {
		a, ok := pool.Whole(c.servers, 1)
		if !ok {
			t.Fatalf("no place for %d servers", c.servers)
		}
		for _, s := range a.Servers {
			if d := small.Of(c.level, s); d != c.domain {
				t.Errorf("%d servers: server %d is in domain %d of level %d, want %d", c.servers, s, d, c.level, c.domain)
			}
		}
	}
	part, _ := pool.Part(3)
	again, _ := pool.Part(5)
	if part.Servers[0] != again.Servers[0] || bits.OnesCount64(part.GPUs|again.GPUs) != 8 {
		t.Errorf("3 and 5 GPUs are in %v %b and %v %b, want one server", part.Servers, part.GPUs, again.Servers, again.GPUs)
	}
}

// TestCoverAsBrute tries all sets of parts.
func TestCoverAsBrute(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		parts := make([]part, 1+r.IntN(9))
		sum := 0
		for i := range parts {
			idle := r.IntN(9)
			gives := idle - r.IntN(min(idle, 2)+1)
			parts[i] = part{i, idle, gives}
			sum += gives
		}
		if sum == 0 {
			continue
		}
		need := 1 + r.IntN(sum)
		best, fewest := 1<<30, 1<<30
		for set := range 1 << len(parts) {
			idle, gives := 0, 0
			for i, p := range parts {
				if set>>i&1 == 1 {
					idle, gives = idle+p.idle, gives+p.gives
				}
			}
			if n := bits.OnesCount(uint(set)); gives >= need && (idle < best || idle == best && n < fewest) {
				best, fewest = idle, n
			}
		}
		idle, gives := 0, 0
		got := cover(parts, need)
		for _, p := range got {
			idle, gives = idle+p.idle, gives+p.gives
		}
		if gives < need || idle != best || len(got) != fewest {
			t.Fatalf("seed %d: %v for %d: %d idle in %d parts, want %d in %d", seed, parts, need, idle, len(got), best, fewest)
		}
	}
}

var volume = Volume{Forward: 0.01, Tokens: 0.2, Backward: 0.01, Replicas: 0.1}

// scattered returns servers in random pods, groups of EP together.
func scattered(r *rand.Rand, shape Shape, g Grid) []int32 {
	pool := NewPool(shape)
	for range r.IntN(12) {
		pool.Whole(1+r.IntN(shape.Size(Pod)-1), 1)
	}
	a, ok := pool.Whole(g.Servers(), g.EP)
	if !ok {
		return nil
	}
	return a.Servers
}

// TestRequirement: experts stay in their pods, every flow between pods has a link, and no leaf needs
// more links than the job has GPUs there once fitted.
func TestRequirement(t *testing.T) {
	crossing := 0
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 4))
		shape := small
		g := randomGrid(r, shape.Servers())
		servers := scattered(r, shape, g)
		if servers == nil {
			continue
		}
		a, err := Arrange(shape, g, servers, volume)
		require.NoError(t, err)
		onLeaf := map[int32]int{}
		for _, s := range a.Server {
			onLeaf[int32(shape.Of(Leaf, s))] += shape.ServerGPUs
		}
		req := a.Requirement(shape)
		want := map[[2]int32]int{}
		for phase := range NumPhases {
			count := map[[2]int32]float64{}
			for _, f := range a.Flows(shape, phase, nil) {
				from, to := f.From/8, f.To/8
				if shape.Of(Pod, from) != shape.Of(Pod, to) {
					if phase == Tokens {
						t.Fatalf("seed %d: tokens go from server %d to %d, in another pod", seed, from, to)
					}
					count[[2]int32{int32(shape.Of(Leaf, from)), int32(shape.Of(Leaf, to))}] += f.Share
				}
			}
			for k, n := range count {
				if k[0] > k[1] {
					k[0], k[1] = k[1], k[0]
				}
				want[k] = max(want[k], int(n))
			}
		}
		if len(req.Pairs) != len(want) {
			t.Fatalf("seed %d: %d pairs, want %d", seed, len(req.Pairs), len(want))
		}
		for _, p := range req.Pairs {
			if p.Links != want[[2]int32{p.A, p.B}] {
				t.Fatalf("seed %d: %+v, want %d links", seed, p, want[[2]int32{p.A, p.B}])
			}
		}
		before := map[[2]int32]int{}
		for _, p := range req.Pairs {
			before[[2]int32{p.A, p.B}] = p.Links
		}
		fitted := true
		for leaf, sum := range req.sums(linksOf) {
			fitted = fitted && sum <= onLeaf[leaf]
		}
		longer, err := req.fit(func(leaf int32) int { return onLeaf[leaf] }, volume)
		if err != nil || fitted != (longer == 0) {
			t.Fatalf("seed %d: %v: an iteration takes %v longer, and everything fitted: %v", seed, err, longer, fitted)
		}
		for leaf, sum := range req.sums(linksOf) {
			if sum > onLeaf[leaf] {
				t.Fatalf("seed %d: leaf %d has %d links for %d GPUs", seed, leaf, sum, onLeaf[leaf])
			}
		}
		for _, p := range req.Pairs {
			crossing++
			if n := before[[2]int32{p.A, p.B}]; p.Links < 1 || p.Links > n || fitted && p.Links != n {
				t.Fatalf("seed %d: %+v, before %d links", seed, p, n)
			}
		}
	}
	if crossing < 100 {
		t.Errorf("only %d pairs between pods were seen", crossing)
	}
}

// TestMirroredRingNeedsHalf: rings of replicas, whose odd GPUs go the other way, need half the links,
// and never more than there are GPUs.
func TestMirroredRingNeedsHalf(t *testing.T) {
	for pods := 2; pods <= 5; pods++ {
		var servers []int32
		for p := range pods {
			servers = append(servers, int32(p*8), int32(p*8+1))
		}
		g := Grid{PP: 1, DP: len(servers), EP: 1}
		a, err := Arrange(small, g, servers, volume)
		require.NoError(t, err)
		arranged, naive := a.Requirement(small), Naive(g, servers).Requirement(small)
		if pods > 2 && 2*arranged.Links() != naive.Links() {
			t.Errorf("%d pods: %d links, %d without arrangement", pods, arranged.Links(), naive.Links())
		}
		for leaf, sum := range arranged.sums(linksOf) {
			if sum > 8 {
				t.Errorf("%d pods: leaf %d needs %d links", pods, leaf, sum)
			}
		}
	}
}

func TestGridAndShapeRefused(t *testing.T) {
	for _, g := range []Grid{{0, 1, 1}, {1, 3, 2}, {1, 1, 0}} {
		if g.Check() == nil {
			t.Errorf("%+v is accepted", g)
		}
	}
	for _, s := range []Shape{{0, []int{1, 1}}, {8, []int{2}}, {8, []int{2, 0}}, {8, []int{1 << 13, 1 << 13}},
		{65, []int{1, 1}}} {
		if s.Check() == nil {
			t.Errorf("%+v is accepted", s)
		}
	}
	if _, err := Arrange(small, Grid{2, 2, 1}, []int32{1, 2, 3}, volume); err == nil {
		t.Error("3 servers for a grid of 4 are accepted")
	}
}

func linksOf(p *Pair) int { return p.Links }
