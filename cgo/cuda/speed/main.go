// Command lightpath-kernels times the copies and reductions of Lightpath on a CUDA device, beside a plain copy by the
// device. Both are limited by the memory's bandwidth. With LP_CUDA_REAL=1 it uses the machine's driver, else the stub,
// whose times mean nothing.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"time"
	"unsafe"

	"lightpath/cgo/cuda"
	"lightpath/cgo/cuda/cudatest"
	"lightpath/collectives/datatype"
	"lightpath/internal/files"
	"lightpath/shim/device"
)

// row is one kernel's time.
type row struct {
	Kernel   string  `json:"kernel"`
	Bytes    int64   `json:"bytes"` // read and written
	TimeUS   float64 `json:"time_us"`
	GBs      float64 `json:"gbs"`      // of 1e9 bytes, read and written
	Fraction float64 `json:"fraction"` // of the plain copy's GBs
}

const (
	repeats = 7 // the median counts
	calls   = 8 // timed together
	shift   = 8 // bytes of misalignment to the other buffers
)

func main() {
	number := flag.Int("device", 0, "device")
	traffic := flag.Int64("bytes", 3<<30, "bytes that every kernel reads and writes; many times the device's cache")
	out := flag.String("json", "", "file for the results as JSON")
	flag.Parse()
	if err := cudatest.Open(); err != nil {
		fatal(err)
	}
	cudatest.Use(*number)
	rows := measure(*traffic)
	if !cudatest.Real() {
		fmt.Println("# over the stub of a driver: times mean nothing")
	}
	fmt.Printf("# %-34s %14s %12s %10s %8s\n", "kernel", "bytes moved", "time (us)", "GB/s", "of copy")
	for _, r := range rows {
		fmt.Printf("  %-34s %14d %12.2f %10.1f %7.1f%%\n", r.Kernel, r.Bytes, r.TimeUS, r.GBs, 100*r.Fraction)
	}
	if *out == "" {
		return
	}
	text, err := json.MarshalIndent(rows, "", "  ")
	if err == nil {
		err = files.Write(*out, append(text, '\n'), 0o644)
	}
	if err != nil {
		fatal(err)
	}
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, "lightpath-kernels:", err)
	os.Exit(1)
}

// lab holds device memory, a stream and a timer.
type lab struct {
	driver  cuda.Library
	traffic int64
	at      unsafe.Pointer
	stream  device.Stream
	timer   *cudatest.Timer
	copied  float64 // GB/s of the plain copy
}

func measure(traffic int64) []row {
	l := &lab{traffic: traffic, stream: cudatest.NewStream(), timer: cudatest.NewTimer()}
	size := traffic + 2*shift*(device.MaxSources+1) + 4096
	l.at = cudatest.Alloc(int(size))
	defer cudatest.Free(l.at)
	l.fill(size)
	half := traffic / 2
	rows := []row{l.time("plain copy (cuMemcpyAsync)", 2*half, func() error {
		return l.driver.Copy(l.at, unsafe.Add(l.at, half), int(half), l.stream)
	})}
	l.copied = rows[0].GBs
	rows[0].Fraction = 1
	for _, c := range cases() {
		rows = append(rows, l.reduction(c))
	}
	return rows
}

// fill writes bits that are small numbers in every type, by copying one block repeatedly. They are neither zeros, with
// which hardware may be faster, nor infinities.
func (l *lab) fill(size int64) {
	block := make([]byte, min(size, 16<<20))
	for i := range block {
		block[i] = byte(i*7+i>>8) & 0x37
	}
	for at := int64(0); at < size; at += int64(len(block)) {
		cudatest.Write(unsafe.Add(l.at, at), block[:min(int64(len(block)), size-at)])
	}
}

// kernel is a reduction to time.
type kernel struct {
	sources   int
	dtype     datatype.Type
	op        datatype.Op
	scaled    bool
	divided   bool
	unaligned bool // the destination is misaligned to the sources: no vectors
	tiny      bool // one element: the time of a launch
}

func (k kernel) name() string {
	text := fmt.Sprintf("reduce %d x %s %s", k.sources, k.dtype, k.op)
	switch {
	case k.scaled:
		text += ", scaled"
	case k.divided:
		text += ", divided"
	case k.unaligned:
		text += ", unaligned"
	case k.tiny:
		text += ", 1 element"
	}
	return text
}

// cases returns the reductions to time: all types, all operators of one type, all numbers of sources for ranks on one
// device, and slower cases.
func cases() []kernel {
	var all []kernel
	for t := range datatype.NumTypes {
		all = append(all, kernel{sources: 2, dtype: t, op: datatype.Sum})
	}
	for _, op := range []datatype.Op{datatype.Prod, datatype.Max, datatype.Min} {
		all = append(all, kernel{sources: 2, dtype: datatype.Bfloat16, op: op})
	}
	for _, n := range []int{1, 4, 8, device.MaxSources} {
		all = append(all, kernel{sources: n, dtype: datatype.Float32, op: datatype.Sum})
	}
	return append(all,
		kernel{sources: 2, dtype: datatype.Bfloat16, op: datatype.Sum, scaled: true},
		kernel{sources: 2, dtype: datatype.Int32, op: datatype.Sum, divided: true},
		kernel{sources: 2, dtype: datatype.Float32, op: datatype.Sum, unaligned: true},
		kernel{sources: 2, dtype: datatype.Float32, op: datatype.Sum, tiny: true},
	)
}

func (l *lab) reduction(k kernel) row {
	element := int64(k.dtype.Size())
	buffer := l.traffic / int64(k.sources+1) / 256 * 256
	r := &device.Reduction{N: k.sources, Count: buffer / element, Type: k.dtype, Op: k.op, Dst: l.at}
	for i := range k.sources {
		r.Sources[i] = unsafe.Add(l.at, int64(i+1)*buffer)
		if k.unaligned {
			r.Sources[i] = unsafe.Add(r.Sources[i], shift)
		}
	}
	if k.unaligned {
		r.Count -= 2 * shift / element
	}
	if k.tiny {
		r.Count = 1
	}
	if k.scaled {
		r.Scale.Set = true
		r.Scale.Factor = [8]byte{0x80, 0x3f} // 1 as a bfloat16
	}
	if k.divided {
		r.Divisor = 3
	}
	return l.time(k.name(), int64(k.sources+1)*r.Count*element, func() error { return l.driver.Reduce(r, l.stream) })
}

// time returns the median time of a few calls, after some that load kernels and wake the device.
func (l *lab) time(name string, bytes int64, call func() error) row {
	enqueue := func() {
		for range calls {
			if err := call(); err != nil {
				fatal(fmt.Errorf("%s: %w", name, err))
			}
		}
	}
	if _, err := l.driver.Enter(l.stream); err != nil {
		fatal(err)
	}
	defer l.driver.Leave()
	l.timer.Time(l.stream, enqueue)
	times := make([]time.Duration, repeats)
	for i := range times {
		times[i] = l.timer.Time(l.stream, enqueue)
	}
	slices.Sort(times)
	us := float64(times[repeats/2].Nanoseconds()) / 1e3 / calls
	row := row{Kernel: name, Bytes: bytes, TimeUS: us}
	if us > 0 {
		row.GBs = float64(bytes) / us / 1e3
	}
	if l.copied > 0 {
		row.Fraction = row.GBs / l.copied
	}
	return row
}
