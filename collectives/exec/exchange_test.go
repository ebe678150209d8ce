package exec

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"lightpath/collectives/program"
	"lightpath/internal/require"
	"lightpath/plans"
	"lightpath/plans/check"
	"lightpath/plans/circuit"
	"lightpath/plans/spectra"
)

// parcel is one message of an exchange.
type parcel struct {
	src, dst int
	out, in  []byte
}

// randomParcels returns messages of random sizes. Some pairs have several, some none, and ranks also send to
// themselves.
func randomParcels(rng *rand.Rand, n int) []parcel {
	var all []parcel
	scale := []int{1, 40, 2000}[rng.IntN(3)]
	for range rng.IntN(3*n + 1) {
		size := 0
		switch rng.IntN(4) {
		case 0:
		case 1:
			size = rng.IntN(4 * scale)
		default:
			size = rng.IntN(scale + 1)
		}
		p := parcel{src: rng.IntN(n), dst: rng.IntN(n), out: make([]byte, size), in: make([]byte, size)}
		for i := range p.out {
			p.out[i] = byte(rng.Uint32())
		}
		all = append(all, p)
	}
	return all
}

// demandOf returns the demand matrix of parcels.
func demandOf(n int, all []parcel) [][]float64 {
	d := make([][]float64, n)
	for r := range d {
		d[r] = make([]float64, n)
	}
	for _, p := range all {
		if p.src != p.dst {
			d[p.src][p.dst] += float64(len(p.out))
		}
	}
	return d
}

func boxesOf(n int, all []parcel) []mailbox {
	boxes := make([]mailbox, n)
	for _, p := range all {
		size := int64(len(p.out))
		s, d := &boxes[p.src], &boxes[p.dst]
		s.sends, s.out = append(s.sends, program.Message{Peer: p.dst, Bytes: size}), append(s.out, p.out)
		d.recvs, d.in = append(d.recvs, program.Message{Peer: p.src, Bytes: size}), append(d.in, p.in)
	}
	return boxes
}

// TestExchange runs random exchanges one after another on the same planes. Each begins with the maps that the previous
// one has left. The planes lose every frame that a rank sends too early or too late.
func TestExchange(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { exchangeAll(t, seed) })
	}
}

func exchangeAll(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 11))
	n, planes := []int{1, 2, 3, 5, 8}[rng.IntN(5)], 1+rng.IntN(4)
	standing := make([]circuit.Permutation, planes)
	for j := range standing {
		standing[j] = circuit.AllDark(n)
		if rng.IntN(2) == 0 {
			standing[j] = circuit.Permutation(rng.Perm(n))
		}
	}
	f := newFabric(n, 2+rng.IntN(3), standing, seed)
	f.steer = rng.IntN(2) == 0
	ends := make([]*fakePort, n)
	pairs := make([]*Pairs, n)
	for r := range ends {
		ends[r], pairs[r] = f.endpoint(r), NewPairs(n)
	}
	base := f.bases() // a plan's last switch may be under way when the exchange has ended
	for range 3 {
		all := randomParcels(rng, n)
		plan := planExchange(t, rng, demandOf(n, all), planes, standing)
		var tasks []*Task
		next := slices.Clone(base)
		for r, m := range boxesOf(n, all) {
			prog, err := program.LowerExchange(program.ExchangeArgs{Rank: r, Ranks: n, Plan: plan, Current: standing},
				m.sends, m.recvs)
			require.NoError(t, err)
			call := Call{Program: prog, Comm: 7, Endpoint: ends[r], OCS: ends[r], Base: base, Pairs: pairs[r]}
			for _, b := range append(append([][]byte(nil), m.out...), m.in...) {
				call.Messages = append(call.Messages, BufferOf(b))
			}
			task := new(Task)
			require.NoError(t, task.Bind(call))
			tasks = append(tasks, task)
			if r+1 < n {
				continue
			}
			standing = last(prog.Configs)
			for j := range next {
				next[j] += prog.Switches(j)
			}
		}
		if err := Run(tasks, patience); err != nil {
			t.Fatalf("%d ranks, %d planes: %v", n, planes, err)
		}
		if f.lost != nil {
			t.Fatal(f.lost)
		}
		for i, p := range all {
			if !bytes.Equal(p.in, p.out) {
				t.Fatalf("%d ranks, %d planes: message %d, %d bytes from %d to %d, differs", n, planes, i, len(p.out), p.src, p.dst)
			}
		}
		base = next
	}
}

func last(configs [][]circuit.Permutation) []circuit.Permutation {
	var maps []circuit.Permutation
	for _, c := range configs {
		maps = append(maps, c[len(c)-1])
	}
	return maps
}

// planExchange plans a matrix by SPECTRA or in plain order, optionally adapted to the present maps, and checks the
// plan.
func planExchange(t *testing.T, rng *rand.Rand, d [][]float64, planes int, standing []circuit.Permutation) *plans.Plan {
	t.Helper()
	problem := &plans.Problem{
		Version: plans.Version, Ranks: len(d), Planes: planes, BandwidthGbps: 1, ReconfigUS: 8,
		Circuits: plans.Simplex, Demand: d,
	}
	plan, err := spectra.Plain(problem)
	if rng.IntN(3) > 0 {
		plan, err = spectra.Solve(context.Background(), problem, spectra.Options{Mode: spectra.Fast})
	}
	require.NoError(t, err)
	if rng.IntN(3) > 0 {
		plan, _ = spectra.From(problem, plan, standing)
	}
	if _, err := check.Check(problem, plan); err != nil {
		t.Fatal(err)
	}
	return plan
}

func TestExchangeRefused(t *testing.T) {
	dark := []circuit.Permutation{circuit.AllDark(2)}
	args := program.ExchangeArgs{Ranks: 2, Plan: &plans.Plan{Planes: make([][]plans.Entry, 1)}, Current: dark}
	to1 := []program.Message{{Peer: 1, Bytes: 5}}
	if _, err := program.LowerExchange(args, to1, nil); !errors.Is(err, program.ErrPlan) {
		t.Errorf("no circuit: %v", err)
	}
	_, err := program.LowerExchange(args, nil, []program.Message{{Peer: 0, Bytes: 5}})
	if !errors.Is(err, program.ErrUnmatched) {
		t.Errorf("receive from itself: %v", err)
	}
	args.Rank = 2
	if _, err := program.LowerExchange(args, nil, nil); !errors.Is(err, program.ErrArgs) {
		t.Errorf("rank 2 of 2: %v", err)
	}
	args.Rank = 0
	args.Plan.Planes[0] = []plans.Entry{{Kind: plans.Transmit, Bytes: 5}}
	if _, err := program.LowerExchange(args, to1, nil); !errors.Is(err, program.ErrPlan) {
		t.Errorf("a plan of steps: %v", err)
	}
}
