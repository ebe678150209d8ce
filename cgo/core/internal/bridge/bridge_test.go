package bridge

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/errdefs"
	"lightpath/shim/result"
	"lightpath/shim/shimtest"
)

// world makes n communicators of this process and destroys them at the end.
func world(t *testing.T, n int) []uint64 {
	t.Helper()
	id, err := shim.NewUniqueID()
	require.NoError(t, err)
	args := make([]InitArgs, n)
	for i := range args {
		args[i] = InitArgs{InitArgs: shim.InitArgs{ID: id, Ranks: n, Rank: i, Device: 10 + i}}
	}
	handles, err := Init(args)
	require.NoError(t, err)
	t.Cleanup(func() {
		for _, h := range handles {
			_ = Act(h, Destroy) // a test may have done so
		}
	})
	return handles
}

// sum is an AllReduce of one float.
func sum(h uint64, in, out *float32) Call {
	return Call{
		Comm: h, Kind: uint32(calls.AllReduce), Type: int32(datatype.Float32), Op: int32(datatype.Sum),
		Count: 1, Send: unsafe.Pointer(in), Recv: unsafe.Pointer(out),
	}
}

func TestGroupOfManyCalls(t *testing.T) {
	handles := world(t, 2)
	const each = pooledCalls // for two ranks, more than the pool holds
	in, out := make([]float32, 2*each), make([]float32, 2*each)
	var calls []Call
	for i := range each {
		for r, h := range handles {
			in[2*i+r] = float32(i + r)
			calls = append(calls, sum(h, &in[2*i+r], &out[2*i+r]))
		}
	}
	for _, group := range [][]Call{calls, calls[:2]} {
		clear(out)
		require.NoError(t, Run(group))
		for i := range group {
			if want := float32(2*(i/2) + 1); out[i] != want {
				t.Fatalf("call %d of %d: %v, want %v", i, len(group), out[i], want)
			}
		}
	}
}

func TestQuestions(t *testing.T) {
	handles := world(t, 2)
	for r, h := range handles {
		for q, want := range map[Question]int32{Ranks: 2, Rank: int32(r), Device: int32(10 + r)} {
			if got, err := Ask(h, q); err != nil || got != want {
				t.Errorf("rank %d: question %d: %d, %v, want %d", r, q, got, err, want)
			}
		}
		if poison, err := AsyncError(h); poison != nil || err != nil {
			t.Errorf("rank %d: async error %v, %v", r, poison, err)
		}
	}
}

func TestEndedHandles(t *testing.T) {
	var in, out float32
	for name, end := range map[string]Action{"destroy": Destroy, "abort": Abort} {
		t.Run(name, func(t *testing.T) {
			h := world(t, 1)[0]
			require.NoError(t, Act(h, end))
			call := sum(h, &in, &out)
			_, asked := Ask(h, Ranks)
			_, polled := AsyncError(h)
			for i, err := range []error{
				Act(h, Destroy), Act(h, Abort), Act(h, Finalize), Check(&call), Run([]Call{call}), asked, polled,
			} {
				if !errors.Is(err, errdefs.ErrInvalidArgument) || !strings.Contains(err.Error(), "destroyed") {
					t.Errorf("use %d of a dead handle: %v", i, err)
				}
			}
		})
	}
}

// Several threads end one communicator: one succeeds, and none crashes.
func TestDestroyOnce(t *testing.T) {
	h := world(t, 1)[0]
	errs := make([]error, 4)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = Act(h, Destroy) })
	}
	wg.Wait()
	good := 0
	for _, err := range errs {
		if err == nil {
			good++
		} else if !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("destroy: %v", err)
		}
	}
	if good != 1 {
		t.Errorf("%d destroys succeeded", good)
	}
}

// Enumerations of C are wider than those of shim: a value that wraps must not become a valid one. Errors name it.
func TestWideEnumerations(t *testing.T) {
	h := world(t, 1)[0]
	var in, out float32
	for _, v := range []int32{-1, 255, 256, 256 + int32(datatype.Float32), -1 << 31, 1<<31 - 1} {
		byType, byOp := sum(h, &in, &out), sum(h, &in, &out)
		byType.Type, byOp.Op = v, v
		for _, c := range []*Call{&byType, &byOp} {
			err := Check(c)
			if !errors.Is(err, errdefs.ErrInvalidArgument) || !strings.Contains(err.Error(), fmt.Sprint(v)) {
				t.Errorf("value %d of %+v: %v", v, c, err)
			}
		}
		_, err := CreateOp(h, v, unsafe.Pointer(&in), false)
		if !errors.Is(err, errdefs.ErrInvalidArgument) || !strings.Contains(err.Error(), fmt.Sprint(v)) {
			t.Errorf("operator of type %d: %v", v, err)
		}
	}
	call := sum(h, &in, &out)
	call.Kind = 1 << 31
	if err := Check(&call); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("kind: %v", err)
	}
	call = sum(h, &in, &out)
	call.Stream = uintptr(unsafe.Pointer(&in))
	if err := Check(&call); !errors.Is(err, errdefs.ErrInvalidArgument) || !strings.Contains(err.Error(),
		"stream is not NULL") {
		t.Errorf("stream: %v", err)
	}
}

func TestText(t *testing.T) {
	err := fmt.Errorf("shim: count is\n7: %w", errdefs.ErrInvalidArgument)
	const whole = "count is 7: invalid argument"
	for _, size := range []int{0, 1, 5, len(whole), len(whole) + 1, 100} {
		buf := []byte(strings.Repeat("#", size))
		if got := Text(err, buf); got != result.InvalidArgument {
			t.Errorf("size %d: result %d", size, got)
		}
		if size == 0 {
			continue
		}
		want := whole[:min(size-1, len(whole))] + "\x00"
		if !strings.HasPrefix(string(buf), want) {
			t.Errorf("size %d: %q, want %q", size, buf, want)
		}
	}
	if got := Text(nil, nil); got != result.Success {
		t.Errorf("nil error: %d", got)
	}
}

// A defect becomes an error that names the functions.
func TestRecovered(t *testing.T) {
	var err error
	func() {
		defer func() { err = Recovered(recover(), debug.Stack()) }()
		var call *Call
		_ = Check(call)
	}()
	if result.Of(err) != result.InternalError || !strings.Contains(err.Error(), "nil pointer") {
		t.Errorf("%v", err)
	}
	stack := []byte("goroutine 1 [running]:\nlightpath/cgo/core/internal/bridge.Run(0x1)\n\t/x.go:1\n" +
		"lightpath/shim.(*session).run(0x1, {0x2})\n\t/y.go:2\nlightpath/shim.Run(...)\n\t/y.go:3\nruntime.main()\n")
	if got := strings.Join(frames(stack, 2), " "); got != "shim.(*session).run shim.Run" {
		t.Errorf("frames: %q", got)
	}
}

func TestRunAllocatesNothing(t *testing.T) {
	if shimtest.RaceEnabled {
		t.Skip("pools forget under the race detector")
	}
	h := world(t, 1)[0]
	in, out := make([]float32, pooledCalls), make([]float32, pooledCalls)
	for _, n := range []int{1, pooledCalls} {
		var calls []Call
		for i := range n {
			calls = append(calls, sum(h, &in[i], &out[i]))
		}
		if got := testing.AllocsPerRun(50, func() {
			require.NoError(t, Run(calls))
		}); got != 0 {
			t.Errorf("%d calls: %v allocations", n, got)
		}
	}
}
