package exec

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"lightpath/collectives/program"
	"lightpath/collectives/program/programtest"
	"lightpath/collectives/schedule"
	"lightpath/internal/require"
	"lightpath/plans"
	"lightpath/plans/circuit"
)

// mix is a reduction whose result depends on the order and on every operand.
func mix(dst, src []byte) {
	for i := 0; i+4 <= len(dst); i += 4 {
		d, s := binary.LittleEndian.Uint32(dst[i:]), binary.LittleEndian.Uint32(src[i:])
		binary.LittleEndian.PutUint32(dst[i:], d*1000003+s)
	}
}

// randomSchedule returns a valid schedule of random moves and reductions. No transfer writes to memory that another
// transfer of its step reads or writes, and no move writes to Input.
func randomSchedule(n int, rng *rand.Rand) *schedule.Schedule {
	s := &schedule.Schedule{
		Collective: schedule.AllReduce, Algorithm: "random", Ranks: n, Sub: 1 + rng.IntN(3),
		Blocks: [schedule.NumBuffers]int{2, 2, 2},
	}
	for range 1 + rng.IntN(6) {
		st := schedule.Step{}
		used := map[[3]int]int{} // rank, buffer, chunk: 1 read, 2 written
		for range rng.IntN(3 * n) {
			m := randomMove(s, rng, rng.IntN(n), rng.IntN(n))
			if m.Src != m.Dst && free(used, m) {
				st.Transfers = append(st.Transfers, m)
			}
		}
		for range rng.IntN(3) {
			r := rng.IntN(n)
			m := randomMove(s, rng, r, r)
			m.Count = 1
			if m.From != m.To {
				st.Post = append(st.Post, m)
			}
		}
		s.Steps = append(s.Steps, st)
	}
	return s
}

func randomMove(s *schedule.Schedule, rng *rand.Rand, src, dst int) schedule.Move {
	chunks := 2 * s.Sub
	m := schedule.Move{Src: src, Dst: dst, Reduce: rng.IntN(2) == 0, Count: 1 + rng.IntN(s.Sub)}
	m.From = schedule.Ref{Buf: schedule.Buffer(rng.IntN(3)), Chunk: rng.IntN(chunks - m.Count + 1)}
	m.To = schedule.Ref{Buf: schedule.Output + schedule.Buffer(rng.IntN(2)), Chunk: m.From.Chunk % s.Sub}
	if at := m.To.Chunk + s.Sub; at+m.Count <= chunks && rng.IntN(2) == 0 {
		m.To.Chunk = at
	}
	return m
}

func free(used map[[3]int]int, m schedule.Move) bool {
	for i := range m.Count {
		from := [3]int{m.Src, int(m.From.Buf), m.From.Chunk + i}
		to := [3]int{m.Dst, int(m.To.Buf), m.To.Chunk + i}
		if used[from] == 2 || used[to] != 0 {
			return false
		}
	}
	for i := range m.Count {
		used[[3]int{m.Src, int(m.From.Buf), m.From.Chunk + i}] = 1
		used[[3]int{m.Dst, int(m.To.Buf), m.To.Chunk + i}] = 2
	}
	return true
}

// memories are the buffers of all ranks.
type memories [][schedule.NumBuffers][]byte

func (m memories) clone() memories {
	next := make(memories, len(m))
	for r := range m {
		for b := range m[r] {
			next[r][b] = append([]byte(nil), m[r][b]...)
		}
	}
	return next
}

// reference executes a schedule step by step, without a program.
func reference(s *schedule.Schedule, count int64, m memories) {
	at := func(m memories, rank int, ref schedule.Ref, chunks int) []byte {
		lo, _ := s.ChunkRange(ref.Chunk, count)
		_, hi := s.ChunkRange(ref.Chunk+chunks-1, count)
		return m[rank][ref.Buf][4*lo : 4*hi]
	}
	do := func(from memories, moves []schedule.Move) {
		for _, v := range moves {
			src, dst := at(from, v.Src, v.From, v.Count), at(m, v.Dst, v.To, v.Count)
			if v.Reduce {
				mix(dst, src)
			} else {
				copy(dst, src)
			}
		}
	}
	for _, st := range s.Steps {
		do(m.clone(), st.Transfers)
		do(m, st.Post)
	}
}

// TestRandomSchedules compares random schedules under random plans with the reference, with a reduction that depends on
// the order.
func TestRandomSchedules(t *testing.T) {
	for seed := uint64(0); seed < 60; seed++ {
		rng := rand.New(rand.NewPCG(seed, 6))
		n, count, planes := 2+rng.IntN(5), []int64{1, 5, 40}[rng.IntN(3)], 1+rng.IntN(3)
		s := randomSchedule(n, rng)
		start := make(memories, n)
		for r := range start {
			for b := range start[r] {
				start[r][b] = make([]byte, 2*4*count)
				for i := range start[r][b] {
					start[r][b][i] = byte(rng.Uint32())
				}
			}
		}
		want := start.clone()
		reference(s, count, want)
		problem, stepOf, err := schedule.Problem(s, float64(4*count),
			&plans.Problem{Planes: planes, BandwidthGbps: 1, Forwarding: true})
		require.NoError(t, err)
		for trial := range 5 { // the last two where the planes steer
			args := program.Args{Planes: planes, Count: count, ElemSize: 4, MinPiece: 8, Problem: problem, StepOf: stepOf}
			var plan *plans.Plan
			if trial > 0 {
				plan = programtest.RandomPlan(problem, rng)
			}
			progs, err := lowerAll(s, plan, args)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			got := start.clone()
			if err := Run(teamOn(t, progs, plan, got, rng, trial > 2), patience); err != nil {
				t.Fatalf("seed %d trial %d: %v", seed, trial, err)
			}
			for r := range want {
				for b := range want[r] {
					if !bytes.Equal(got[r][b], want[r][b]) {
						t.Fatalf("seed %d trial %d: rank %d buffer %d differs", seed, trial, r, b)
					}
				}
			}
		}
	}
}

// teamOn binds the programs to memories, on the planes that the plan needs.
func teamOn(t *testing.T, progs []*program.Program, plan *plans.Plan, m memories, rng *rand.Rand, steer bool) []*Task {
	t.Helper()
	var tasks []*Task
	var maps []circuit.Permutation
	if plan != nil {
		maps = plan.Initial
	}
	f := newFabric(len(progs), 2, maps, rng.Uint64())
	f.steer = steer
	packet := network(t, len(progs), len(progs[0].Lanes), rng.Uint64())
	for r, p := range progs {
		c := Call{Program: p, Comm: 1, Op: 1, Endpoint: packet[r], Reduce: mix}
		if plan != nil {
			e := f.endpoint(r)
			c.Endpoint, c.OCS, c.Base = e, e, f.bases()
		}
		for b := range c.Buffers {
			c.Buffers[b] = BufferOf(m[r][b])
		}
		task := new(Task)
		require.NoError(t, task.Bind(c))
		tasks = append(tasks, task)
	}
	return tasks
}
