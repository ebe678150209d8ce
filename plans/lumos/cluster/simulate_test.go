package cluster

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"lightpath/internal/require"
	"lightpath/plans/internal/fairshare"
	"lightpath/plans/lumos/place"
)

// tiny are fabrics of 512 GPUs or fewer, of all kinds.
func tiny(t *testing.T) []Fabric {
	t.Helper()
	var all []Fabric
	for _, c := range []struct {
		name string
		gpus int
	}{{"best", 512}, {"clos-3-25.6", 512}, {"clos-4-25.6", 512}, {"clos-4-25.6", 64}, {"lumos-1-25.6", 512},
		{"lumos-2-25.6", 256}, {"lumos-2-51.2", 512}} {
		f, err := ParseFabric(c.name, c.gpus)
		require.NoError(t, err)
		all = append(all, f)
		if f.Kind == Lumos {
			f.Routing = Probe
			all = append(all, f)
		}
		if f.Kind != Best {
			f.Routing = ECMP
			all = append(all, f)
		}
	}
	return all
}

// randomJobs has more communication than real jobs, and more jobs at a time.
func randomJobs(seed uint64, n, gpus int) []Job {
	r := rand.New(rand.NewPCG(seed, 9))
	jobs := make([]Job, n)
	at := 0.0
	for i := range jobs {
		at += 30 * r.ExpFloat64()
		jobs[i] = Job{Name: fmt.Sprint(i), Arrival: at, Duration: 10 + 200*r.Float64(), GPUs: min(gpus, 1<<r.IntN(9))}
	}
	Divide(jobs, 8, seed)
	for i := range jobs {
		for phase, share := range jobs[i].Shares {
			if share > 0 {
				jobs[i].Shares[phase] = 0.2
			}
		}
	}
	return jobs
}

// slowSimulation is the same cluster in the obvious way: every rate is computed anew at every event,
// and the next event is found by looking at everybody.
type slowSimulation struct {
	*Config
	capacity []float64
	out      []Outcome
}

type slowJob struct {
	job        int
	allocation place.Allocation
	paths      paths
	steps      []step
	at, left   int
	computing  bool
	work       float64 // left of the computation or the phase
	dark       float64 // until then
}

func (s *slowSimulation) run(t *testing.T, net network) {
	s.capacity = net.capacities()
	s.out = make([]Outcome, len(s.Jobs))
	shape := s.Fabric.Shape()
	pool := place.NewPool(shape)
	var active []*slowJob
	now, arrived, started, ended := 0.0, 0, 0, 0
	for ended < len(s.Jobs) {
		rates := s.rates(active, now)
		next := math.Inf(1)
		if arrived < len(s.Jobs) {
			next = s.Jobs[arrived].Arrival
		}
		for i, j := range active {
			if j.dark > now {
				next = min(next, j.dark)
			}
			if rates[i] > 0 {
				next = min(next, now+j.work/rates[i])
			}
		}
		if math.IsInf(next, 1) {
			t.Fatal("nothing more happens")
		}
		for i, j := range active {
			j.work -= rates[i] * (next - now)
		}
		now = next
		for arrived < len(s.Jobs) && s.Jobs[arrived].Arrival <= now {
			arrived++
		}
		for i := 0; i < len(active); i++ {
			j := active[i]
			if j.work > 1e-9*s.Jobs[j.job].Duration {
				continue
			}
			if j.computing && !j.steps[j.at].nothing {
				j.computing, j.work = false, j.steps[j.at].work
				continue
			}
			if j.at++; j.at == len(j.steps) {
				j.at = 0
				j.left--
			}
			j.computing, j.work = true, j.steps[j.at].wait
			if j.left == 0 {
				s.out[j.job].Finish = now
				net.release(j.job)
				pool.Release(j.allocation)
				active = slices.Delete(active, i, i+1)
				i--
				ended++
			}
		}
		for ; started < arrived; started++ {
			job := &s.Jobs[started]
			a, ok := place.Allocation{}, false
			if job.GPUs < 8 {
				a, ok = pool.Part(job.GPUs)
			} else {
				a, ok = pool.Whole(job.Grid.Servers(), job.Grid.EP)
			}
			if !ok {
				break
			}
			arranged, err := place.Arrange(shape, job.Grid, a.Servers, job.Shares)
			require.NoError(t, err)
			done, err := net.admit(started, arranged, job.Shares)
			require.NoError(t, err)
			j := &slowJob{job: started, allocation: a, paths: done.paths, left: s.Iterations,
				steps: stepsOf(job, done.paths, s.Iterations), computing: true}
			j.work = j.steps[0].wait
			s.out[started].Start = now
			active = append(active, j)
			for _, other := range active {
				if p, ok := done.moved[other.job]; ok {
					other.paths = p
				}
				if slices.Contains(done.dark, other.job) {
					other.dark = now + s.Fabric.DarkSeconds
				}
			}
		}
	}
}

// rates fills links by raising all rates together.
func (s *slowSimulation) rates(active []*slowJob, now float64) []float64 {
	rate := make([]float64, len(active))
	open := make([]bool, len(active))
	limit := make([]float64, len(active))
	uses := make([][]fairshare.Use, len(active))
	for i, j := range active {
		if j.computing {
			rate[i] = 1
			continue
		}
		st := &j.steps[j.at]
		limit[i], uses[i] = j.paths[st.phase].limit, j.paths[st.phase].uses
		open[i] = !(j.dark > now && len(uses[i]) > 0)
	}
	for slices.Contains(open, true) {
		left, flows := slices.Clone(s.capacity), make([]float64, len(s.capacity))
		for i := range active {
			for _, u := range uses[i] {
				left[u.Link] -= u.Flows * rate[i]
				if open[i] {
					flows[u.Link] += u.Flows
				}
			}
		}
		step := math.Inf(1)
		for i := range active {
			if open[i] {
				step = min(step, limit[i]-rate[i])
				for _, u := range uses[i] {
					step = min(step, max(0, left[u.Link])/flows[u.Link])
				}
			}
		}
		for i := range active {
			if open[i] {
				rate[i] += step
			}
		}
		for i := range active {
			for _, u := range uses[i] {
				if open[i] && left[u.Link]-step*flows[u.Link] < 1e-9 {
					open[i] = false
				}
			}
			if rate[i] >= limit[i]-1e-12 {
				open[i] = false
			}
		}
	}
	return rate
}

func TestSimulateAsSlow(t *testing.T) {
	for k, f := range tiny(t) {
		for seed := range uint64(3) {
			c := Config{Fabric: f, Jobs: randomJobs(seed, 25, f.GPUs), Iterations: 3, Seed: seed}
			got, err := Simulate(context.Background(), c)
			require.NoError(t, err)
			net, err := newNetwork(&f, seed)
			require.NoError(t, err)
			want := slowSimulation{Config: &c}
			want.run(t, net)
			for i, o := range got.Outcomes {
				if w := want.out[i]; math.Abs(o.Start-w.Start) > 1e-3 || math.Abs(o.Finish-w.Finish) > 1e-3 {
					t.Fatalf("%d %s, seed %d: job %d runs %v to %v, want %v to %v", k, f.Name, seed, i, o.Start, o.Finish, w.Start,
						w.Finish)
				}
			}
		}
	}
}

// TestConservation checks that all bytes of jobs are carried, and that no job is faster than alone. Jobs
// start in their order, and never hold more GPUs than there are.
func TestConservation(t *testing.T) {
	for _, f := range tiny(t) {
		jobs := randomJobs(11, 120, f.GPUs)
		ended := 0
		r, err := Simulate(context.Background(), Config{Fabric: f, Jobs: jobs, Iterations: 5, Seed: 2,
			Progress: func(n int) { ended = n }})
		require.NoError(t, err)
		if ended != len(jobs) {
			t.Errorf("%s: progress has stopped at %d", f.Name, ended)
		}
		last := 0.0
		for i, o := range r.Outcomes {
			j := &jobs[i]
			asked := 0.0
			for _, share := range j.Shares {
				asked += share * j.Duration
			}
			if math.Abs(o.Carried-asked) > 1e-6*(1+asked) || math.Abs(o.Ideal-asked) > 1e-6*(1+asked) {
				t.Fatalf("%s: job %d: %v carried of %v", f.Name, i, o.Carried, asked)
			}
			if run := o.Finish - o.Start; run < j.Duration*(1-1e-9) || f.Kind == Best && run > j.Duration*(1+1e-9) {
				t.Fatalf("%s: job %d runs %v, alone %v", f.Name, i, run, j.Duration)
			}
			if o.Start < last || o.Start < j.Arrival {
				t.Fatalf("%s: job %d starts at %v, after one at %v", f.Name, i, o.Start, last)
			}
			last = o.Start
			gpus := 0
			for k, p := range r.Outcomes {
				if p.Start <= o.Start && o.Start < p.Finish {
					gpus += jobs[k].GPUs
				}
			}
			if gpus > f.GPUs {
				t.Fatalf("%s: %d GPUs in use at %v", f.Name, gpus, o.Start)
			}
		}
	}
}

// TestProgress: the phases of jobs bound the number of events, and jobs carry all their bytes, even if phases are
// shorter than the distance between two doubles. An event is an arrival, the end of a computation, of a phase or of a
// dark time, or void. An event that is not void makes at most one void event for each job.
func TestProgress(t *testing.T) {
	for _, f := range tiny(t) {
		jobs := randomJobs(4, 40, f.GPUs)
		r := rand.New(rand.NewPCG(4, 4))
		at, bound := 0.0, 0
		const iterations = 3
		for i := range jobs {
			at += math.Pow(10, 15*r.Float64()-3)
			jobs[i].Arrival, jobs[i].Duration = at, math.Pow(10, 15*r.Float64()-9)
			bound += 1 + i + 2*int(place.NumPhases)*iterations // dark times: one for each start of a later job
		}
		out, err := Simulate(context.Background(), Config{Fabric: f, Jobs: jobs, Iterations: iterations, Seed: 2})
		require.NoError(t, err)
		if out.Events > bound*(1+len(jobs)) {
			t.Errorf("%s: %d events, at most %d", f.Name, out.Events, bound*(1+len(jobs)))
		}
		for i, o := range out.Outcomes {
			if math.Abs(o.Carried-o.Ideal) > 1e-9*o.Ideal {
				t.Errorf("%s: job %d has carried %v of %v", f.Name, i, o.Carried, o.Ideal)
			}
		}
	}
}

// stub routes jobs as a test says.
type stub struct {
	links []float64
	jobs  []admission
}

func (s *stub) capacities() []float64 { return s.links }
func (s *stub) release(int)           {}
func (s *stub) admit(job int, _ *place.Arrangement, _ place.Volume) (admission, error) {
	return s.jobs[job], nil
}

func replicas(p path) admission {
	var a admission
	a.paths[place.Replicas] = p
	return a
}

// TestByHand: two jobs of 100 s, half of it communication, meet on a link, and a third one moves and darkens
// the first.
func TestByHand(t *testing.T) {
	f, _ := ParseFabric("best", 64)
	f.DarkSeconds = 7
	job := func(name string, at float64) Job {
		return Job{Name: name, Arrival: at, Duration: 100, GPUs: 16, Grid: place.Grid{PP: 1, DP: 2, EP: 1},
			Shares: place.Volume{place.Replicas: 0.5}}
	}
	on := func(link int32, flows float64) path { return path{[]fairshare.Use{{Link: link, Flows: flows}}, 1} }
	for _, c := range []struct {
		name  string
		jobs  []Job
		links []float64
		paths []admission
		want  []float64
	}{
		{"alone", []Job{job("a", 0)}, []float64{1}, []admission{replicas(on(0, 1))}, []float64{100}},
		{"both at once", []Job{job("a", 0), job("b", 0)}, []float64{1}, []admission{replicas(on(0, 1)), replicas(on(0, 1))},
			[]float64{150, 150}},
		// b joins at 70, when a has 30 of 50 left: both at 1/2 until a ends at 130, b has 20 left.
		{"one after the other", []Job{job("a", 0), job("b", 20)}, []float64{1},
			[]admission{replicas(on(0, 1)), replicas(on(0, 1))}, []float64{130, 150}},
		// Every flow gets a quarter.
		{"three flows and one", []Job{job("a", 0), job("b", 0)}, []float64{1},
			[]admission{replicas(on(0, 3)), replicas(on(0, 1))}, []float64{250, 250}},
	} {
		r, err := simulate(context.Background(), &Config{Fabric: f, Jobs: c.jobs, Iterations: 1}, &stub{c.links, c.paths})
		require.NoError(t, err)
		for i, o := range r.Outcomes {
			if math.Abs(o.Finish-c.want[i]) > 1e-9 {
				t.Errorf("%s: job %d ends at %v, want %v", c.name, i, o.Finish, c.want[i])
			}
		}
	}
	// c arrives at 60, when a has 40 left on link 0, and takes a to link 1, of half the rate; both are
	// dark until 67. a ends at 67 + 40 x 2; c computes until 110 and has link 0 for itself.
	third := replicas(on(0, 1))
	third.moved = map[int]paths{0: replicas(on(1, 1)).paths}
	third.dark = []int{0, 1}
	r, err := simulate(context.Background(), &Config{Fabric: f, Jobs: []Job{job("a", 0), job("c", 60)}, Iterations: 1},
		&stub{[]float64{1, 0.5}, []admission{replicas(on(0, 1)), third}})
	require.NoError(t, err)
	if a, c := r.Outcomes[0].Finish, r.Outcomes[1].Finish; math.Abs(a-147) > 1e-9 || math.Abs(c-160) > 1e-9 {
		t.Errorf("they end at %v and %v, want 147 and 160", a, c)
	}
}

func TestSimulateRefuses(t *testing.T) {
	f, _ := ParseFabric("lumos-1-25.6", 512)
	good := randomJobs(1, 5, 512)
	for _, c := range []struct {
		want string
		bad  func(*Config)
	}{
		{"0 jobs", func(c *Config) { c.Jobs = nil }},
		{"0 iterations", func(c *Config) { c.Iterations = 0 }},
		{"arrives before", func(c *Config) { c.Jobs[3].Arrival = 0 }},
		{"duration -1", func(c *Config) { c.Jobs[3].Duration = -1 }},
		{"duration NaN", func(c *Config) { c.Jobs[3].Duration = math.NaN() }},
		{"0 GPUs", func(c *Config) { c.Jobs[3].GPUs = 0 }},
		{"its grid is", func(c *Config) { c.Jobs[3].GPUs += 8 }},
		{"do not fit", func(c *Config) { c.Jobs[3].GPUs, c.Jobs[3].Grid = 1024, place.Grid{PP: 128, DP: 1, EP: 1} }},
		{"do not fit", func(c *Config) { c.Jobs[3].GPUs, c.Jobs[3].Grid = 128, place.Grid{PP: 1, DP: 16, EP: 16} }},
		{"of an iteration", func(c *Config) { c.Jobs[3].Shares[place.Tokens] = 2 }},
		{"tau 3", func(c *Config) { c.Fabric.Tau = 3 }},
		{"pods of 64", func(c *Config) { c.Fabric.GPUs = 96 }},
		{"multiple of 8", func(c *Config) { c.Fabric.GPUs = 511 }},
		{"dark for -1", func(c *Config) { c.Fabric.DarkSeconds = -1 }},
		{"routing central", func(c *Config) { c.Fabric.Kind, c.Fabric.Tiers, c.Fabric.Routing = Clos, 3, Central }},
	} {
		config := Config{Fabric: f, Jobs: slices.Clone(good), Iterations: 2}
		c.bad(&config)
		if _, err := Simulate(context.Background(), config); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
	for _, name := range []string{"", "clos", "clos-3", "clos-x-25.6", "clos-3-x", "clos-2-25.6", "ring-1-1",
		"lumos-3-25.6", "lumos-1-1", "clos-3--1", "lumos-1-1e300"} {
		if _, err := ParseFabric(name, 4096); !errors.Is(err, ErrInput) {
			t.Errorf("%q: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Simulate(ctx, Config{Fabric: f, Jobs: good, Iterations: 2}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestFilled: at a workload level near 1 a cluster of 16384 GPUs is full and jobs wait; at the paper's level hardly
// one does.
func TestFilled(t *testing.T) {
	f, err := ParseFabric("best", 16384)
	require.NoError(t, err)
	for _, c := range []struct {
		level         float64
		jobs          int
		busy          [2]float64
		fewest, waits int
	}{{0.655, 1000, [2]float64{0.4, 0.66}, 0, 0}, {1, 3000, [2]float64{0.8, 1}, 1500, 3000}} {
		jobs, err := Generate(Spec{Jobs: c.jobs, GPUs: f.GPUs, Level: c.level, Seed: 1, ServerGPUs: f.ServerGPUs})
		require.NoError(t, err)
		r, err := Simulate(context.Background(), Config{Fabric: f, Jobs: jobs, Iterations: 1, Seed: 1})
		require.NoError(t, err)
		if s := r.Summarize(jobs); s.Waited < c.fewest || s.Waited > c.waits || s.Busy < c.busy[0] || s.Busy > c.busy[1] {
			t.Errorf("level %v: %d of %d jobs wait, %.3f of the GPUs are busy", c.level, s.Waited, c.jobs, s.Busy)
		}
	}
}
