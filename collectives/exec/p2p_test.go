package exec

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"lightpath/collectives/program"
	"lightpath/collectives/program/programtest"
	"lightpath/collectives/schedule"
	"lightpath/collectives/transport"
	"lightpath/collectives/transport/inproc"
	"lightpath/internal/require"
)

// mailbox has the messages that one rank sends and receives in one group.
type mailbox struct {
	sends, recvs []program.Message
	out, in      [][]byte
}

func (m *mailbox) bind(t testing.TB, task *Task, p *program.Program, rank, ranks, planes int, e transport.Endpoint,
	pairs *Pairs) {
	t.Helper()
	require.NoError(t, program.BuildP2P(p, program.P2PArgs{Rank: rank, Ranks: ranks, Planes: planes, MinPiece: 64},
		m.sends, m.recvs))
	call := Call{Program: p, Comm: 7, Endpoint: e, Pairs: pairs}
	for _, b := range append(append([][]byte(nil), m.out...), m.in...) {
		call.Messages = append(call.Messages, BufferOf(b))
	}
	require.NoError(t, task.Bind(call))
}

// TestPairs exchanges random groups of messages of all sizes over planes that shorten, refuse and delay frames. Ranks
// also send to themselves, and may divide their messages into different groups.
func TestPairs(t *testing.T) {
	for seed := uint64(0); seed < 30; seed++ {
		rng := rand.New(rand.NewPCG(seed, 3))
		n, planes := 1+rng.IntN(5), 1+rng.IntN(3)
		endpoints := network(t, n, planes, seed)
		boxes := make([]mailbox, n)
		var want, got [][]byte
		for range rng.IntN(30) {
			src, dst := rng.IntN(n), rng.IntN(n)
			b := make([]byte, rng.IntN(3)*rng.IntN(200))
			for i := range b {
				b[i] = byte(rng.Uint32())
			}
			in := make([]byte, len(b))
			want, got = append(want, b), append(got, in)
			boxes[src].sends = append(boxes[src].sends, program.Message{Peer: dst, Bytes: int64(len(b))})
			boxes[src].out = append(boxes[src].out, b)
			boxes[dst].recvs = append(boxes[dst].recvs, program.Message{Peer: src, Bytes: int64(len(b))})
			boxes[dst].in = append(boxes[dst].in, in)
		}
		var tasks []*Task
		for r := range boxes {
			pairs := NewPairs(n)
			for _, m := range boxes[r].groups(rng, r) {
				task := new(Task)
				m.bind(t, task, new(program.Program), r, n, planes, endpoints[r], pairs)
				tasks = append(tasks, task)
			}
		}
		if err := Run(tasks, patience); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for i := range want {
			if !bytes.Equal(got[i], want[i]) {
				t.Fatalf("seed %d: message %d differs", seed, i)
			}
		}
	}
}

// groups divides the messages of rank 0 into two calls, the second with receives only. If other ranks divided theirs
// too, ranks could wait for each other in a cycle.
func (m mailbox) groups(rng *rand.Rand, rank int) []mailbox {
	if rank != 0 || len(m.recvs) < 2 {
		return []mailbox{m}
	}
	for _, s := range m.sends {
		if s.Peer == rank {
			return []mailbox{m}
		}
	}
	k := rng.IntN(len(m.recvs))
	return []mailbox{
		{sends: m.sends, out: m.out, recvs: m.recvs[:k], in: m.in[:k]},
		{recvs: m.recvs[k:], in: m.in[k:]},
	}
}

func TestPairMismatch(t *testing.T) {
	endpoints, err := inproc.NewGroup(2, 1, inproc.Options{})
	require.NoError(t, err)
	a := mailbox{sends: []program.Message{{Peer: 1, Bytes: 8}}, out: [][]byte{make([]byte, 8)}}
	b := mailbox{recvs: []program.Message{{Peer: 0, Bytes: 16}}, in: [][]byte{make([]byte, 16)}}
	tasks := []*Task{new(Task), new(Task)}
	a.bind(t, tasks[0], new(program.Program), 0, 2, 1, endpoints[0], NewPairs(2))
	b.bind(t, tasks[1], new(program.Program), 1, 2, 1, endpoints[1], NewPairs(2))
	if err := Run(tasks, patience); !errors.Is(err, ErrSignature) {
		t.Fatalf("got %v", err)
	}
}

// TestNoAllocations checks that Bind and Run do not allocate after the first calls, for collectives and messages.
func TestNoAllocations(t *testing.T) {
	for _, n := range []int{2, 4} {
		const planes, count = 2, 3000
		endpoints, err := inproc.NewGroup(n, planes, inproc.Options{})
		require.NoError(t, err)
		s, err := schedule.Build(schedule.AllReduce, "ring", n, 0)
		require.NoError(t, err)
		progs, err := lowerAll(s, nil, program.Args{Planes: planes, Count: count, ElemSize: 4, MinPiece: 64})
		require.NoError(t, err)
		tm := assemble(t, programtest.NewCase(s, count, 1, 1), progs, false,
			func(r int, c *Call) { c.Endpoint = endpoints[r] })
		messages := make([]*Task, n)
		programs := make([]*program.Program, n)
		boxes := make([]mailbox, n)
		for r := range messages {
			next, prev := (r+1)%n, (r+n-1)%n
			boxes[r] = mailbox{
				sends: []program.Message{{Peer: next, Bytes: 1000}, {Peer: r, Bytes: 10}, {Peer: next, Bytes: 3}},
				recvs: []program.Message{{Peer: prev, Bytes: 1000}, {Peer: r, Bytes: 10}, {Peer: prev, Bytes: 3}},
				out:   [][]byte{make([]byte, 1000), make([]byte, 10), make([]byte, 3)},
				in:    [][]byte{make([]byte, 1000), make([]byte, 10), make([]byte, 3)},
			}
			messages[r], programs[r] = new(Task), new(program.Program)
			boxes[r].bind(t, messages[r], programs[r], r, n, planes, endpoints[r], NewPairs(n))
		}
		all := append(append([]*Task(nil), tm.tasks...), messages...)
		o := &Options{Timeout: 10 * time.Second, Yield: 1}
		op := uint64(10)
		if got := testing.AllocsPerRun(50, func() {
			op++
			for r, task := range tm.tasks {
				c := task.call
				c.Op = op
				require.NoError(t, task.Bind(c))
				m := &boxes[r]
				require.NoError(t, program.BuildP2P(programs[r], program.P2PArgs{Rank: r, Ranks: n, Planes: planes}, m.sends,
					m.recvs))
				require.NoError(t, messages[r].Bind(messages[r].call))
			}
			require.NoError(t, Run(all, o))
		}); got != 0 {
			t.Errorf("%d ranks: %v allocations a call", n, got)
		}
	}
}
