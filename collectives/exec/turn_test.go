package exec

import (
	"testing"

	"lightpath/collectives/program"
	"lightpath/collectives/program/programtest"
	"lightpath/collectives/schedule"
	"lightpath/collectives/transport"
	"lightpath/collectives/transport/inproc"
	"lightpath/collectives/wire"
	"lightpath/internal/require"
)

// TestLocalWorkTakesTurns checks that a copy of many turns does not delay sends, and copies every byte.
func TestLocalWorkTakesTurns(t *testing.T) {
	const n = 2
	count := int64(3*localBytes/4 + 5) // elements of a block, of 4 bytes
	for _, k := range []struct {
		coll      schedule.Collective
		algorithm string
		inPlace   bool
	}{{schedule.AllToAll, "pairwise", false}, {schedule.AllGather, "ring", false}, {schedule.AllReduce, "ring", true}} {
		s, err := schedule.Build(k.coll, k.algorithm, n, 0)
		require.NoError(t, err)
		progs, err := lowerAll(s, nil, program.Args{Planes: 1, Count: count, ElemSize: 4, InPlace: k.inPlace,
			Scale: k.coll.Reduces()})
		require.NoError(t, err)
		endpoints, err := inproc.NewGroup(n, 1, inproc.Options{})
		require.NoError(t, err)
		scale := uint32(1)
		if k.coll.Reduces() {
			scale = 3
		}
		tm := assemble(t, programtest.NewCase(s, count, scale, 1), progs, k.inPlace,
			func(r int, c *Call) { c.Endpoint = endpoints[r] })
		first := tm.tasks[0]
		local := first.remaining
		if len(first.prog.Local) == 0 {
			t.Fatalf("%v: nothing local", k.coll)
		}
		if moved, err := first.poll(); !moved || err != nil {
			t.Fatal(moved, err)
		}
		if first.remaining != local {
			t.Errorf("%v: an operation of %d bytes was done in one turn", k.coll, 4*count)
		}
		if h, _, err := endpoints[1].Planes()[0].Peek(0); k.coll == schedule.AllToAll && (h == nil || err != nil) {
			t.Errorf("%v: nothing was sent before the copy: %v", k.coll, err)
		}
		require.NoError(t, Run(tm.tasks, patience))
		tm.verify(t)
		for _, e := range endpoints {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// blocked is an endpoint with a plane that carries nothing.
type blocked struct {
	transport.Endpoint
	planes []transport.Plane
}

func (b *blocked) Planes() []transport.Plane { return b.planes }

// gate is a plane that accepts and delivers nothing until it opens. sent counts the bytes that it has accepted.
type gate struct {
	transport.Plane
	shut *bool
	sent int64
}

func (g *gate) TrySend(h *wire.Header, payload []byte) (int, error) {
	if g.shut != nil && *g.shut {
		return 0, nil
	}
	n, err := g.Plane.TrySend(h, payload)
	g.sent += int64(n)
	return n, err
}

// TestBlockedPlaneHoldsNoOther blocks one plane and checks that the other planes carry all of their share.
func TestBlockedPlaneHoldsNoOther(t *testing.T) {
	const planes, count = 3, 60000
	for _, k := range []struct {
		coll      schedule.Collective
		algorithm string
		n         int
	}{
		{schedule.AllReduce, "ring", 2}, {schedule.AllReduce, "ring", 4}, {schedule.AllReduce, "ring", 5},
		{schedule.AllGather, "ring", 4},
		{schedule.ReduceScatter, "pairwise", 4}, {schedule.AllToAll, "pairwise", 5}, {schedule.Broadcast, "ring", 4},
	} {
		s, err := schedule.Build(k.coll, k.algorithm, k.n, 0)
		require.NoError(t, err)
		progs, err := lowerAll(s, nil, program.Args{Planes: planes, Count: count, ElemSize: 4, MinPiece: 64})
		require.NoError(t, err)
		endpoints, err := inproc.NewGroup(k.n, planes, inproc.Options{})
		require.NoError(t, err)
		shut := true
		gates := make([][]*gate, k.n)
		tm := assemble(t, programtest.NewCase(s, count, 1, 1), progs, false, func(r int, c *Call) {
			b := &blocked{Endpoint: endpoints[r]}
			for j, p := range endpoints[r].Planes() {
				g := &gate{Plane: p}
				if j == 1 {
					g.shut = &shut
				}
				gates[r], b.planes = append(gates[r], g), append(b.planes, g)
			}
			c.Endpoint = b
		})
		for idle := 0; idle < 100; idle++ {
			for _, task := range tm.tasks {
				moved, err := task.poll()
				require.NoError(t, err)
				if moved {
					idle = 0
				}
			}
		}
		for r, p := range progs {
			for j, g := range gates[r] {
				var share int64
				for _, id := range p.Lanes[j].TX {
					share += p.Code[id].Bytes
				}
				if j == 1 {
					share = 0
				}
				if g.sent != share {
					t.Errorf("%v over %d ranks: rank %d has sent %d bytes on plane %d while plane 1 was blocked, want %d", k.coll,
						k.n, r, g.sent, j, share)
				}
			}
		}
		shut = false
		require.NoError(t, Run(tm.tasks, patience))
		tm.verify(t)
	}
}
