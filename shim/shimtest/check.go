package shimtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/ocsctl/controller"
	"lightpath/shim"
	"lightpath/shim/calls"
)

// givenBack waits until nobody holds a plane.
func GivenBack(t *testing.T, core *controller.Core) {
	t.Helper()
	if !Eventually(func() bool {
		s, err := core.Snapshot()
		return err == nil && !slices.ContainsFunc(s.Planes, func(p controller.PlaneSnapshot) bool { return p.Holder != nil })
	}) {
		t.Fatal("planes are not given back")
	}
}

// logTo has warnings written to a file, whose lines it returns a reader of.
func LogTo(t *testing.T, level string) func() string {
	path := filepath.Join(t.TempDir(), "log")
	t.Setenv("NCCL_DEBUG", level)
	t.Setenv("NCCL_DEBUG_FILE", path)
	return func() string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
}

// allReduce is a call of count float32.
func AllReduce(c *shim.Comm, buf []float32) calls.Call {
	p := unsafe.Pointer(unsafe.SliceData(buf))
	return calls.Call{Comm: c, Kind: calls.AllReduce, Type: datatype.Float32, Count: uint64(len(buf)), Send: p, Recv: p}
}

// wantError checks that an error is of a kind and says certain things.
func WantError(t testing.TB, err error, is error, says ...string) {
	t.Helper()
	if !errors.Is(err, is) {
		t.Errorf("got %v, want an error that is %v", err, is)
		return
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%q does not say %q", err, s)
		}
	}
}

// initAll makes one Init per element, concurrently: as processes would.
func InitAll(t *testing.T, args []shim.InitArgs) []error {
	return Concurrently(t, len(args), func(i int) error {
		comms, err := shim.Init(args[i : i+1])
		if err == nil {
			err = comms[0].Destroy()
		}
		return err
	})
}

// settled waits for background work to end: a condition, not a duration.
func Eventually(ok func() bool) bool {
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if ok() {
			return true
		}
		runtime.GC() // endpoints unmap when nobody can reach them
	}
	return false
}

// mustOf ends a test with an error.
func MustOf(t *testing.T) func(error) {
	return func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
}

// sums checks a communicator by an AllReduce: everyone gets the sum of all ranks.
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

func NoErrors(t testing.TB, errs []error) {
	t.Helper()
	for r, err := range errs {
		if err != nil {
			t.Fatalf("rank %d: %v", r, err)
		}
	}
}

// untilLost repeats a call that asks for a switch with frames on the wire, and is false where the machine stood
// still until all of them had left it.
func UntilLost(t *testing.T, call func(t *testing.T) bool) {
	lost := false
	for try := 0; try < 20 && !lost && !t.Failed(); try++ {
		t.Run(fmt.Sprint(try), func(t *testing.T) { lost = call(t) })
	}
	if !lost {
		t.Error("the switch has lost nothing")
	}
}
