package exec

import (
	"errors"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"lightpath/collectives/program"
	"lightpath/collectives/program/programtest"
	"lightpath/collectives/schedule"
	"lightpath/collectives/transport"
	"lightpath/collectives/transport/inproc"
	"lightpath/collectives/wire"
	"lightpath/internal/require"
	"lightpath/ocsctl"
)

// forger is an endpoint that changes arriving frames.
type forger struct {
	transport.Endpoint
	forge func(h *wire.Header)
}

func (f *forger) Planes() []transport.Plane {
	var planes []transport.Plane
	for _, p := range f.Endpoint.Planes() {
		planes = append(planes, forgedPlane{p, f.forge})
	}
	return planes
}

type forgedPlane struct {
	transport.Plane
	forge func(h *wire.Header)
}

func (p forgedPlane) Peek(src int) (*wire.Header, []byte, error) {
	h, b, err := p.Plane.Peek(src)
	if h == nil {
		return h, b, err
	}
	fake := *h
	p.forge(&fake)
	return &fake, b, err
}

func ringTeam(t testing.TB, n int, count int64, edit func(r int, c *Call)) *team {
	t.Helper()
	s, err := schedule.Build(schedule.AllReduce, "ring", n, 0)
	require.NoError(t, err)
	progs, err := lowerAll(s, nil, program.Args{Planes: 1, Count: count, ElemSize: 4, Signature: 77})
	require.NoError(t, err)
	endpoints, err := inproc.NewGroup(n, 1, inproc.Options{})
	require.NoError(t, err)
	return assemble(t, programtest.NewCase(s, count, 1, 1), progs, false, func(r int, c *Call) {
		c.Endpoint = endpoints[r]
		edit(r, c)
	})
}

// TestForgedFrames checks that every wrong field of a frame is an error that names the field.
func TestForgedFrames(t *testing.T) {
	for _, tc := range []struct {
		name  string
		forge func(h *wire.Header)
		want  error
		says  string
	}{
		{"communicator", func(h *wire.Header) { h.Comm++ }, ErrForeignFrame, "communicator 0x8"},
		{"operation", func(h *wire.Header) { h.Op-- }, ErrSequence, "operation 2"},
		{"signature", func(h *wire.Header) { h.Signature++ }, ErrSignature, "made a different call than rank"},
		{"source", func(h *wire.Header) { h.Src ^= 7 }, ErrForeignFrame, "from rank"},
		{"destination", func(h *wire.Header) { h.Dst++ }, ErrForeignFrame, "from rank"},
		{"plane", func(h *wire.Header) { h.Plane++ }, ErrForeignFrame, "plane 1"},
		{"step", func(h *wire.Header) { h.Step += 100 }, ErrSequence, "step 10"},
		{"epoch", func(h *wire.Header) { h.Epoch++ }, ErrEpoch, "epoch 1"},
		{"offset", func(h *wire.Header) { h.Offset += 4 }, ErrOffset, "offset 4"},
		{"length", func(h *wire.Header) { h.Length-- }, ErrOffset, "length"},
		{"later operation", func(h *wire.Header) { h.Op++ }, ErrTimeout, "receive from rank"},
		{"message", func(h *wire.Header) { h.Op |= pairBit }, ErrTimeout, "receive from rank"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tm := ringTeam(t, 3, 30, func(r int, c *Call) { c.Endpoint = &forger{c.Endpoint, tc.forge} })
			o := patience
			if errors.Is(tc.want, ErrTimeout) {
				o = &Options{Timeout: 20 * time.Millisecond}
			}
			err := Run(tm.tasks, o)
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.says) {
				t.Fatalf("got %v, want %v saying %q", err, tc.want, tc.says)
			}
			named := 0
			for _, task := range tm.tasks {
				if task.Err() != nil {
					named++
				}
			}
			if named != 1 {
				t.Fatalf("%d tasks have the error, want 1", named)
			}
		})
	}
}

func TestPoison(t *testing.T) {
	var poison atomic.Pointer[error]
	tm := ringTeam(t, 2, 8, func(r int, c *Call) { c.Poison = &poison })
	gone := errors.New("rank 1 is gone")
	errs := make(chan error)
	go func() { errs <- Run(tm.tasks[:1], &Options{}) }()
	poison.Store(&gone)
	tm.tasks[0].endpoint.Wake()
	if err := <-errs; !errors.Is(err, gone) {
		t.Fatalf("got %v", err)
	}
}

func TestStall(t *testing.T) {
	tm := ringTeam(t, 2, 8, func(int, *Call) {})
	calls := 0
	stop := errors.New("mismatch")
	err := Run(tm.tasks[:1], &Options{StallAfter: time.Millisecond, OnStall: func() error {
		if w, ok := tm.tasks[0].Waiting(); !ok || w.Peer != 1 || w.Kind != program.RecvReduce || w.Op != 3 {
			t.Errorf("waits for %+v", w)
		}
		if calls++; calls == 3 {
			return stop
		}
		return nil
	}})
	if !errors.Is(err, stop) || calls != 3 {
		t.Fatalf("%v after %d calls", err, calls)
	}
}

// TestSkippedDrain checks that a skipped drain is an error: the switch reports frames on a moving circuit.
func TestSkippedDrain(t *testing.T) {
	failed := 0
	for seed := uint64(0); seed < 20; seed++ {
		s, err := schedule.Build(schedule.AllReduce, "rabenseifner", 4, 0)
		require.NoError(t, err)
		tm, f := optical(t, s, rand.New(rand.NewPCG(seed, 9)), false)
		for _, task := range tm.tasks {
			task.call.SkipDrain = func(int, uint32) bool { return true }
		}
		err = Run(tm.tasks, patience)
		if f.lost == nil {
			continue
		}
		failed++
		// The loss may come with the very last frame, after its receiver has finished.
		if err != nil && !errors.Is(err, ocsctl.ErrFramesLost) && !errors.Is(err, ErrOffset) {
			t.Fatalf("got %v", err)
		}
		if err == nil {
			t.Fatal("frames lost, and nobody noticed")
		}
	}
	if failed < 5 {
		t.Fatalf("only %d of 20 runs lost a frame", failed)
	}
}

func TestBadCalls(t *testing.T) {
	tm := ringTeam(t, 2, 8, func(int, *Call) {})
	good := tm.tasks[0].call
	for name, edit := range map[string]func(c *Call){
		"program":   func(c *Call) { c.Program = nil },
		"endpoint":  func(c *Call) { c.Endpoint = nil },
		"short":     func(c *Call) { c.Buffers[schedule.Output].Len-- },
		"nil":       func(c *Call) { c.Buffers[schedule.Output].Ptr = nil },
		"operation": func(c *Call) { c.Op = pairBit },
		"kernel":    func(c *Call) { c.Reduce = nil },
	} {
		t.Run(name, func(t *testing.T) {
			c := good
			edit(&c)
			var task Task
			if err := task.Bind(c); !errors.Is(err, ErrCall) {
				t.Fatalf("got %v", err)
			}
			if err := Run([]*Task{&task}, &Options{}); !errors.Is(err, ErrCall) {
				t.Fatalf("an unbound task runs: %v", err)
			}
		})
	}
}
