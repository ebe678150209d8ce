package shimtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/internal/assert"
	"lightpath/internal/require"
	"lightpath/ocsctl/controller"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/settings"
)

// AwaitReleased waits until no communicator holds a plane.
func AwaitReleased(t *testing.T, core *controller.Core) {
	t.Helper()
	if !Eventually(func() bool {
		s, err := core.Snapshot()
		held := func(p controller.PlaneSnapshot) bool { return len(p.Holders) > 0 }
		return err == nil && !slices.ContainsFunc(s.Planes, held)
	}) {
		t.Fatal("planes are not given back")
	}
}

// UseLogFile sends log lines of a level to a file. It returns a function that reads the file.
func UseLogFile(t *testing.T, level string) func() string {
	path := filepath.Join(t.TempDir(), "log")
	t.Setenv("NCCL_DEBUG", level)
	t.Setenv("NCCL_DEBUG_FILE", path)
	return func() string {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		return string(text)
	}
}

// AllReduce returns a call that adds buf on all ranks, in place.
func AllReduce(c *shim.Comm, buf []float32) calls.Call {
	p := unsafe.Pointer(unsafe.SliceData(buf))
	return calls.Call{Comm: c, Kind: calls.AllReduce, Type: datatype.Float32, Count: uint64(len(buf)), Send: p, Recv: p}
}

// WantError checks that an error wraps another and that its text contains all of some words.
func WantError(t testing.TB, err error, is error, says ...string) {
	t.Helper()
	if !errors.Is(err, is) {
		t.Errorf("got %v, want an error that is %v", err, is)
		return
	}
	assert.Contains(t, err.Error(), says...)
}

// WantErrors checks each error as [WantError] does.
func WantErrors(t testing.TB, errs []error, is error, says ...string) {
	t.Helper()
	for _, err := range errs {
		WantError(t, err, is, says...)
	}
}

// InitAll calls Init once per element, concurrently, as processes do, and destroys what it makes.
func InitAll(t *testing.T, args []shim.InitArgs, cfg *settings.Config) []error {
	return Concurrently(t, len(args), func(i int) error {
		c, err := InitOne(args[i], cfg)
		if err == nil {
			err = c.Destroy()
		}
		return err
	})
}

// Eventually polls until ok is true, and collects garbage in between: endpoints unmap memory when they are collected.
// After a minute it gives up and returns false.
func Eventually(ok func() bool) bool {
	pause := time.Millisecond
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(pause) {
		if ok() {
			return true
		}
		runtime.GC()
		pause = min(2*pause, 20*time.Millisecond)
	}
	return false
}

// Fatal returns a function that ends the test with an error.
func Fatal(t *testing.T) func(error) {
	return func(err error) {
		t.Helper()
		require.NoError(t, err)
	}
}

// CheckSums runs an AllReduce and checks the sums on this rank.
func CheckSums(c *shim.Comm) error {
	mem := make([]float32, 1000)
	for i := range mem {
		mem[i] = float32(c.Rank + i)
	}
	if err := shim.Run([]calls.Call{AllReduce(c, mem)}); err != nil {
		return err
	}
	n := c.Ranks
	for i := range mem {
		if want := float32(n*(n-1)/2 + n*i); mem[i] != want {
			return fmt.Errorf("rank %d: element %d is %v, want %v", c.Rank, i, mem[i], want)
		}
	}
	return nil
}

// NoErrors ends the test with the first error of errs, which are by rank.
func NoErrors(t testing.TB, errs []error) {
	t.Helper()
	for r, err := range errs {
		if err != nil {
			t.Fatalf("rank %d: %v", r, err)
		}
	}
}

// RetryUntilLost repeats a call in which a circuit moves while frames are in flight. The call returns false if all
// frames had left the circuit before. After 20 such calls the test fails.
func RetryUntilLost(t *testing.T, call func(t *testing.T) bool) {
	lost := false
	for try := 0; try < 20 && !lost && !t.Failed(); try++ {
		t.Run(fmt.Sprint(try), func(t *testing.T) { lost = call(t) })
	}
	if !lost {
		t.Error("the switch has lost nothing")
	}
}
