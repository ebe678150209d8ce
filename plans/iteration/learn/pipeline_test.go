package learn

import (
	"math"
	"math/rand/v2"
	"testing"

	"lightpath/internal/require"
	"lightpath/plans/iteration/trace"
)

// pipeline is a 1F1B pipeline of one rank per stage. Each two neighbours have a communicator per direction, and sends
// run beside the program of their rank.
type pipeline struct {
	stages, batches int
	now             []float64   // by rank
	sent            [][]float64 // by communicator: when its sends were ready
	free            []float64   // by communicator: the end of its last message
	run             []Record
}

// towards returns the communicator from rank src to a neighbour: 2s is from s to s+1, 2s+1 back.
func towards(src, dst int) int { return 2*min(src, dst) + max(0, src-dst) }

func (p *pipeline) communicators() (list []trace.Communicator) {
	for s := range p.stages - 1 {
		list = append(list, trace.Communicator{Groups: [][]int{{s, s + 1}}}, trace.Communicator{Groups: [][]int{{s + 1, s}}})
	}
	return list
}

// step is one part of a rank's program: it receives, computes and sends. -1: there is no such rank.
type step struct{ from, to int }

// program returns the steps of a rank in an iteration: forwards ahead of the first backward, then one of each.
func (p *pipeline) program(rank int) (steps []step) {
	forward, backward := step{rank - 1, rank + 1}, step{rank + 1, rank - 1}
	if rank == p.stages-1 {
		forward.to, backward.from = -1, -1
	}
	ahead := min(p.batches, p.stages-1-rank)
	for k := range p.batches + ahead {
		if k < p.batches {
			steps = append(steps, forward)
		}
		if k >= ahead {
			steps = append(steps, backward)
		}
	}
	return steps
}

// iteration runs the pipeline once, with messages of us each. late is how much later a send begins than the program
// hands it over.
func (p *pipeline) iteration(us, compute float64, late func() float64) {
	received := make([]int, len(p.sent))
	for comm := range p.sent {
		p.sent[comm] = nil
	}
	at := make([]int, p.stages)
	for moved := true; moved; {
		moved = false
		for rank := range p.stages {
			steps := p.program(rank)
			for ; at[rank] < len(steps); at[rank]++ {
				s := steps[at[rank]]
				if s.from >= 0 {
					comm := towards(s.from, rank)
					k := received[comm]
					if k == len(p.sent[comm]) {
						break
					}
					received[comm]++
					p.message(comm, s.from, rank, math.Max(p.sent[comm][k], p.free[comm]), us)
				}
				p.now[rank] += compute
				if s.to >= 0 {
					comm := towards(rank, s.to)
					p.sent[comm] = append(p.sent[comm], p.now[rank]+late())
				}
				moved = true
			}
		}
	}
}

func (p *pipeline) message(comm, src, dst int, begin, us float64) {
	posted := p.now[dst]
	start := math.Max(begin, posted)
	end := start + us
	p.now[dst], p.free[comm] = end, end
	on := []Part{{Rank: src, StartUS: begin, EndUS: end}, {Rank: dst, StartUS: posted, EndUS: end, Receives: true}}
	if src > dst {
		on[0], on[1] = on[1], on[0]
	}
	c := trace.Call{Communicator: comm, Flows: [][2]int{{0, 1}}, Bytes: 8}
	p.run = append(p.run, Record{Call: c, StartUS: start, EndUS: end, On: on})
}

// TestPipeline: each communicator repeats one message for every micro-batch, but the iteration is that of all of them.
// Its trace takes as long as the pipeline does with messages of any time.
func TestPipeline(t *testing.T) {
	const optimizer = 3000.0
	run := func(iterations int, us, compute float64, late func() float64) (*pipeline, float64) {
		p := &pipeline{stages: 4, batches: 5, now: make([]float64, 4), sent: make([][]float64, 6), free: make([]float64, 6)}
		begin := 0.0
		for range iterations {
			begin = p.now[0]
			p.iteration(us, compute, late)
			for rank := range p.now {
				p.now[rank] += optimizer
			}
		}
		return p, p.now[0] - begin
	}
	r := rand.New(rand.NewPCG(2, 7))
	p, _ := run(20, 20, 500, func() float64 { return 60 * r.Float64() })
	f, err := Find(4, p.communicators(), p.run)
	require.NoError(t, err)
	if f.Period() != 30 || f.Repeats() < 18 {
		t.Fatalf("%d iterations of %d calls", f.Repeats(), f.Period())
	}
	took := make([]float64, f.Period())
	for _, us := range []float64{20, 1000, 8000} {
		for i := range took {
			took[i] = us
		}
		_, want := run(1, us, 500, func() float64 { return 30 })
		if got := f.Trace.Longest(took); math.Abs(got-want) > 0.05*want {
			t.Errorf("messages of %v us: iteration of %v us, want %v: %s", us, got, want, f.Trace.Encode())
		}
	}
}
