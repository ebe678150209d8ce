package bench

import (
	"bytes"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule"
)

func TestSizes(t *testing.T) {
	for _, c := range []struct {
		name     string
		min, max int64
		factor   float64
		want     []int64
	}{
		{"doubling", 8, 64, 2, []int64{8, 16, 32, 64}},
		{"last size not reached", 8, 63, 2, []int64{8, 16, 32}},
		{"one size", 8, 8, 2, []int64{8}},
		{"none", 9, 8, 2, nil},
		{"zero has no multiples", 0, 64, 2, []int64{0}},
		{"small factors repeat no size", 1, 4, 1.25, []int64{1, 2, 3}},
		{"a factor beyond all integers", 8, 1 << 40, 1e300, []int64{8}},
		{"an infinite factor", 8, 1 << 40, math.Inf(1), []int64{8}},
	} {
		s := Spec{MinBytes: c.min, MaxBytes: c.max, Factor: c.factor}
		if got := s.Sizes(); !slices.Equal(got, c.want) {
			t.Errorf("%s: sizes %v, want %v", c.name, got, c.want)
		}
	}
}

func TestParseBytes(t *testing.T) {
	good := map[string]int64{
		"0": 0, "8": 8, "8B": 8, "8b": 8, " 8 ": 8, "64K": 64 << 10, "64k": 64 << 10, "64KiB": 64 << 10, "64KB": 64000,
		"32M": 32 << 20, "32MiB": 32 << 20, "32mib": 32 << 20, "40MB": 40_000_000, "1G": 1 << 30, "1GiB": 1 << 30, "1GB": 1e9,
		"1.5K": 1536, "1e6": 1_000_000, "0.5MB": 500_000,
	}
	for text, want := range good {
		if got, err := ParseBytes(text); err != nil || got != want {
			t.Errorf("ParseBytes(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "K", "-1", "-1K", "8Q", "8KK", "8iB", "eight", "NaN", "Inf", "InfG", "1e300",
		"4000000G", "8 8", "0x8", "8T"} {
		if got, err := ParseBytes(text); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("ParseBytes(%q) = %d, %v; want an error that quotes it", text, got, err)
		}
	}
}

func FuzzParseBytes(f *testing.F) {
	for _, s := range []string{"8", "64K", "32MiB", "1e6", "-1", "GGG"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := ParseBytes(s); err == nil && (n < 0 || n > 1<<50) {
			t.Errorf("ParseBytes(%q) = %d", s, n)
		}
	})
}

func TestCount(t *testing.T) {
	for _, c := range []struct {
		collective schedule.Collective
		bytes      int64
		typ        datatype.Type
		ranks      int
		want       int64
	}{
		{schedule.AllReduce, 1024, datatype.Float32, 8, 256},
		{schedule.AllReduce, 1023, datatype.Float32, 8, 255},
		{schedule.Broadcast, 1024, datatype.Float64, 8, 128},
		{schedule.Reduce, 1024, datatype.Int8, 8, 1024},
		{schedule.SendRecv, 1024, datatype.Float16, 8, 512},
		{schedule.AllGather, 1024, datatype.Float32, 8, 32},
		{schedule.ReduceScatter, 1024, datatype.Float32, 8, 32},
		{schedule.AllToAll, 1024, datatype.Float32, 8, 32},
		{schedule.Gather, 1024, datatype.Float32, 8, 32},
		{schedule.Scatter, 1024, datatype.Float32, 3, 85},
		{schedule.AllGather, 8, datatype.Float32, 8, 0},
		{schedule.AllReduce, 0, datatype.Float32, 8, 0},
	} {
		if got := Count(c.collective, c.bytes, c.typ, c.ranks); got != c.want {
			t.Errorf("Count(%v, %d, %v, %d) = %d, want %d", c.collective, c.bytes, c.typ, c.ranks, got, c.want)
		}
	}
}

// TestBandwidths holds the factors against the table of nccl-tests' PERFORMANCE.md: 1 GB in
// 1 s on n ranks.
func TestBandwidths(t *testing.T) {
	const ranks = 8
	for c := range schedule.NumCollectives {
		count := Count(c, 1_024_000_000, datatype.Float32, ranks)
		alg, bus := Bandwidths(c, count, datatype.Float32, ranks, 1e6)
		want := 1.0
		switch c {
		case schedule.AllReduce:
			want = 2 * 7.0 / 8
		case schedule.AllGather, schedule.ReduceScatter, schedule.AllToAll, schedule.Gather, schedule.Scatter:
			want = 7.0 / 8
		}
		if math.Abs(alg-1.024) > 1e-12 || math.Abs(bus-1.024*want) > 1e-12 {
			t.Errorf("%v: algbw %v busbw %v, want 1.024 and %v", c, alg, bus, 1.024*want)
		}
	}
	// Bytes lost by rounding were not moved.
	if alg, _ := Bandwidths(schedule.AllGather, 1, datatype.Float32, 3, 1); math.Abs(alg-12e-3) > 1e-15 {
		t.Errorf("3 ranks of 4 bytes in 1 us: algbw %v GB/s, want 0.012", alg)
	}
	if alg, bus := Bandwidths(schedule.AllReduce, 256, datatype.Float32, 1, 1); alg != 1.024 || bus != 0 {
		t.Errorf("one rank: algbw %v busbw %v, want 1.024 and 0", alg, bus)
	}
	if alg, bus := Bandwidths(schedule.AllReduce, 256, datatype.Float32, 8, 0); alg != 0 || bus != 0 {
		t.Errorf("no time: algbw %v busbw %v, want 0", alg, bus)
	}
}

func TestRunLines(t *testing.T) {
	s := Spec{
		Collective: schedule.Reduce, Type: datatype.Float16, Op: datatype.Max, Root: 2, MinBytes: 8, MaxBytes: 16, Factor: 2,
		Warmup: 3, Iters: 7, Check: true, OutOfPlace: true, InPlace: true,
	}
	lines, points := runLines(&s, 4)
	want := []string{
		"run collective=reduce type=half op=max root=2 bytes=8 count=4 warmup=3 iters=7 check=1 inplace=0 mode=loop",
		"run collective=reduce type=half op=max root=2 bytes=8 count=4 warmup=3 iters=7 check=1 inplace=1 mode=loop",
		"run collective=reduce type=half op=max root=2 bytes=16 count=8 warmup=3 iters=7 check=1 inplace=0 mode=loop",
		"run collective=reduce type=half op=max root=2 bytes=16 count=8 warmup=3 iters=7 check=1 inplace=1 mode=loop",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("lines\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
	if want := []point{{&s, 8, 4, false}, {&s, 8, 4, true}, {&s, 16, 8, false}, {&s, 16, 8, true}}; !slices.Equal(points,
		want) {
		t.Errorf("points %v, want %v", points, want)
	}
	s.Sync, s.Check, s.InPlace, s.MaxBytes = true, false, false, 8
	lines, _ = runLines(&s, 4)
	const sync = "run collective=reduce type=half op=max root=2 bytes=8 count=4 warmup=3 iters=7 check=0 inplace=0 " +
		"mode=sync"
	if !slices.Equal(lines, []string{sync}) {
		t.Errorf("sync: %v, want %v", lines, sync)
	}
}

func TestVariants(t *testing.T) {
	for _, c := range []struct {
		collective schedule.Collective
		out, in    bool
		want       []bool
	}{
		{schedule.AllReduce, true, true, []bool{false, true}},
		{schedule.AllReduce, true, false, []bool{false}},
		{schedule.AllReduce, false, true, []bool{true}},
		{schedule.AllReduce, false, false, []bool{false}},
		{schedule.SendRecv, true, true, []bool{false}},
		{schedule.SendRecv, false, true, []bool{false}},
	} {
		s := Spec{Collective: c.collective, OutOfPlace: c.out, InPlace: c.in}
		if got := s.variants(); !slices.Equal(got, c.want) {
			t.Errorf("%v, out of place %t, in place %t: %v, want %v", c.collective, c.out, c.in, got, c.want)
		}
	}
}

func TestJobFile(t *testing.T) {
	j := jobFile{rank: 1, world: 4, threads: 1, rendezvous: "/r", barrier: "/b", runs: []string{"run a=1", "run a=2"}}
	if got, want := string(j.encode()),
		"rank=1\nworld=4\nthreads=1\nrendezvous=/r\nbarrier=/b\nrun a=1\nrun a=2\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	j.barrier, j.runs = "", nil
	const settings = "rank=1\nworld=4\nthreads=1\nrendezvous=/r\n"
	for want, buffers := range map[string]Buffers{
		"":                          {Device: 3}, // host memory has no device
		"memory=plain\n":            {Kind: PlainBuffers, Device: 3},
		"memory=device\n":           {Kind: DeviceBuffers, Device: -1},
		"memory=device\ndevice=3\n": {Kind: DeviceBuffers, Device: 3},

		"memory=registered\ndevice=3\n": {Kind: RegisteredBuffers, Device: 3},
	} {
		j.buffers = buffers
		if got := string(j.encode()); got != settings+want {
			t.Errorf("%+v: %q, want %q", buffers, got, settings+want)
		}
	}
	j.buffers, j.library = Buffers{}, "/l/libnccl.so.2"
	if got, want := string(j.encode()), settings+"library=/l/libnccl.so.2\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestRunLineGraph(t *testing.T) {
	s := Spec{Collective: schedule.AllReduce, Iters: 4}
	if line := s.RunLine(8, 2, false); strings.Contains(line, "graph") {
		t.Errorf("%q has a graph", line)
	}
	if s.Graph = 7; !strings.HasSuffix(s.RunLine(8, 2, false), " mode=loop graph=7") {
		t.Errorf("%q has no graph of 7 launches", s.RunLine(8, 2, false))
	}
}

// TestTable compares with testdata/table.txt: nccl-tests' columns.
func TestTable(t *testing.T) {
	row := func(bytes int64, inPlace bool, us float64, wrong int64) Result {
		alg, bus := Bandwidths(schedule.AllReduce, bytes/4, datatype.Float32, 4, us)
		return Result{
			Collective: "allreduce", Bytes: bytes, Count: bytes / 4, Type: "float", Op: "sum", InPlace: inPlace,
			TimeUS: us, AlgBW: alg, BusBW: bus, Wrong: &wrong,
		}
	}
	var b bytes.Buffer
	write := func(results []Result) {
		table := NewTable(&b)
		for _, r := range results {
			table.Add(r)
		}
		table.End()
	}
	write([]Result{row(8, false, 12.345, 0), row(8, true, 9.5, 0), row(1<<20, false, 523.44, 0),
		row(1<<20, true, 498.1, 3)})
	write([]Result{row(64, true, 12345.6, 0), row(128, true, 20000, 0)})
	write([]Result{{Collective: "broadcast", Bytes: 64, Count: 16, Type: "float", Op: "sum", Root: 3, TimeUS: 10,
		AlgBW: 0.0064, BusBW: 0.0064}})
	write(nil)
	want, err := os.ReadFile("testdata/table.txt")
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}
