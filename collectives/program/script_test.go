package program

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"lightpath/collectives/program/programtest"
	"lightpath/collectives/schedule"
	"lightpath/internal/require"
	"lightpath/plans"
	"lightpath/plans/circuit"
)

// band runs the scripts of all ranks like streams. Lanes run concurrently, and the messages of a group complete in any
// order that preserves the order of each pair of ranks.
type band struct {
	scripts []*Script
	mem     [][Area + 1][]byte
	next    [][]int // by rank and lane: position in the lane's batches
	lanes   [][][]int
	done    [][]bool
	open    map[[2]int]*group // by rank and batch
	serial  bool              // every rank's batches run one by one, as listed
	rng     *rand.Rand
	scale   uint32
}

// group has the messages of a running batch.
type group struct {
	left []Transfer
	lane int
}

func newBand(scripts []*Script, c *programtest.Case, inPlace bool, scale uint32, seed uint64) *band {
	b := &band{scripts: scripts, open: map[[2]int]*group{}, rng: rand.New(rand.NewPCG(seed, 3)), scale: scale}
	for r, s := range scripts {
		var mem [Area + 1][]byte
		mem[schedule.Input], mem[schedule.Output] = c.Buffers(r, inPlace)
		mem[schedule.Scratch], mem[Area] = make([]byte, s.ScratchBytes), make([]byte, s.AreaBytes)
		for _, m := range [][]byte{mem[schedule.Scratch], mem[Area]} {
			for i := range m {
				m[i] = byte(b.rng.Uint32())
			}
		}
		b.mem = append(b.mem, mem)
		lanes := make([][]int, len(s.Lanes))
		for i := range s.Batches {
			lanes[s.Batches[i].Lane] = append(lanes[s.Batches[i].Lane], i)
		}
		b.lanes = append(b.lanes, lanes)
		b.next = append(b.next, make([]int, len(lanes)))
		b.done = append(b.done, make([]bool, len(s.Batches)))
	}
	return b
}

func (b *band) at(r int, g Segment) []byte { return b.mem[r][g.Buf][g.Off : g.Off+g.Len] }

// run executes random steps until none is possible, and returns the unfinished batches.
func (b *band) run() error {
	for {
		var can []func() error
		left := 0
		for r, s := range b.scripts {
			for j := range s.Lanes {
				if b.next[r][j] == len(b.lanes[r][j]) {
					continue
				}
				left++
				if i := b.lanes[r][j][b.next[r][j]]; b.open[[2]int{r, i}] == nil && b.ready(r, i) {
					can = append(can, func() error { return b.begin(r, j, i) })
				}
			}
		}
		for key, g := range b.open {
			for k, t := range g.left {
				if t.Send && first(g.left[:k], t) {
					can = b.match(can, key, k)
				}
			}
		}
		switch {
		case left == 0:
			return nil
		case len(can) == 0:
			return fmt.Errorf("deadlock: %d lanes of all ranks are not done", left)
		}
		if err := can[b.rng.IntN(len(can))](); err != nil {
			return err
		}
	}
}

// ready reports whether a batch may begin.
func (b *band) ready(r, i int) bool {
	if b.serial {
		for _, done := range b.done[r][:i] {
			if !done {
				return false
			}
		}
	}
	for _, w := range b.scripts[r].Batches[i].Wait {
		if !b.done[r][w] {
			return false
		}
	}
	return true
}

// first reports whether message k is the first of its pair and direction.
func first(before []Transfer, t Transfer) bool {
	for _, o := range before {
		if o.Peer == t.Peer && o.Send == t.Send {
			return false
		}
	}
	return true
}

func (b *band) begin(r, j, i int) error {
	batch := &b.scripts[r].Batches[i]
	for _, w := range batch.Work {
		dst := b.at(r, w.Dst)
		a := append([]byte(nil), b.at(r, w.A)...)
		if len(a) != len(dst) || w.Reduce && w.B.Len != w.Dst.Len {
			return fmt.Errorf("rank %d batch %d: work of lengths %d, %d, %d", r, i, w.Dst.Len, w.A.Len, w.B.Len)
		}
		if w.Reduce {
			programtest.AddInto(a, b.at(r, w.B))
		}
		for k := uint32(1); w.Scale && k < b.scale; k++ {
			programtest.AddInto(a, b.at(r, w.A))
		}
		copy(dst, a)
	}
	b.open[[2]int{r, i}] = &group{left: append([]Transfer(nil), batch.Transfers...), lane: j}
	b.close(r, i)
	return nil
}

// match completes message k of a running group if the peer has begun it too.
func (b *band) match(can []func() error, key [2]int, k int) []func() error {
	send := b.open[key].left[k]
	lane := b.open[key].lane
	for to, g := range b.open {
		if to[0] != int(send.Peer) || g.lane != lane {
			continue
		}
		for m, t := range g.left {
			if !t.Send && int(t.Peer) == key[0] && first(g.left[:m], t) {
				return append(can, func() error {
					if t.At.Len != send.At.Len {
						return fmt.Errorf("rank %d sends %d bytes, rank %d receives %d", key[0], send.At.Len, to[0], t.At.Len)
					}
					copy(b.at(to[0], t.At), b.at(key[0], send.At))
					b.drop(key, k)
					if to == key {
						return fmt.Errorf("rank %d sends to itself", key[0])
					}
					b.drop(to, m)
					return nil
				})
			}
		}
	}
	return can
}

func (b *band) drop(key [2]int, k int) {
	g := b.open[key]
	g.left = append(g.left[:k:k], g.left[k+1:]...)
	b.close(key[0], key[1])
}

// close ends a batch after all its messages have completed.
func (b *band) close(r, i int) {
	if g := b.open[[2]int{r, i}]; len(g.left) == 0 {
		delete(b.open, [2]int{r, i})
		b.done[r][i] = true
		b.next[r][g.lane]++
	}
}

func perform(t *testing.T, c *programtest.Case, progs []*Program, inPlace bool, scale uint32, seed uint64) {
	t.Helper()
	var scripts []*Script
	for _, p := range progs {
		s, err := NewScript(p)
		require.NoError(t, err)
		scripts = append(scripts, s)
	}
	for _, serial := range []bool{false, true} {
		b := newBand(scripts, c, inPlace, scale, seed)
		b.serial = serial
		require.NoError(t, b.run())
		for r, want := range c.Want {
			if got := b.mem[r][schedule.Output]; want != nil && !bytes.Equal(got, want) {
				t.Fatalf("rank %d (serial %v): got %x\nwant %x", r, serial, got, want)
			}
		}
	}
}

func TestScripts(t *testing.T) {
	for n := 1; n <= 8; n++ {
		eachSchedule(t, n, func(t *testing.T, s *schedule.Schedule) {
			for i, count := range []int64{0, 1, 7, 64} {
				planes := 1 + (i+n)%3
				scale, args := uint32(1), Args{Planes: planes, Count: count, ElemSize: 4, InPlace: i%2 == 0, MinPiece: 16}
				if s.Collective.Reduces() && i%3 == 0 {
					scale, args.Scale = 3, true
				}
				progs, err := lowerAll(s, nil, args)
				require.NoError(t, err)
				perform(t, programtest.NewCase(s, count, scale, uint64(count)), progs, args.InPlace, scale, uint64(n*planes))
			}
		})
	}
}

// TestScriptsOfPlans checks that the messages of every stage use circuits of its map, and that each rank takes part in
// each reconfiguration once.
func TestScriptsOfPlans(t *testing.T) {
	performed := 0
	for n := 2; n <= 6; n++ {
		eachSchedule(t, n, func(t *testing.T, s *schedule.Schedule) {
			rng := rand.New(rand.NewPCG(uint64(n), 5))
			planes := 1 + rng.IntN(3)
			count := []int64{1, 7, 64}[rng.IntN(3)]
			bytes := float64(count * 4 * int64(max(s.Blocks[schedule.Input], s.Blocks[schedule.Output])))
			problem, stepOf, err := schedule.Problem(s, bytes, &plans.Problem{Planes: planes, BandwidthGbps: 1,
				Forwarding: true})
			require.NoError(t, err)
			args := Args{Count: count, ElemSize: 4, InPlace: rng.IntN(2) == 0, Problem: problem, StepOf: stepOf}
			progs, err := lowerAll(s, programtest.RandomPlan(problem, rng), args)
			require.NoError(t, err)
			for _, p := range progs {
				script, err := NewScript(p)
				if errors.Is(err, ErrUnsupported) {
					return // it forwards
				}
				require.NoError(t, err)
				checkStages(t, script)
			}
			performed++
			perform(t, programtest.NewCase(s, count, 1, 1), progs, args.InPlace, 1, uint64(n))
		})
	}
	if performed < 60 { // the others forward
		t.Errorf("%d plans without forwarding are few", performed)
	}
}

func checkStages(t *testing.T, s *Script) {
	t.Helper()
	for j, stages := range s.Stages {
		config, seen := 0, make([]int, len(stages))
		for _, b := range s.Batches {
			if b.Lane != j || len(b.Transfers) == 0 {
				continue
			}
			if b.Config < config || b.First != (seen[b.Config] == 0) {
				t.Fatalf("lane %d: a batch under map %d after one under %d, first %v", j, b.Config, config, b.First)
			}
			config = b.Config
			seen[config]++
			if b.Last != (seen[config] == stages[config].Batches) {
				t.Fatalf("lane %d map %d: batch %d of %d is last: %v", j, config, seen[config], stages[config].Batches, b.Last)
			}
			for _, m := range b.Transfers {
				from, to := s.Rank, int(m.Peer)
				if !m.Send {
					from, to = to, from
				}
				if s.Configs[j][config][from] != to {
					t.Fatalf("lane %d map %d joins rank %d with %d, not %d", j, config, from, s.Configs[j][config][from], to)
				}
			}
		}
		for k := range stages[1:] {
			if moves := s.Configs[j][k][s.Rank] != s.Configs[j][k+1][s.Rank]; stages[k].Moves != moves {
				t.Fatalf("lane %d: leaving map %d moves %v, want %v", j, k, stages[k].Moves, moves)
			}
		}
	}
}

func TestScriptCannotForward(t *testing.T) {
	s, err := schedule.Build(schedule.Broadcast, "direct", 3, 0)
	require.NoError(t, err)
	problem, stepOf, err := schedule.Problem(s, 4, &plans.Problem{Planes: 1, BandwidthGbps: 1, Forwarding: true})
	require.NoError(t, err)
	plan := &plans.Plan{Initial: []circuit.Permutation{circuit.Shift(3, 1)}, Planes: make([][]plans.Entry, 1)}
	for i := range problem.Steps {
		plan.Planes[0] = append(plan.Planes[0], plans.Entry{Kind: plans.Transmit, Step: i, Bytes: problem.Steps[i].Bytes})
	}
	p, err := Lower(s, plan, Args{Rank: 1, Count: 1, ElemSize: 4, Problem: problem, StepOf: stepOf})
	require.NoError(t, err)
	if _, err := NewScript(p); !errors.Is(err, ErrUnsupported) {
		t.Fatalf("got %v", err)
	}
}
