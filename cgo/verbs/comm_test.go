package verbs

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule"
	"lightpath/collectives/schedule/oracle"
	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/calls"
)

// rdmaEnvironment makes communicators use the test's devices: on each plane even ranks are at one end, odd ranks at the
// other.
func rdmaEnvironment(t *testing.T, planes int) {
	t.Helper()
	var hcas []string
	for plane, pair := range strings.Fields(os.Getenv(devicesEnv)) {
		for rail, device := range strings.Split(pair, ",") {
			hcas = append(hcas, fmt.Sprintf("%s:1:%d:%d", device, rail, plane))
		}
	}
	t.Setenv("LIGHTPATH_TRANSPORT", "rdma")
	t.Setenv("LIGHTPATH_PLANES", fmt.Sprint(planes))
	t.Setenv("LIGHTPATH_TIMEOUT", "60s")
	t.Setenv("NCCL_IB_HCA", "="+strings.Join(hcas, ","))
	t.Setenv("NCCL_IB_TIMEOUT", fmt.Sprint(patient))
	t.Setenv("NCCL_IB_RETRY_CNT", "3")
}

// communicators makes a communicator over the test's devices, with all ranks in this process.
func communicators(t *testing.T, ranks, planes int) []*shim.Comm {
	t.Helper()
	rdmaEnvironment(t, planes)
	return join(t, ranks)
}

// join makes a communicator by the environment's settings.
func join(t *testing.T, ranks int) []*shim.Comm {
	t.Helper()
	id, err := shim.NewUniqueID()
	require.NoError(t, err)
	args := make([]shim.InitArgs, ranks)
	for r := range args {
		args[r] = shim.InitArgs{ID: id, Ranks: ranks, Rank: r, Device: r}
	}
	comms, err := shim.Init(args)
	require.NoError(t, err)
	return comms
}

// each runs f for every rank at once.
func each(comms []*shim.Comm, f func(rank int, c *shim.Comm) error) []error {
	errs := make([]error, len(comms))
	var wg sync.WaitGroup
	for r, c := range comms {
		wg.Go(func() { errs[r] = f(r, c) })
	}
	wg.Wait()
	return errs
}

func destroy(t *testing.T, comms []*shim.Comm) {
	t.Helper()
	for r, err := range each(comms, func(_ int, c *shim.Comm) error { return c.Destroy() }) {
		if err != nil {
			t.Errorf("rank %d: destroy: %v", r, err)
		}
	}
}

// collectives are the calls with an oracle. send and receive are multiples of the count; -1: one count per rank.
var collectives = []struct {
	kind       calls.Kind
	collective schedule.Collective
	send, recv int
}{
	{calls.AllReduce, schedule.AllReduce, 1, 1},
	{calls.Broadcast, schedule.Broadcast, 1, 1},
	{calls.Reduce, schedule.Reduce, 1, 1},
	{calls.AllGather, schedule.AllGather, 1, -1},
	{calls.ReduceScatter, schedule.ReduceScatter, -1, 1},
	{calls.AllToAll, schedule.AllToAll, -1, -1},
	{calls.Gather, schedule.Gather, 1, -1},
	{calls.Scatter, schedule.Scatter, -1, 1},
}

// TestOracle checks the results of every collective over real queue pairs.
func TestOracle(t *testing.T) {
	planes := len(ends(t))
	integers := []datatype.Type{datatype.Int8, datatype.Uint8, datatype.Int32, datatype.Uint32, datatype.Int64,
		datatype.Uint64}
	for i, mode := range []string{"rc", "uc", "rc"} {
		ranks := i + 2
		t.Run(fmt.Sprintf("%dx%d-%s", ranks, planes, mode), func(t *testing.T) {
			t.Setenv("LIGHTPATH_RDMA_MODE", mode)
			comms := communicators(t, ranks, planes)
			defer destroy(t, comms)
			rng := rand.New(rand.NewPCG(uint64(ranks), 3))
			for _, count := range []int{0, 1, 7, 1023, 40001} {
				for i := range collectives {
					k := &collectives[i]
					call := oracle.Call{
						Collective: k.collective, Type: integers[rng.IntN(len(integers))],
						Op: datatype.Op(rng.IntN(int(datatype.NumOps))), Root: rng.IntN(ranks),
					}
					if err := verify(comms, k.kind, call, count, k.send, k.recv, rng); err != nil {
						t.Fatalf("%v of %d %v, %v, root %d: %v", k.collective, count, call.Type, call.Op, call.Root, err)
					}
				}
			}
		})
	}
}

// verify runs one call on all ranks with random input, and compares the results.
func verify(comms []*shim.Comm, kind calls.Kind, call oracle.Call, count, send, recv int, rng *rand.Rand) error {
	n := len(comms)
	size := func(counts int) int {
		if counts < 0 {
			counts = n
		}
		return counts * count * call.Type.Size()
	}
	inputs, outputs := make([][]byte, n), make([][]byte, n)
	for r := range inputs {
		inputs[r], outputs[r] = make([]byte, size(send)), make([]byte, size(recv))
		for i := range inputs[r] {
			inputs[r][i] = byte(rng.Uint32())
		}
	}
	want, err := oracle.Expected(call, inputs)
	if err != nil {
		return err
	}
	for r, err := range each(comms, func(r int, c *shim.Comm) error {
		return shim.Run([]calls.Call{{
			Comm: c, Kind: kind, Type: call.Type, Op: call.Op, Peer: int32(call.Root), Count: uint64(count),
			Send: unsafe.Pointer(unsafe.SliceData(inputs[r])), Recv: unsafe.Pointer(unsafe.SliceData(outputs[r])),
		}})
	}) {
		if err != nil {
			return fmt.Errorf("rank %d: %w", r, err)
		}
		if want[r] != nil && !bytes.Equal(outputs[r], want[r]) {
			return fmt.Errorf("rank %d: the result differs", r)
		}
	}
	return nil
}

func allReduce(c *shim.Comm, buf []int32) error {
	at := unsafe.Pointer(&buf[0])
	return shim.Run([]calls.Call{{Comm: c, Kind: calls.AllReduce, Type: datatype.Int32, Count: uint64(len(buf)),
		Send: at, Recv: at}})
}

// TestRegisteredBuffers checks the results of calls that send from registered buffers in place.
func TestRegisteredBuffers(t *testing.T) {
	const ranks, count = 2, 100000
	comms := communicators(t, ranks, len(ends(t)))
	defer destroy(t, comms)
	buf := make([][]int32, ranks)
	for r := range buf {
		buf[r] = make([]int32, count)
		for i := range buf[r] {
			buf[r][i] = int32(i)
		}
		if _, err := shim.Register(comms[r], unsafe.Pointer(&buf[r][0]), 4*count, false, 0); err != nil {
			t.Fatal(err)
		}
	}
	for times := range 4 {
		for r, err := range each(comms, func(r int, c *shim.Comm) error { return allReduce(c, buf[r]) }) {
			if err != nil {
				t.Fatalf("rank %d: %v", r, err)
			}
			for i, v := range buf[r] {
				if v != int32(i)<<(times+1) {
					t.Fatalf("rank %d: element %d is %d after %d calls", r, i, v, times+1)
				}
			}
		}
	}
}

// TestCommunicatorOnBrokenPlane lets a link fail under a running communicator. Every rank gets an error that names a
// rank and the plane. When the link is back, a new communicator works.
func TestCommunicatorOnBrokenPlane(t *testing.T) {
	devices := ends(t)
	comms := communicators(t, 2, len(devices))
	reduce := func(comms []*shim.Comm, times int) []error {
		return each(comms, func(_ int, c *shim.Comm) error {
			buf := make([]int32, 50000)
			for range times {
				if err := allReduce(c, buf); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for r, err := range reduce(comms, 3) {
		if err != nil {
			t.Fatalf("rank %d: %v", r, err)
		}
	}
	sh(t, "ip link set pb0 down")
	begin := time.Now()
	for r, err := range reduce(comms, 1<<20) {
		t.Logf("rank %d after %v: %v", r, time.Since(begin).Round(time.Millisecond), err)
		if err == nil || !strings.Contains(err.Error(), "plane 0") || !strings.Contains(err.Error(), "rank") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
	for _, c := range comms {
		_ = c.Abort() // the error was reported before
	}
	sh(t, "ip link set pb0 up; "+restore)
	waitActive(t, devices)
	comms = communicators(t, 2, len(devices))
	defer destroy(t, comms)
	for r, err := range reduce(comms, 3) {
		if err != nil {
			t.Errorf("rank %d, after the link came back: %v", r, err)
		}
	}
}
