package check_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"lightpath/plans/delta/check"
	"lightpath/plans/delta/dag"
	"lightpath/plans/delta/internal/deltatest"
	"lightpath/plans/delta/sim"
)

// run returns a random job and a schedule of it.
func run(t *testing.T, seed uint64) (*dag.Graph, *dag.Schedule) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 6))
	g := deltatest.Random(rng, 30)
	net, err := sim.New(g)
	if err != nil {
		t.Fatal(err)
	}
	return g, net.NewRunner().Record(deltatest.Circuits(rng, g), nil)
}

// mutations break one rule each; they report false where the schedule has nothing to break.
var mutations = []struct {
	name, rule string
	bend       func(g *dag.Graph, s *dag.Schedule) bool
}{
	{"a task missing", "spans", func(_ *dag.Graph, s *dag.Schedule) bool {
		s.Spans = s.Spans[1:]
		return true
	}},
	{"circuits of another job", "circuit counts", func(_ *dag.Graph, s *dag.Schedule) bool {
		s.Circuits = append(s.Circuits, 1)
		return true
	}},
	{"too many circuits", "(5)", func(g *dag.Graph, s *dag.Schedule) bool {
		if len(s.Circuits) == 0 {
			return false
		}
		s.Circuits[0] += g.Pods[g.Links[0].Pods[0]].Ports
		return true
	}},
	{"no circuits", "(9)", func(g *dag.Graph, s *dag.Schedule) bool {
		for l := range s.Circuits {
			s.Circuits[l] = 0
		}
		return anyTransfer(g, s) >= 0
	}},
	{"bytes lost", "(11)", func(g *dag.Graph, s *dag.Schedule) bool {
		i := anyTransfer(g, s)
		if i >= 0 {
			s.Spans[i].Segments[0].Bytes *= 0.99
		}
		return i >= 0
	}},
	{"bytes twice", "(11)", func(g *dag.Graph, s *dag.Schedule) bool {
		i := anyTransfer(g, s)
		if i >= 0 {
			seg := s.Spans[i].Segments[0]
			seg.Start, seg.End = s.Spans[i].End, s.Spans[i].End+seg.End-seg.Start
			s.Spans[i].Segments = append(s.Spans[i].Segments, seg)
			s.Spans[i].End = seg.End
			s.Makespan = max(s.Makespan, seg.End)
		}
		return i >= 0
	}},
	{"bytes after the end", "(12)", func(g *dag.Graph, s *dag.Schedule) bool {
		i := anyTransfer(g, s)
		if i >= 0 {
			s.Spans[i].End -= 1
		}
		return i >= 0 && s.Spans[i].End > s.Spans[i].Start
	}},
	{"bytes before the start", "(14)", func(g *dag.Graph, s *dag.Schedule) bool {
		i := anyTransfer(g, s)
		if i >= 0 {
			s.Spans[i].Segments[0].Start -= 1
		}
		return i >= 0
	}},
	{"negative bytes", "(14)", func(g *dag.Graph, s *dag.Schedule) bool {
		i := anyTransfer(g, s)
		if i >= 0 {
			s.Spans[i].Segments[0].Bytes *= -1
		}
		return i >= 0
	}},
	{"a transfer twice as fast", "(10)", func(g *dag.Graph, s *dag.Schedule) bool {
		for l := range s.Circuits {
			s.Circuits[l] = 1 << 10 // so that (9) does not see it first
		}
		for p := range g.Pods {
			g.Pods[p].Ports = 1 << 14
		}
		for i := range s.Spans {
			span := &s.Spans[i]
			if len(span.Segments) == 1 && span.Segments[0].Bytes*1.01 > g.FullRate(&g.Tasks[i])*(span.End-span.Start) {
				span.Segments[0].End = (span.Start + span.End) / 2
				return true
			}
		}
		return false
	}},
	{"work too short", "takes", func(g *dag.Graph, s *dag.Schedule) bool {
		for i := range g.Tasks {
			if g.Tasks[i].Duration > 0 {
				s.Spans[i].End -= 1
				return true
			}
		}
		return false
	}},
	{"a start too early", "(16)", func(g *dag.Graph, s *dag.Schedule) bool {
		for _, d := range g.Deps {
			if to := &s.Spans[d.To]; to.Start >= s.Spans[d.From].End+d.Delay && to.Start > 1 {
				to.Start = s.Spans[d.From].End + d.Delay - 1
				return to.Start >= 0
			}
		}
		return false
	}},
	{"before time begins", "(15)", func(_ *dag.Graph, s *dag.Schedule) bool {
		s.Spans[0].Start -= 1e6
		return true
	}},
	{"a makespan too short", "(18)", func(_ *dag.Graph, s *dag.Schedule) bool {
		s.Makespan -= 1
		return s.Makespan > 0
	}},
	{"a makespan too long", "(18)", func(_ *dag.Graph, s *dag.Schedule) bool {
		s.Makespan += 1
		return true
	}},
}

func anyTransfer(g *dag.Graph, s *dag.Schedule) int {
	for i := range g.Tasks {
		if g.Tasks[i].Transfer() && len(s.Spans[i].Segments) > 0 {
			return i
		}
	}
	return -1
}

// TestMutations breaks each rule in many schedules: it must be found, and be named.
func TestMutations(t *testing.T) {
	for _, m := range mutations {
		t.Run(m.name, func(t *testing.T) {
			tried := 0
			for seed := range uint64(100) {
				g, s := run(t, seed)
				if err := check.Check(g, s); err != nil {
					t.Fatalf("seed %d, nothing broken: %v", seed, err)
				}
				if !m.bend(g, s) {
					continue
				}
				tried++
				err := check.Check(g, s)
				if !errors.Is(err, check.ErrSchedule) || !strings.Contains(err.Error(), m.rule) {
					t.Fatalf("seed %d: got %v, want %s", seed, err, m.rule)
				}
			}
			if tried < 20 {
				t.Fatalf("only %d schedules had something to break", tried)
			}
		})
	}
}

// TestSharedNIC: two transfers from one GPU, each at full rate, on links with circuits for both.
func TestSharedNIC(t *testing.T) {
	g := &dag.Graph{
		Gbps:  100,
		Pods:  []dag.Pod{{Name: "a", Ports: 4}, {Name: "b", Ports: 2}, {Name: "c", Ports: 2}},
		Links: []dag.Link{{Pods: [2]int{0, 1}, Ports: [2]int{1, 1}}, {Pods: [2]int{0, 2}, Ports: [2]int{1, 1}}},
		Tasks: []dag.Task{
			{Name: "ab", From: 0, To: 1, Flows: 1, Bytes: 1e6, Src: []int{0}, Dst: []int{1}},
			{Name: "ac", From: 0, To: 2, Flows: 1, Bytes: 1e6, Src: []int{0}, Dst: []int{2}},
		},
	}
	span := dag.Span{End: 80, Segments: []dag.Segment{{End: 80, Bytes: 1e6}}}
	s := &dag.Schedule{Circuits: dag.Circuits{1, 1}, Makespan: 80, Spans: []dag.Span{span, span}}
	if err := check.Check(g, s); err == nil || !strings.Contains(err.Error(), "GPU 0 sends") {
		t.Errorf("got %v", err)
	}
	g.Tasks[1].Src = []int{3}
	if err := check.Check(g, s); err != nil {
		t.Error(err)
	}
}
