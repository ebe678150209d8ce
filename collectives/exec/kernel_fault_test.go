package exec

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"lightpath/collectives/datatype"
	"lightpath/collectives/program"
	"lightpath/collectives/schedule"
	"lightpath/collectives/schedule/oracle"
	"lightpath/collectives/transport"
	"lightpath/collectives/transport/transporttest"
	"lightpath/internal/assert"
	"lightpath/internal/require"
	"lightpath/plans"
	"lightpath/plans/planner"
)

// kernelCall is an AllReduce of int32 over four ranks, on one plane that switches between its steps.
type kernelCall struct {
	progs  []*program.Program
	plan   *plans.Plan
	inputs [][]byte
	want   [][]byte
}

func newKernelCall(t *testing.T, count int64) *kernelCall {
	t.Helper()
	s, err := schedule.Build(schedule.AllReduce, "rabenseifner", 4, 0)
	require.NoError(t, err)
	problem, stepOf, err := schedule.Problem(s, float64(4*count), &plans.Problem{
		Planes: 1, Circuits: plans.Simplex, BandwidthGbps: 1, ReconfigUS: 1, Final: plans.Final{Kind: plans.FinalInitial},
	})
	require.NoError(t, err)
	k := new(kernelCall)
	if k.plan, err = planner.Solve(context.Background(), "perstep", problem,
		planner.Options{TimeLimit: time.Second}); err != nil {
		t.Fatal(err)
	}
	if k.progs, err = lowerAll(s, k.plan, program.Args{Count: count, ElemSize: 4, Problem: problem,
		StepOf: stepOf}); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(3, 3))
	for range s.Ranks {
		in := make([]byte, 4*count)
		for i := range in {
			in[i] = byte(rng.Uint32())
		}
		k.inputs = append(k.inputs, in)
	}
	if k.want, err = oracle.Ordered(s, datatype.Int32, datatype.Sum, k.inputs); err != nil {
		t.Fatal(err)
	}
	return k
}

func (k *kernelCall) run(t *testing.T, p *panel, op uint64, edit func(r int, c *Call)) error {
	t.Helper()
	got, err := p.run(t, k.progs, op, k.inputs, datatype.Reduce(datatype.Sum, datatype.Int32), edit)
	if err != nil {
		return err
	}
	for r := range got {
		if !bytes.Equal(got[r], k.want[r]) {
			t.Errorf("rank %d differs", r)
		}
	}
	return nil
}

// TestKernelSkippedDrain checks that a rank reports the frames that are lost if their circuit moves.
func TestKernelSkippedDrain(t *testing.T) {
	p := newPanel(t, 4, 1, 0, "20Mbps")
	k := newKernelCall(t, 60_000)
	p.install(t, k.plan.Initial)
	err := k.run(t, p, 1, func(_ int, c *Call) { c.SkipDrain = func(int, uint32) bool { return true } })
	if !errors.Is(err, transport.ErrDark) {
		t.Fatal(err)
	}
	assert.Contains(t, err.Error(), "rank ", "plane 0", "epoch ", " dark")
}

// TestKernelDarkCircuit checks that the error for a missing circuit names the sender.
func TestKernelDarkCircuit(t *testing.T) {
	p := newPanel(t, 4, 1, 0, "1Gbps")
	k := newKernelCall(t, 10_000)
	p.install(t, k.plan.Initial)
	require.NoError(t, p.darken(0, []int{2}))
	err := k.run(t, p, 1, nil)
	if !errors.Is(err, transport.ErrDark) || !strings.Contains(err.Error(), "rank 2, plane 0") {
		t.Fatal(err)
	}
}

// TestKernelSlowRanks checks that slow ranks and ranks that refuse or shorten frames do not change the result.
func TestKernelSlowRanks(t *testing.T) {
	p := newPanel(t, 4, 1, 4, "5Gbps")
	for r, e := range p.endpoints {
		p.endpoints[r] = transporttest.WithFaults(e, uint64(r), transporttest.Faults{Short: 0.3, Refuse: 0.3, Delay: 0.5})
	}
	k := newKernelCall(t, 20_000)
	p.install(t, k.plan.Initial)
	for op := range uint64(3) {
		require.NoError(t, k.run(t, p, op, func(r int, c *Call) {
			if reduce := c.Reduce; r == 1 {
				c.Reduce = func(dst, src []byte) { time.Sleep(100 * time.Microsecond); reduce(dst, src) }
			}
		}))
	}
}
