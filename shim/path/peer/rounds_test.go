package peer

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/internal/require"
	"lightpath/shim/calls"
	"lightpath/shim/device"
	"lightpath/shim/device/devicetest"
)

// This test runs the operations that ranks enqueue, on a model of their streams: the streams of all ranks take turns at
// random, step by step. A kernel is many steps. Its first words may be seen until its last words are; each of these
// comes at its own time. Graphs are replayed. The test checks every collective's result, that no stream waits forever,
// and that each write of a token's word changes it.

// modelDriver records what a rank enqueues.
type modelDriver struct {
	device.Peers
	program *[]modelOp
}

// modelOp is an operation of a stream.
type modelOp struct {
	word   device.Word
	kernel *device.Reduction
	check  func() error // not an operation: a look at the results so far
}

func (d *modelDriver) Words(_ device.Stream, words []device.Word) error {
	for _, w := range words {
		*d.program = append(*d.program, modelOp{word: w})
	}
	return nil
}

func (d *modelDriver) Reduce(r *device.Reduction, _ device.Stream) error {
	k := *r
	k.Copies, k.Before, k.After = slices.Clone(r.Copies), slices.Clone(r.Before), slices.Clone(r.After)
	*d.program = append(*d.program, modelOp{kernel: &k})
	return r.Check()
}

func reachModel(p unsafe.Pointer, size int64) []byte { return unsafe.Slice((*byte)(p), size) }

// modelWorld is ranks of one communicator.
type modelWorld struct {
	t      *testing.T
	rng    *rand.Rand
	driver *modelDriver
	ranks  []*Path
	ends   [][]modelOp // the streams
	graphs uint64
	keep   []any
}

func newModelWorld(t *testing.T, rng *rand.Rand, n int, joint bool) *modelWorld {
	w := &modelWorld{t: t, rng: rng, driver: &modelDriver{}, ends: make([][]modelOp, n)}
	device.Use(w.driver)
	page := &tokenPage{n: n, mem: make([]byte, pageSize(n))}
	page.at = device.Address(uintptr(unsafe.Pointer(&page.mem[0])))
	page.begin()
	memory := make([]unsafe.Pointer, n)
	const size = 70 * slotAlign
	for r := range n {
		memory[r] = w.memory(size)
	}
	for r := range n {
		x := &Path{n: n, me: r, page: page, exchange: exchange{n: n, me: r, of: memory}, driver: w.driver,
			lanes: make([]lane, 2*n), joint: joint, slots: slots{round: numSlots}}
		if err := x.exchange.divide(size); err != nil {
			t.Fatal(err)
		}
		x.queue.page, x.queue.me, x.queue.driver = page, r, w.driver
		x.queue.paced, x.queue.lines = n > 1, []line{{room: 1 << 30}}
		if n > 1 {
			x.queue.blocks = x.exchange.counter(r, blockCounters)
		}
		w.ranks = append(w.ranks, x)
	}
	return w
}

func (w *modelWorld) memory(size int) unsafe.Pointer {
	m := make([]uint64, (size+7)/8)
	w.keep = append(w.keep, m)
	return unsafe.Pointer(&m[0])
}

// random enqueues a random collective on all ranks, in programs.
func (w *modelWorld) random(programs [][]modelOp, capture uint64) {
	kinds := []calls.Kind{calls.AllReduce, calls.AllReduce, calls.Reduce, calls.ReduceScatter, calls.AllGather,
		calls.Broadcast, calls.Gather, calls.Scatter, calls.AllToAll}
	kind, root := kinds[w.rng.IntN(len(kinds))], w.rng.IntN(len(w.ranks))
	count := []int{1, 1 + w.rng.IntN(500), 1 + w.rng.IntN(60000)}[w.rng.IntN(3)]
	w.launch(programs, capture, kind, root, count)
}

// launch enqueues a collective on all ranks, in programs.
func (w *modelWorld) launch(programs [][]modelOp, capture uint64, kind calls.Kind, root, count int) {
	n := len(w.ranks)
	k := calls.Kinds[kind]
	blocks := func(p int) int { return map[bool]int{true: n, false: 1}[p < 0] * count }
	send := make([][]uint32, n)
	for r := range send {
		send[r] = make([]uint32, blocks(k.Send))
		first, step := w.rng.Uint32(), w.rng.Uint32()|1
		for i := range send[r] {
			send[r][i] = first + uint32(i)*step
		}
	}
	var sum []uint32
	if k.Reduces {
		sum = modelSum(send)
	}
	for r, x := range w.ranks {
		recv := make([]uint32, blocks(k.Recv))
		call := &calls.Call{
			Kind: kind, Type: datatype.Uint32, Count: uint64(count), Peer: int32(root),
			Send: unsafe.Pointer(&send[r][0]), Recv: unsafe.Pointer(&recv[0]),
		}
		op := &operation{call: call}
		w.keep = append(w.keep, send[r], recv, call)
		w.driver.program = &programs[r]
		x.launch.capture.ID = capture
		x.queue.onto(1, 0)
		x.forget()
		if err := x.collective(op); err != nil {
			w.t.Fatal(err)
		}
		if err := x.queue.flush(); err != nil {
			w.t.Fatal(err)
		}
		programs[r] = append(programs[r], modelOp{check: func() error {
			want := modelResult(kind, root, r, count, send, sum)
			if want != nil && !slices.Equal(recv, want) {
				return fmt.Errorf("%v of %d from %d: wrong on rank %d", kind, count, root, r)
			}
			clear(recv)
			return nil
		}})
		if capture != 0 {
			x.captured.Store(true)
		}
	}
}

// modelSum adds what ranks send.
func modelSum(send [][]uint32) []uint32 {
	sum := make([]uint32, len(send[0]))
	for _, s := range send {
		for i, v := range s {
			sum[i] += v
		}
	}
	return sum
}

// modelResult is what a rank gets from a collective, nil if nothing.
func modelResult(kind calls.Kind, root, rank, count int, send [][]uint32, sum []uint32) (want []uint32) {
	switch kind {
	case calls.AllReduce:
		return sum
	case calls.ReduceScatter:
		return sum[rank*count:][:count]
	case calls.Broadcast:
		return send[root]
	case calls.Scatter:
		return send[root][rank*count:][:count]
	case calls.Reduce:
		want = sum
	case calls.Gather, calls.AllGather:
		for _, s := range send {
			want = append(want, s...)
		}
	case calls.AllToAll:
		for _, s := range send {
			want = append(want, s[rank*count:][:count]...)
		}
	}
	if calls.Kinds[kind].Rooted && rank != root {
		return nil
	}
	return want
}

// modelStream is a rank's stream.
type modelStream struct {
	w     *modelWorld
	ops   []modelOp
	steps []func() error // of the kernel that runs, in their order
}

// step takes one step. It returns false if the stream waits.
func (s *modelStream) step() (bool, error) {
	if len(s.steps) > 0 {
		err := s.steps[0]()
		s.steps = s.steps[1:]
		return true, err
	}
	op := s.ops[0]
	switch {
	case op.check != nil:
		if err := op.check(); err != nil {
			return true, err
		}
	case op.kernel != nil:
		s.steps = s.w.kernelSteps(op.kernel)
	default:
		at := reachModel(*(*unsafe.Pointer)(unsafe.Pointer(&op.word.At)), 4)
		if op.word.Wait != 0 && binary.NativeEndian.Uint32(at) != op.word.Value {
			return false, nil
		}
		if op.word.Wait == 0 {
			if err := s.w.write(device.Store{At: op.word.At, Value: uint64(op.word.Value)}); err != nil {
				return true, err
			}
		}
	}
	s.ops = s.ops[1:]
	return true, nil
}

// kernelSteps are the steps of a kernel in a possible order.
func (w *modelWorld) kernelSteps(k *device.Reduction) (steps []func() error) {
	steps = append(steps, func() error {
		devicetest.Work(k, reachModel)
		return nil
	})
	write := func(s device.Store) func() error { return func() error { return w.write(s) } }
	for _, s := range k.Before {
		steps = append(steps, write(s))
	}
	w.rng.Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
	last := len(steps)
	for _, s := range k.After {
		steps = append(steps, write(s))
	}
	w.rng.Shuffle(len(k.After), func(i, j int) { steps[last+i], steps[last+j] = steps[last+j], steps[last+i] })
	return steps
}

// write writes a word. A word of a token is 1 when it is set to 0, and 0 when it is set to 1.
func (w *modelWorld) write(s device.Store) error {
	page := w.ranks[0].page
	at := s.At - page.at
	read := func() uint32 { return binary.NativeEndian.Uint32(page.mem[at:]) }
	token := at < device.Address(tokensSize(page.n))
	if s.Counter != 0 {
		counter := reachModel(*(*unsafe.Pointer)(unsafe.Pointer(&s.Counter)), 4)
		token = binary.NativeEndian.Uint32(counter)+1 == s.Of
	}
	if token && read() == uint32(s.Value) {
		return fmt.Errorf("the word of a token at %d is %d already", at, s.Value)
	}
	devicetest.Start(&device.Reduction{Before: []device.Store{s}}, reachModel)
	return nil
}

// play runs the streams to their ends. Now and then one stream rests.
func (w *modelWorld) play() error {
	streams := make([]modelStream, len(w.ranks))
	for r := range streams {
		streams[r] = modelStream{w: w, ops: w.ends[r]}
	}
	for rest, turn := -1, 0; ; turn++ {
		if turn%97 == 0 {
			rest = w.rng.IntN(2*len(streams)) - len(streams)
		}
		moved, over := false, true
		for _, r := range w.rng.Perm(len(streams)) {
			s := &streams[r]
			if len(s.ops)+len(s.steps) == 0 {
				continue
			}
			over = false
			if r == rest {
				continue
			}
			ok, err := s.step()
			if err != nil {
				return err
			}
			if moved = moved || ok; ok {
				break
			}
		}
		switch {
		case over:
			return w.atRest()
		case !moved && rest < 0:
			return fmt.Errorf("all streams wait")
		case !moved:
			rest = -1
		}
	}
}

// atRest checks that every token is back.
func (w *modelWorld) atRest() error {
	p := w.ranks[0].page
	for slot := range numSlots {
		for a := range w.ranks {
			for b := range w.ranks {
				ready, free := *p.tokenWord(stageRound, slot, a, b, tokenReady), *p.tokenWord(stageRound, slot, a, b, tokenFree)
				if ready != 0 || free != 1 {
					return fmt.Errorf("slot %d, from %d to %d: ready %d, free %d", slot, a, b, ready, free)
				}
			}
		}
	}
	return nil
}

// TestRounds: any sequence of collectives, and of replays of graphs with them, gives the right results wherever the
// streams are.
func TestRounds(t *testing.T) {
	defer device.Use(device.Active())
	trials := 120
	switch {
	case os.Getenv("LIGHTPATH_TEST_LONG") != "":
		trials = 400
	case testing.Short():
		trials = 60
	}
	for trial := range trials {
		rng := rand.New(rand.NewPCG(uint64(trial), 22))
		w := newModelWorld(t, rng, 2+trial%3, trial%2 == 0)
		var graphs [][][]modelOp
		for range 14 {
			switch pick := rng.IntN(6); {
			case pick == 0 && trial%4 > 1:
				graph := make([][]modelOp, len(w.ranks))
				w.graphs++
				for range 1 + rng.IntN(3) {
					w.random(graph, w.graphs)
				}
				graphs = append(graphs, graph)
			case pick < 3 && len(graphs) > 0:
				for r, ops := range graphs[rng.IntN(len(graphs))] {
					w.ends[r] = append(w.ends[r], ops...)
				}
			default:
				w.random(w.ends, 0)
			}
		}
		if err := w.play(); err != nil {
			t.Fatalf("trial %d, %d ranks, joint %v: %v", trial, len(w.ranks), trial%2 == 0, err)
		}
	}
}

// TestRoundsWaitOnce: a rank waits for tokens that come back only before it writes their slot again, once for each
// word, and only if no later token has told it.
func TestRoundsWaitOnce(t *testing.T) {
	defer device.Use(device.Active())
	const short = 16
	for _, c := range []struct {
		name  string
		joint bool
		put   func(w *modelWorld)
		waits int // of rank 0
	}{
		{"all tell each other", false, func(w *modelWorld) {
			for range 10 {
				w.launch(w.ends, 0, calls.AllReduce, 0, short)
			}
		}, 0},
		{"of four slots, two calls of two chunks write the first again", false, func(w *modelWorld) {
			for range 2 {
				w.launch(w.ends, 0, calls.Broadcast, 0, 20000)
			}
		}, 2},
		{"a rank that writes no slot waits for none", false, func(w *modelWorld) {
			w.launch(w.ends, 0, calls.Broadcast, 0, short)
			for range 5 {
				w.launch(w.ends, 0, calls.Broadcast, 1, short)
			}
		}, 0},
		{"a graph may be replayed after any call: its first call waits", false, func(w *modelWorld) {
			for range 5 {
				w.launch(w.ends, 1, calls.AllReduce, 0, short)
			}
		}, 2},
		{"one of several readers gives back its own word", true, func(w *modelWorld) {
			for range 3 {
				w.launch(w.ends, 0, calls.Gather, 1, short)
			}
		}, 1},
		{"all readers give back one word", true, func(w *modelWorld) {
			for range 3 {
				w.launch(w.ends, 0, calls.Broadcast, 0, short)
			}
		}, 1},
	} {
		w := newModelWorld(t, rand.New(rand.NewPCG(1, 1)), 3, c.joint)
		c.put(w)
		if got := w.waitsForFree(0); got != c.waits {
			t.Errorf("%s: rank 0 waits %d times, want %d", c.name, got, c.waits)
		}
		require.NoError(t, w.play())
	}
}

// waitsForFree returns how often a rank's stream waits for a token of a slot to come back.
func (w *modelWorld) waitsForFree(rank int) (n int) {
	page := w.ranks[rank].page
	for _, op := range w.ends[rank] {
		at := int(op.word.At - page.at)
		if op.word.Wait != 0 && at < tokensSize(page.n) && at/tokenSize%tokenWords == tokenFree {
			n++
		}
	}
	return n
}

// TestRoundsPutNothingInVain: a stream waits once for a token, and a word that stands for one token needs no counter.
func TestRoundsPutNothingInVain(t *testing.T) {
	defer device.Use(device.Active())
	w := newModelWorld(t, rand.New(rand.NewPCG(1, 1)), 2, true)
	for range 5 {
		w.random(w.ends, 0)
	}
	for _, op := range w.ends[0] {
		if k := op.kernel; k != nil && slices.ContainsFunc(slices.Concat(k.Before, k.After),
			func(s device.Store) bool { return s.Counter != 0 }) {
			t.Error("a word that stands for one token has a counter")
		}
	}
	x := w.ranks[0]
	w.driver.program = &w.ends[0]
	for i := range 2 {
		before := len(w.ends[0])
		x.queue.onto(1, 0)
		x.awaitPeers()
		if err := x.queue.flush(); err != nil {
			t.Fatal(err)
		}
		if waits := len(w.ends[0]) > before; waits != (i == 0) {
			t.Errorf("look %d: waits %v", i, waits)
		}
	}
}
