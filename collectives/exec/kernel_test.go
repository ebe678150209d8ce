package exec

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"lightpath/collectives/datatype"
	"lightpath/collectives/program"
	"lightpath/collectives/program/programtest"
	"lightpath/collectives/schedule"
	"lightpath/collectives/schedule/oracle"
	"lightpath/internal/require"
	"lightpath/plans"
)

// TestKernel runs every schedule with random plans that split, forward and reconfigure, over planes in the kernel.
// These lose every frame that is sent too early or too late. The results equal those of the oracle.
func TestKernel(t *testing.T) {
	for _, shape := range []struct{ ranks, planes, window int }{{2, 1, 0}, {3, 2, 0}, {5, 1, 2}, {8, 2, 0}} {
		if testing.Short() && shape.ranks > 5 {
			continue
		}
		t.Run(fmt.Sprintf("%dx%d-window%d", shape.ranks, shape.planes, shape.window), func(t *testing.T) {
			t.Parallel()
			p := newPanel(t, shape.ranks, shape.planes, shape.window, "20Gbps")
			op := uint64(0)
			schedules(t, shape.ranks, func(t *testing.T, s *schedule.Schedule, rng *rand.Rand) {
				if t.Failed() || p.broken {
					t.Skip("the planes have failed before")
				}
				op++
				p.collective(t, s, op, rng)
			})
		})
	}
}

// counts are numbers of elements: none, one, odd, and more than fit into any window.
var counts = []int64{0, 1, 7, 1001, 60_001}

// collective runs one operation, each rank on a goroutine, and checks it.
func (p *panel) collective(t *testing.T, s *schedule.Schedule, op uint64, rng *rand.Rand) {
	t.Helper()
	typ, red := datatype.Type(rng.IntN(int(datatype.NumTypes))), datatype.Op(rng.IntN(int(datatype.Avg)))
	count := counts[rng.IntN(len(counts))]
	size := float64(max(count, 1) * int64(typ.Size()) * int64(max(s.Blocks[schedule.Input], s.Blocks[schedule.Output])))
	problem, stepOf, err := schedule.Problem(s, size, &plans.Problem{Planes: len(p.planes), BandwidthGbps: 1,
		Forwarding: true})
	require.NoError(t, err)
	plan := programtest.RandomPlan(problem, rng)
	progs, err := lowerAll(s, plan, program.Args{Count: count, ElemSize: int64(typ.Size()), Problem: problem,
		StepOf: stepOf})
	require.NoError(t, err)
	inputs := make([][]byte, s.Ranks)
	for r := range inputs {
		inputs[r] = make([]byte, count*int64(typ.Size())*int64(s.BlocksAt(r, schedule.Input)))
		for i := range inputs[r] {
			inputs[r][i] = byte(rng.Uint32() & 0x3f) // no NaN: the payload of a NaN result is not defined
		}
	}
	want, err := oracle.Ordered(s, typ, red, inputs)
	require.NoError(t, err)
	p.install(t, plan.Initial)
	p.broken = true
	got, err := p.run(t, progs, op, inputs, datatype.Reduce(red, typ), nil)
	if err != nil {
		t.Fatalf("%v %v, %d elements: %v", typ, red, count, err)
	}
	p.broken = false
	for r := range want {
		if want[r] != nil && !bytes.Equal(got[r][:len(want[r])], want[r]) {
			t.Fatalf("%v %v, %d elements: rank %d differs", typ, red, count, r)
		}
	}
}

// run executes the programs of all ranks. It returns their outputs and the first error, which ends the other ranks.
// edit, if not nil, changes the call of a rank.
func (p *panel) run(t *testing.T, progs []*program.Program, op uint64, inputs [][]byte,
	reduce func(dst, src []byte), edit func(r int, c *Call)) ([][]byte, error) {
	t.Helper()
	base := p.bases()
	var tasks []*Task
	var poison atomic.Pointer[error]
	outputs, errs := make([][]byte, len(progs)), make(chan error, len(progs))
	for r, prog := range progs {
		outputs[r] = make([]byte, prog.Extent[schedule.Output])
		scratch := make([]byte, prog.ScratchBytes)
		task := new(Task)
		tasks = append(tasks, task)
		call := Call{
			Program: prog, Comm: 7, Op: op, Reduce: reduce, Endpoint: p.endpoints[r], OCS: p.client(r),
			Base: base, Poison: &poison,
			Buffers: [schedule.NumBuffers]Buffer{BufferOf(inputs[r]), BufferOf(outputs[r]), BufferOf(scratch)},
		}
		if edit != nil {
			edit(r, &call)
		}
		require.NoError(t, task.Bind(call))
		go func() { errs <- Run([]*Task{task}, &Options{Timeout: time.Minute, Yield: 1}) }()
	}
	var first error
	for range progs {
		if err := <-errs; err != nil && first == nil {
			first = err
			poison.Store(&err)
		}
	}
	if first != nil {
		for r, task := range tasks {
			w, _ := task.Waiting()
			t.Logf("rank %d waits for %v", r, w)
		}
		t.Log(p.state())
	}
	return outputs, first
}
