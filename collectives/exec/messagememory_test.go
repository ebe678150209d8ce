package exec

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"lightpath/collectives/program"
	"lightpath/internal/require"
)

// latch is the memory of messages that become ready one at a time, in a given order, after some calls of Ready.
type latch struct {
	t     *testing.T
	rng   *rand.Rand
	order []int // of messages
	at    int
	open  bool // the one that is next
	over  map[int]bool
}

func (l *latch) Ready(message int) bool {
	if l.at == len(l.order) || l.order[l.at] != message {
		return false
	}
	l.open = l.open || l.rng.IntN(3) == 0
	return l.open
}

func (l *latch) Moved(message int) {
	if l.over[message] || l.at == len(l.order) || l.order[l.at] != message {
		l.t.Errorf("message %d is over, out of turn or again", message)
	}
	l.over[message], l.open = true, false
	l.at++
}

// TestMessageMemory checks that messages over several planes wait for their memory, and that Moved is called once for
// each. Messages of a rank to itself do not wait.
func TestMessageMemory(t *testing.T) {
	const n, planes, count = 2, 3, 6
	rng := rand.New(rand.NewPCG(1, 2))
	endpoints := network(t, n, planes, 1)
	var tasks []*Task
	latches := [n]*latch{}
	var want, got [][]byte
	boxes := [n]mailbox{}
	for r := range n {
		for range count {
			b := make([]byte, 1+rng.IntN(2000))
			for i := range b {
				b[i] = byte(rng.Uint32())
			}
			in := make([]byte, len(b))
			want, got = append(want, b), append(got, in)
			boxes[r].sends = append(boxes[r].sends, program.Message{Peer: 1 - r, Bytes: int64(len(b))})
			boxes[r].out = append(boxes[r].out, b)
			boxes[1-r].recvs = append(boxes[1-r].recvs, program.Message{Peer: r, Bytes: int64(len(b))})
			boxes[1-r].in = append(boxes[1-r].in, in)
		}
	}
	for r := range n {
		self := []byte{byte(r), 7}
		boxes[r].sends, boxes[r].out = append(boxes[r].sends, program.Message{Peer: r, Bytes: 2}), append(boxes[r].out, self)
		boxes[r].recvs = append(boxes[r].recvs, program.Message{Peer: r, Bytes: 2})
		boxes[r].in = append(boxes[r].in, make([]byte, 2))
		latches[r] = &latch{t: t, rng: rand.New(rand.NewPCG(uint64(r), 3)), over: map[int]bool{}}
		for i := range count { // alternately a send and a receive
			pair := [2]int{i, count + 1 + i}
			latches[r].order = append(latches[r].order, pair[r], pair[1-r])
		}
		task := new(Task)
		boxes[r].bind(t, task, new(program.Program), r, n, planes, endpoints[r], NewPairs(n))
		call := task.call
		call.Pairs, call.Memory = NewPairs(n), latches[r]
		require.NoError(t, task.Bind(call))
		tasks = append(tasks, task)
	}
	require.NoError(t, Run(tasks, patience))
	for i := range want {
		if !bytes.Equal(got[i], want[i]) {
			t.Errorf("message %d differs", i)
		}
	}
	for r := range n {
		if latches[r].at != 2*count || boxes[r].in[count][1] != 7 {
			t.Errorf("rank %d: %d messages have moved", r, latches[r].at)
		}
	}
}
