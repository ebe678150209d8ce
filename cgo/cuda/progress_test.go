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

// BenchmarkProgress is what the CPU's part in a staged operation adds to a stream: the time from when the stream of rank 0 reaches an AllReduce of 8
// bytes, which the other ranks have reached, to when it goes on, beside that of the same commands by hand, in turns. By hand a copy out, a host function that
// stores a word, a wait for the word and a copy in; then the same with the host function that calls the library, which stores at
// once. Each is on the stream, held up, before it is let go. Times are medians, and of 99 in 100. Over the stub, STUB_CUDA_LOOKS=1000000 has
// it see a word at once, as a device does.
func BenchmarkProgress(b *testing.B) {
	b.Setenv("LIGHTPATH_DEVICE_PATH", "staged")
	b.Setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1")
	b.Setenv("LIGHTPATH_TRANSPORT", "shm") // as ranks of several processes have it
	for _, ranks := range []int{1, 2, 4} {
		b.Run(fmt.Sprintf("ranks=%d", ranks), func(b *testing.B) { newProgress(b, ranks).added() })
	}
}

// added reports what BenchmarkProgress is about.
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

// BenchmarkIdle is what the process takes of CPUs, in microseconds a second, in which nobody calls anything: without a communicator, and with one of
// all ranks in the process that has been used.
func BenchmarkIdle(b *testing.B) {
	b.Setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1")
	idle := func(b *testing.B) {
		const seconds = 5
		time.Sleep(time.Second) // for what ends by itself
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

// progress is a communicator of ranks on one device, with a call of all of them, and what takes its place by hand.
type progress struct {
	b      *testing.B
	calls  []calls.Call
	stream device.Stream // of rank 0
	timer  *cudatest.Timer
	at     unsafe.Pointer // of the device, of rank 0
	room   unsafe.Pointer // page-locked: two words with a cache line of their own, and 8 bytes
	held   uint32         // what the first word must reach
	said   uint32         // and the second
}

// Tokens of host functions by hand that call the library, which stores the word itself, or has a goroutine do it.
const (
	answered      = ^uintptr(0)
	answeredLater = answered - 1
)

// handSignals answers them, and hands on what is the library's.
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
		l.calls = append(l.calls, calls.Call{Comm: c, Kind: calls.AllReduce, Type: datatype.Uint8, Count: 8, Send: at, Recv: at, Stream: s})
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

// byHand puts on the stream what a staged operation is: signal has the second word rise.
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

// time is what the stream takes, in microseconds, for work that is on it before it comes there.
func (l *progress) time(put func()) float64 {
	l.held++
	_, err := driver.Enter(l.stream)
	l.must(err)
	l.must(driver.Await(l.stream, l.word(0), l.held, false))
	driver.Leave()
	l.timer.Around(l.stream, put)
	if len(l.calls) > 1 {
		time.Sleep(500 * time.Microsecond) // the other ranks come first
	}
	atomic.StoreUint32(l.word(0), l.held)
	return float64(l.timer.Wait(l.stream).Nanoseconds()) / 1e3
}
