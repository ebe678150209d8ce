package program

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"lightpath/collectives/schedule"
)

// TestDependenciesAreExact checks that Deps orders exactly the pairs of instructions that access the same bytes with at
// least one write: each such pair through a chain of Deps, and no other pair directly.
func TestDependenciesAreExact(t *testing.T) {
	for _, n := range []int{2, 4, 5, 8} {
		eachSchedule(t, n, func(t *testing.T, s *schedule.Schedule) {
			rng := rand.New(rand.NewPCG(uint64(n), 4))
			args := Args{Rank: rng.IntN(n), Planes: 2, Count: 37, ElemSize: 4, InPlace: rng.IntN(2) == 0, MinPiece: 8}
			p, err := Lower(s, nil, args)
			if err != nil {
				t.Fatal(err)
			}
			l := &lowering{s: s, p: p, args: args, me: args.Rank}
			reach := make([]map[ID]bool, len(p.Code))
			for i := range p.Code {
				reach[i] = map[ID]bool{}
				for _, d := range p.Code[i].Deps {
					if d >= ID(i) || !l.conflict(ID(i), d) {
						t.Fatalf("instruction %d depends on %d for nothing", i, d)
					}
					reach[i][d] = true
					for r := range reach[d] {
						reach[i][r] = true
					}
				}
				for j := ID(0); j < ID(i); j++ {
					if l.conflict(ID(i), j) && !reach[i][j] {
						t.Fatalf("instruction %d does not follow %d", i, j)
					}
				}
				if got := p.NumDeps[i]; int(got) != len(p.Code[i].Deps) {
					t.Fatalf("instruction %d: %d dependencies counted", i, got)
				}
				for _, d := range p.Code[i].Deps {
					if !slices.Contains(p.Successors(d), ID(i)) {
						t.Fatalf("instruction %d is no successor of %d", i, d)
					}
				}
			}
		})
	}
}

// conflict reports whether two instructions conflict, by comparing all segments.
func (l *lowering) conflict(a, b ID) bool {
	overlap := func(x, y []Segment) bool {
		for _, g := range x {
			for _, h := range y {
				m, k := l.at(g), l.at(h)
				if m.space == k.space && m.off < k.off+h.Len && k.off < m.off+g.Len {
					return true
				}
			}
		}
		return false
	}
	p, q := &l.p.Code[a], &l.p.Code[b]
	return overlap(p.Dst, q.Dst) || overlap(p.Src, q.Dst) || overlap(p.Dst, q.Src)
}

func move(src, dst int, from, to schedule.Ref, reduce bool) schedule.Move {
	return schedule.Move{Src: src, Dst: dst, From: from, To: to, Count: 1, Reduce: reduce}
}

// TestBadSchedules checks the errors for schedules that would deadlock or read undefined data.
func TestBadSchedules(t *testing.T) {
	in, out := schedule.Ref{Buf: schedule.Input}, schedule.Ref{Buf: schedule.Output}
	for _, tc := range []struct {
		name  string
		steps []schedule.Step
		args  Args
		want  error
	}{
		{"exchange in place", []schedule.Step{{Transfers: []schedule.Move{move(0, 1, out, out, true),
			move(1, 0, out, out, true)}}}, Args{}, ErrSchedule},
		{"reads what it writes", []schedule.Step{{Transfers: []schedule.Move{move(0, 0, in, out, false),
			move(0, 0, out, schedule.Ref{Buf: schedule.Scratch}, false)}}}, Args{}, ErrSchedule},
		{"beyond the buffer", []schedule.Step{{Transfers: []schedule.Move{move(0, 1, in,
			schedule.Ref{Buf: schedule.Output, Chunk: 1}, false)}}}, Args{}, ErrSchedule},
		{"unscaled input", []schedule.Step{{Transfers: []schedule.Move{move(0, 1, in, out, false)}}}, Args{Scale: true},
			ErrUnsupported},
		{"stranger", []schedule.Step{{Transfers: []schedule.Move{move(0, 2, in, out, false)}}}, Args{}, ErrSchedule},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := &schedule.Schedule{Ranks: 2, Sub: 1, Blocks: [schedule.NumBuffers]int{1, 1, 1}, Steps: tc.steps}
			a := tc.args
			a.Planes, a.Count, a.ElemSize = 1, 8, 4
			if _, err := Lower(s, nil, a); !errors.Is(err, tc.want) {
				t.Fatalf("got %v, want %v", err, tc.want)
			}
		})
	}
}

func TestPairsToOneself(t *testing.T) {
	a := P2PArgs{Rank: 0, Ranks: 2, Planes: 2}
	one := []Message{{Peer: 0, Bytes: 8}}
	for _, tc := range []struct {
		name         string
		sends, recvs []Message
		want         error
		instructions int
	}{
		{"matched", one, one, nil, 1},
		{"empty", []Message{{Peer: 0}, {Peer: 1}}, []Message{{Peer: 0}}, nil, 0},
		{"no receive", one, nil, ErrUnmatched, 0},
		{"no send", nil, one, ErrUnmatched, 0},
		{"size", one, []Message{{Peer: 0, Bytes: 4}}, ErrUnmatched, 0},
		{"peer", []Message{{Peer: 2, Bytes: 4}}, nil, ErrArgs, 0},
		{"negative", nil, []Message{{Peer: 1, Bytes: -4}}, ErrArgs, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var p Program
			if err := BuildP2P(&p, a, tc.sends, tc.recvs); !errors.Is(err, tc.want) {
				t.Fatalf("got %v, want %v", err, tc.want)
			} else if err == nil && len(p.Code) != tc.instructions {
				t.Fatalf("%d instructions, want %d", len(p.Code), tc.instructions)
			}
		})
	}
}
