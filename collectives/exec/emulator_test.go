package exec

import (
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"lightpath/collectives/program"
	"lightpath/collectives/program/programtest"
	"lightpath/collectives/schedule"
	"lightpath/collectives/transport/port"
	"lightpath/internal/require"
	"lightpath/ocsctl"
	"lightpath/ocsctl/controller/local"
	"lightpath/ocsctl/emulator"
	"lightpath/plans"
	"lightpath/plans/circuit"
)

// TestEmulator runs calls one after another over the emulated switch and its ports, with a goroutine per rank. Each
// call begins with the maps that the previous one has left.
func TestEmulator(t *testing.T) {
	for _, tc := range []struct {
		c         schedule.Collective
		algorithm string
	}{
		{schedule.AllReduce, "rabenseifner"}, {schedule.AllReduce, "recursive-doubling"},
		{schedule.AllToAll, "pairwise"}, {schedule.AllToAll, "direct"},
	} {
		t.Run(tc.c.String()+"/"+tc.algorithm, func(t *testing.T) {
			s, err := schedule.Build(tc.c, tc.algorithm, 4, 0)
			require.NoError(t, err)
			emulated(t, s)
		})
	}
}

// lease is a port as used by the ranks of one holder.
type lease struct {
	*emulator.Client
	holder uint64
}

// Post implements [Switch].
func (l lease) Post(plane int, epoch uint32, target circuit.Permutation) error {
	return l.Client.Post(plane, epoch, l.holder, target)
}

func emulated(t *testing.T, s *schedule.Schedule) {
	const planes, count, calls = 2, 3000, 3
	rng := rand.New(rand.NewPCG(11, uint64(s.Collective)))
	problem, stepOf, err := schedule.Problem(s, count*4*float64(s.Blocks[schedule.Input]),
		&plans.Problem{Planes: planes, BandwidthGbps: 1, Forwarding: true})
	require.NoError(t, err)
	plan := programtest.RandomPlan(problem, rng)
	progs, err := lowerAll(s, plan, program.Args{Count: count, ElemSize: 4, Problem: problem, StepOf: stepOf})
	require.NoError(t, err)
	cfg := emulator.Config{Ports: s.Ranks, Slots: 4, MTU: 1024 + emulator.LabelSize, Initial: plan.Initial,
		Socket: filepath.Join(t.TempDir(), "ocs")}
	for range planes {
		cfg.Planes = append(cfg.Planes, emulator.PlaneConfig{BandwidthBitsPerSec: 2e9, Reconfig: time.Millisecond})
	}
	server, err := emulator.Start(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Close() })
	endpoints, clients := make([]*port.Endpoint, s.Ranks), make([]*emulator.Client, s.Ranks)
	for r := range endpoints {
		l, err := local.Dial(cfg.Socket, r, "")
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		c, err := emulator.Attach(l)
		require.NoError(t, err)
		clients[r] = c
		if endpoints[r], err = port.New(port.Options{Rank: r, Ranks: s.Ranks, Ports: c.Ports(), MTU: c.MTU()}); err != nil {
			t.Fatal(err)
		}
	}
	const holder = 1
	if _, err := clients[0].Acquire(ocsctl.Lease{Mask: 1<<planes - 1, Holder: holder}); err != nil {
		t.Fatal(err)
	}
	base := make([]uint32, planes)
	for op := range uint64(calls) {
		tm := assemble(t, programtest.NewCase(s, count, 1, op), progs, false, func(r int, c *Call) {
			c.Endpoint, c.OCS, c.Op = endpoints[r], lease{clients[r], holder}, op
			c.Base = append([]uint32(nil), base...)
		})
		errs := make(chan error, s.Ranks)
		for _, task := range tm.tasks {
			go func() { errs <- Run([]*Task{task}, patience) }()
		}
		for range tm.tasks {
			require.NoError(t, <-errs)
		}
		tm.verify(t)
		for j := range base {
			base[j] += uint32(len(progs[0].Configs[j]) - 1)
		}
	}
}
