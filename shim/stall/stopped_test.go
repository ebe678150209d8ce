package stall_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lightpath/collectives/datatype"
	"lightpath/collectives/exec"
	"lightpath/collectives/transport"
	"lightpath/collectives/wire"
	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/errdefs"
	"lightpath/shim/session"
	"lightpath/shim/shimtest"
)

// paths are the ways for the bytes of ranks that tests of faults take one after the other; ranks are
// goroutines, so rdma is there too.
var paths = []string{"arena", "frames", "tcp", "rdma", "circuits"}

// worlds makes a communicator on each path.
func worlds(t *testing.T, ranks int) map[string]*shimtest.World {
	t.Helper()
	all := map[string]*shimtest.World{}
	for _, path := range paths {
		for _, name := range []string{"LIGHTPATH_ALGORITHM", "LIGHTPATH_FABRIC", "LIGHTPATH_PLANES"} {
			t.Setenv(name, "")
		}
		shimtest.UsePath(t, path, ranks)
		all[path] = shimtest.NewWorld(t, ranks)
	}
	return all
}

// TestStoppedRank: of a rank process that is stopped the others say, within the time allowed, that they
// have waited for it and on which plane; when it goes on it has an error too.
func TestStoppedRank(t *testing.T) {
	type job struct {
		path   string
		victim int
		ranks  []*shimtest.RankProcess
	}
	jobs := []job{{path: "arena", victim: 0}, {path: "arena", victim: 2}, {path: "frames", victim: 2},
		{path: "tcp", victim: 0}, {path: "tcp", victim: 2}, {path: "circuits", victim: 2}}
	for i := range jobs { // they wait at the same time
		j := &jobs[i]
		t.Setenv("LIGHTPATH_ALGORITHM", "")
		shimtest.UsePath(t, j.path, 3)
		t.Setenv("LIGHTPATH_TIMEOUT", "60s")
		t.Setenv("LP_TEST_LIMIT", "2s")
		j.ranks = shimtest.StartRanks(t, 3)
		require.NoError(t, j.ranks[j.victim].Process.Signal(unix.SIGSTOP))
	}
	for _, j := range jobs {
		for r, p := range j.ranks {
			if r == j.victim {
				continue
			}
			s := <-p.LastLine
			for _, want := range []string{fmt.Sprintf("rank %d", j.victim), "timed out",
				fmt.Sprintf("process %d) is stopped", j.ranks[j.victim].Process.Pid)} {
				if !strings.Contains(s, want) {
					t.Errorf("%s, rank %d does not say %q of rank %d: %q", j.path, r, want, j.victim, s)
				}
			}
			if !strings.Contains(s, "plane ") && !strings.Contains(s, "did not arrive") &&
				!strings.Contains(s, "memory of rank") {
				t.Errorf("%s, rank %d does not say where: %q", j.path, r, s)
			}
		}
		require.NoError(t, j.ranks[j.victim].Process.Signal(unix.SIGCONT))
		if s := <-j.ranks[j.victim].LastLine; !strings.HasPrefix(s, "error: ") {
			t.Errorf("%s, rank %d, which was stopped, says %q", j.path, j.victim, s)
		}
		for _, p := range j.ranks {
			if err := p.Wait(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestWrongCounts: ranks that differ in what they ask for are told both calls, on every path.
func TestWrongCounts(t *testing.T) {
	all := worlds(t, 3)
	var wg sync.WaitGroup
	for path, w := range all {
		wg.Go(func() {
			for r, err := range w.Each(func(c *shim.Comm) error {
				return shim.Run([]calls.Call{shimtest.AllReduce(c, make([]float32, 100+c.Rank/2))})
			}) {
				if !errors.Is(err, errdefs.ErrMismatch) || !strings.Contains(err.Error(), "count 100") ||
					!strings.Contains(err.Error(), "count 101") || !strings.Contains(err.Error(), "rank 2") {
					t.Errorf("%s, rank %d: %v", path, r, err)
				}
			}
		})
	}
	wg.Wait()
}

// TestWrongMessageSizes: of a receive and a send that differ, the receiver says what it receives and what has come.
func TestWrongMessageSizes(t *testing.T) {
	all := worlds(t, 2)
	var wg sync.WaitGroup
	for path, w := range all {
		wg.Go(func() {
			for r, err := range w.Each(func(c *shim.Comm) error {
				if c.Rank == 0 {
					return shim.Run([]calls.Call{shimtest.MessageInt32(calls.Send, c, 1, make([]int32, 4))})
				}
				return shim.Run([]calls.Call{shimtest.MessageInt32(calls.Recv, c, 0, make([]int32, 5))})
			}) {
				if r == 0 && err == nil {
					continue // its data is on the wire
				}
				if !errors.Is(err, errdefs.ErrMismatch) && !errors.Is(err, exec.ErrSignature) || !strings.Contains(err.Error(),
					"message 0 from rank 0 to rank 1") ||
					!strings.Contains(err.Error(), "rank 1 receives 20") || !strings.Contains(err.Error(), "16 bytes") {
					t.Errorf("%s, rank %d: %v", path, r, err)
				}
			}
		})
	}
	wg.Wait()
}

// forger is an endpoint whose frames arrive at another offset than they were sent with.
type forger struct {
	transport.Endpoint
	planes []transport.Plane
}

func (f *forger) Planes() []transport.Plane { return f.planes }

type forgedPlane struct{ transport.Plane }

func (p forgedPlane) Peek(src int) (*wire.Header, []byte, error) {
	h, b, err := p.Plane.Peek(src)
	if h == nil {
		return h, b, err
	}
	other := *h
	other.Offset += 4
	return &other, b, err
}

func forge(e transport.Endpoint) transport.Endpoint {
	f := &forger{Endpoint: e}
	for _, p := range e.Planes() {
		f.planes = append(f.planes, forgedPlane{p})
	}
	return f
}

// TestForgedFrame checks that a wrong frame is an error on every rank, which names receiver, sender and plane.
func TestForgedFrame(t *testing.T) {
	for path, w := range worlds(t, 3) {
		c := w.Comms[1]
		switch {
		case path == "arena":
			continue // it has no frames; see sharedmem.TestOtherCalls
		case circuits.Of(c) != nil:
			circuits.Of(c).End = forge(circuits.Of(c).End)
		default:
			session.Of(c).Packet = forge(session.Of(c).Packet)
		}
		for r, err := range w.Each(func(c *shim.Comm) error {
			return shim.Run([]calls.Call{shimtest.AllReduce(c, make([]float32, 5000))})
		}) {
			if err == nil { // it had all it needed before
				shimtest.Eventually(func() bool { err = w.Comms[r].AsyncError(); return err != nil })
			}
			if err == nil || !strings.Contains(err.Error(), exec.ErrOffset.Error()) || !strings.Contains(err.Error(),
				"rank 1 plane 0") || !strings.Contains(err.Error(), "from rank 0") {
				t.Errorf("%s, rank %d: %v", path, r, err)
			}
		}
	}
}

// TestSignalStorm: signals that interrupt system calls all the time change no result on any path.
func TestSignalStorm(t *testing.T) {
	all := worlds(t, 3)
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGUSR1)
	defer signal.Stop(caught)
	var done atomic.Bool
	var storm sync.WaitGroup
	storm.Go(func() {
		for !done.Load() {
			if err := syscall.Kill(os.Getpid(), syscall.SIGUSR1); err != nil {
				t.Error(err)
				return
			}
			time.Sleep(20 * time.Microsecond)
		}
	})
	for _, path := range paths {
		rng := rand.New(rand.NewPCG(3, 3))
		for _, count := range []int{1, 777, 40000} {
			for _, kind := range shimtest.OracleKinds {
				k := shimtest.Collective{Kind: kind, Type: datatype.Float32, Op: datatype.Sum, Count: count, Root: 2}
				if err := k.Run(all[path], rng); err != nil {
					t.Fatalf("%s: %v: %v", path, k, err)
				}
			}
		}
		all[path].Destroy() // and connections end under it too
	}
	shimtest.NewWorld(t, 3).Must(shimtest.CheckSums) // and begin
	done.Store(true)
	storm.Wait()
	if len(caught) == 0 {
		t.Error("no signal has come")
	}
}
