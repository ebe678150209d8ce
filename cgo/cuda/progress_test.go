package cuda_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"lightpath/cgo/cuda"
	"lightpath/cgo/cuda/cudatest"
	"lightpath/collectives/datatype"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/device"
	"lightpath/shim/stream"
)

// BenchmarkProgress measures the time that the CPU's part in a staged operation adds to a stream. By turns it times an
// AllReduce of 8 bytes on the stream of rank 0, and the same commands by hand. The other ranks have reached the
// AllReduce before. By hand means: a copy out, a host function that stores a word, a wait for the word, a copy in. In a
// second variant, the library's host function stores the word. A gate holds the stream until all commands are on it.
// The results are the median and the 99th percentile. With STUB_CUDA_LOOKS=1000000 the stub sees a word at once, as a
// device does.
func BenchmarkProgress(b *testing.B) {
	b.Setenv("LIGHTPATH_DEVICE_PATH", "staged")
	b.Setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1")
	b.Setenv("LIGHTPATH_TRANSPORT", "shm") // as between processes
	for _, ranks := range []int{1, 2, 4} {
		b.Run(fmt.Sprintf("ranks=%d", ranks), func(b *testing.B) { newProgress(b, ranks).added() })
	}
}

// added reports the difference to the commands by hand.
func (l *progress) added() {
	b := l.b
	ways := []struct {
		name string
		put  func()
	}{
		{"hand", func() { l.byHand(func() { cudatest.Advance(l.stream, l.word(1)) }) }},
		{"callback", func() { l.byHand(func() { l.must(driver.Signal(l.stream, answered)) }) }},
		{"goroutine", func() { l.byHand(func() { l.must(driver.Signal(l.stream, answeredLater)) }) }},
		{"staged", func() { l.must(shim.Run(l.calls)) }},
	}
	times := make([][]float64, len(ways))
	for i := range 100 + b.N {
		for k, w := range ways {
			if t := l.time(w.put); i >= 100 {
				times[k] = append(times[k], t)
			}
		}
	}
	var medians []float64
	for k, w := range ways {
		slices.Sort(times[k])
		medians = append(medians, times[k][b.N/2])
		b.ReportMetric(medians[k], w.name+"-us")
		b.ReportMetric(times[k][b.N*99/100], w.name+"-p99-us")
	}
	b.ReportMetric(medians[len(ways)-1]-medians[0], "added-us")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkIdle measures the CPU time of the process while it makes no call, in microseconds per second: without a
// communicator, and with one that has been used.
func BenchmarkIdle(b *testing.B) {
	b.Setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1")
	idle := func(b *testing.B) {
		const seconds = 5
		time.Sleep(time.Second) // until background work has ended
		before := cpuTime(b)
		time.Sleep(seconds * time.Second)
		b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/seconds, "cpu-us/s")
		b.ReportMetric(0, "ns/op")
	}
	b.Run("none", idle)
	for _, path := range []string{"staged", "direct"} {
		for _, ranks := range []int{1, 4} {
			b.Run(fmt.Sprintf("%s/%d ranks", path, ranks), func(b *testing.B) {
				b.Setenv("LIGHTPATH_DEVICE_PATH", path)
				l := newProgress(b, ranks)
				for range 10 {
					l.must(shim.Run(l.calls))
				}
				if rc := cudatest.Sync(l.stream); rc != 0 {
					b.Fatalf("the stream ends with error %d", rc)
				}
				idle(b)
			})
		}
	}
}

func cpuTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// progress is a communicator of ranks on one device, a call of all of them, and the commands by hand.
type progress struct {
	b      *testing.B
	calls  []calls.Call
	stream device.Stream // of rank 0
	timer  *cudatest.Timer
	at     unsafe.Pointer // of the device, of rank 0
	room   unsafe.Pointer // page-locked: two words with a cache line of their own, and 8 bytes
	held   uint32         // the next value of the first word
	said   uint32         // and of the second
}

// Tokens of host functions by hand: the library stores the word itself, or a goroutine does.
const (
	answered      = ^uintptr(0)
	answeredLater = answered - 1
)

// handSignals handles these tokens, and passes the others to the library.
type handSignals struct {
	device.Handler
	word *uint32
}

func (h handSignals) Ready(job uintptr) {
	switch job {
	case answered:
		atomic.AddUint32(h.word, 1)
	case answeredLater:
		go atomic.AddUint32(h.word, 1)
	default:
		h.Handler.Ready(job)
	}
}

func newProgress(b *testing.B, ranks int) *progress {
	b.Helper()
	cudatest.Use(0)
	l := &progress{b: b, timer: cudatest.NewTimer()}
	var err error
	l.room, err = driver.Alloc(3 * 64)
	l.must(err)
	clear(unsafe.Slice((*byte)(l.room), 3*64))
	cuda.Tell(handSignals{stream.Places(), l.word(1)})
	device.Use(driver)
	id, err := shim.NewUniqueID()
	l.must(err)
	args := make([]shim.InitArgs, ranks)
	for r := range args {
		args[r] = shim.InitArgs{ID: id, Ranks: ranks, Rank: r}
	}
	comms, err := shim.Init(args)
	l.must(err)
	b.Cleanup(func() {
		for _, c := range comms {
			l.must(c.Destroy())
		}
	})
	for r, c := range comms {
		at, s := cudatest.Alloc(8), cudatest.NewStream()
		if r == 0 {
			l.at, l.stream = at, s
		}
		l.calls = append(l.calls, calls.Call{Comm: c, Kind: calls.AllReduce, Type: datatype.Uint8, Count: 8, Send: at,
			Recv: at, Stream: s})
	}
	return l
}

func (l *progress) must(err error) {
	l.b.Helper()
	if err != nil {
		l.b.Fatal(err)
	}
}

func (l *progress) word(i int) *uint32 { return (*uint32)(unsafe.Add(l.room, i*64)) }

// byHand enqueues the commands of a staged operation. signal makes the second word rise.
func (l *progress) byHand(signal func()) {
	_, err := driver.Enter(l.stream)
	l.must(err)
	defer driver.Leave()
	room := unsafe.Add(l.room, 2*64)
	l.said++
	l.must(driver.CopyOut(room, l.at, 8, l.stream))
	signal()
	l.must(driver.Await(l.stream, l.word(1), l.said, false))
	l.must(driver.CopyIn(l.at, room, 8, l.stream))
}

// time returns the microseconds that the stream needs for work that was enqueued before it starts.
func (l *progress) time(put func()) float64 {
	l.held++
	_, err := driver.Enter(l.stream)
	l.must(err)
	l.must(driver.Await(l.stream, l.word(0), l.held, false))
	driver.Leave()
	l.timer.Around(l.stream, put)
	if len(l.calls) > 1 {
		time.Sleep(500 * time.Microsecond) // the other ranks arrive first
	}
	atomic.StoreUint32(l.word(0), l.held)
	return float64(l.timer.Wait(l.stream).Nanoseconds()) / 1e3
}
