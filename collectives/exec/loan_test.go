package exec

import (
	"math/rand/v2"
	"testing"

	"lightpath/collectives/program"
	"lightpath/collectives/program/programtest"
	"lightpath/collectives/schedule"
	"lightpath/collectives/transport"
	"lightpath/collectives/wire"
	"lightpath/internal/require"
)

// lender is a plane that returns payload only when a rank waits for it.
type lender struct {
	transport.Plane
	sent     int64
	marks    uint64
	returned uint64
	asked    []int64 // sent at each question
	received int64
	urgent   []int64 // received at each urgent question
}

func (l *lender) Lend(h *wire.Header, payload []byte) (n int, mark uint64, err error) {
	if n, err = l.TrySend(h, payload); n > 0 {
		l.sent += int64(n)
		l.marks++
	}
	return n, l.marks, err
}

func (l *lender) Returned(_ int, urgent bool) (uint64, error) {
	l.asked = append(l.asked, l.sent)
	if urgent {
		l.urgent = append(l.urgent, l.received)
		l.returned = l.marks
	}
	return l.returned, nil
}

func (l *lender) Peek(src int) (*wire.Header, []byte, error) {
	h, payload, err := l.Plane.Peek(src)
	l.received += int64(len(payload))
	return h, payload, err
}

// lend runs a schedule over planes that borrow payload, and returns the planes by rank.
func lend(t *testing.T, s *schedule.Schedule, progs []*program.Program, count int64, planes int) [][]*lender {
	t.Helper()
	lenders := make([][]*lender, s.Ranks)
	endpoints := network(t, s.Ranks, planes, 1)
	tm := assemble(t, programtest.NewCase(s, count, 1, 1), progs, false, func(r int, c *Call) {
		b := &blocked{Endpoint: endpoints[r]}
		for _, p := range endpoints[r].Planes() {
			l := &lender{Plane: p}
			lenders[r], b.planes = append(lenders[r], l), append(b.planes, l)
		}
		c.Endpoint = b
	})
	require.NoError(t, Run(tm.tasks, patience))
	tm.verify(t)
	return lenders
}

// TestBorrowedPayload runs every schedule over planes that borrow payload, and return only what a rank waits for.
func TestBorrowedPayload(t *testing.T) {
	for _, n := range []int{2, 4, 5} {
		schedules(t, n, func(t *testing.T, s *schedule.Schedule, rng *rand.Rand) {
			count, planes := int64(200), 1+rng.IntN(2)
			progs, err := lowerAll(s, nil, program.Args{Planes: planes, Count: count, ElemSize: 4, MinPiece: 64})
			require.NoError(t, err)
			lend(t, s, progs, count, planes)
		})
	}
}

// TestPlanesKeepLoans checks that the root of a broadcast, in which no instruction waits for a send, asks for its
// payload after the last send only. Before, a plane would copy payload that leaves the host anyway.
func TestPlanesKeepLoans(t *testing.T) {
	const ranks, planes, count = 4, 2, 4000
	s, err := schedule.Build(schedule.Broadcast, "ring", ranks, 0)
	require.NoError(t, err)
	progs, err := lowerAll(s, nil, program.Args{Planes: planes, Count: count, ElemSize: 4, MinPiece: 64})
	require.NoError(t, err)
	for j, l := range lend(t, s, progs, count, planes)[0] {
		if len(l.asked) == 0 || l.asked[0] != l.sent {
			t.Errorf("plane %d: asked for payload after %v of %d bytes", j, l.asked, l.sent)
		}
	}
}

// TestPlanesKeepLoansOfReceivers checks that a rank waits for its payload only when it has received all. Before, ranks
// that slept in an AllToAll copied all that they had sent.
func TestPlanesKeepLoansOfReceivers(t *testing.T) {
	const ranks, count = 4, 4000
	s, err := schedule.Build(schedule.AllToAll, "pairwise", ranks, 0)
	require.NoError(t, err)
	progs, err := lowerAll(s, nil, program.Args{Planes: 1, Count: count, ElemSize: 4, MinPiece: 64})
	require.NoError(t, err)
	for r, planes := range lend(t, s, progs, count, 1) {
		if l := planes[0]; len(l.urgent) == 0 || l.urgent[0] != l.received {
			t.Errorf("rank %d: waited for payload after %v of %d bytes", r, l.urgent, l.received)
		}
	}
}
