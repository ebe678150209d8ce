package bench

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule"
)

// Spec says what to time. Sizes are nccl-tests' S in bytes: the data size of the whole operation (for allgather,
// reducescatter and alltoall ranks x count x size of the type).
type Spec struct {
	Collective schedule.Collective
	Type       datatype.Type
	Op         datatype.Op
	Root       int
	MinBytes   int64
	MaxBytes   int64
	Factor     float64 // > 1
	Warmup     int     // untimed iterations, at most [MaxCount]
	Iters      int     // timed iterations, at most [MaxCount]
	Check      bool    // compare every element of the results
	// Sync starts every iteration behind a barrier and records its start and end on every rank. Otherwise
	// iterations run back to back, as in nccl-tests.
	Sync bool
	// Pause is how long ranks rest before each iteration of a sync run. In other runs they rest once, after the warm-up,
	// and repeat it.
	Pause time.Duration
	// Each records the start and end of calls that run back to back. It is for [Spec.RunLine].
	Each bool
	// Graph, if above 0, captures the iterations into a CUDA graph and times that many launches of it. Buffers
	// are then in device memory.
	Graph int
	// OutOfPlace and InPlace choose the variants; nccl-tests runs both.
	OutOfPlace, InPlace bool
}

// MaxCount is the largest number that lightpath-rank takes for iterations, and for milliseconds of a pause.
const MaxCount = 1 << 30

// Sizes lists the sizes of s, smallest first.
func (s *Spec) Sizes() []int64 {
	var sizes []int64
	for b := float64(s.MinBytes); b <= float64(s.MaxBytes); b *= s.Factor {
		if n := int64(b); len(sizes) == 0 || n != sizes[len(sizes)-1] {
			sizes = append(sizes, n)
		}
		if b == 0 {
			break
		}
	}
	return sizes
}

// Count returns the element count of a call for S bytes, rounded down.
func Count(c schedule.Collective, bytes int64, t datatype.Type, ranks int) int64 {
	return bytes / int64(c.SizeBlocks(ranks)) / int64(t.Size())
}

// Bandwidths returns algbw and busbw in GB/s (1e9) as nccl-tests defines them. They are of the bytes that a call of
// count elements per block moves, in us microseconds.
func Bandwidths(c schedule.Collective, count int64, t datatype.Type, ranks int, us float64) (alg, bus float64) {
	if us <= 0 {
		return 0, 0
	}
	alg = float64(count*int64(c.SizeBlocks(ranks))) * float64(t.Size()) / us / 1e3
	return alg, alg * c.BusFactor(ranks)
}

// ParseBytes reads a size such as 8, 64K, 32MiB or 1G. K, M and G, with or without "iB", are powers of 1024, as in
// nccl-tests; KB, MB and GB are powers of 1000.
func ParseBytes(s string) (int64, error) {
	text := strings.TrimSpace(s)
	digits := strings.TrimRight(text, "KMGkmgiBb")
	scale := map[string]float64{
		"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30,
		"kb": 1e3, "mb": 1e6, "gb": 1e9,
	}
	unit, known := scale[strings.ToLower(text[len(digits):])]
	v, err := strconv.ParseFloat(digits, 64)
	if err != nil || !known || !(v >= 0) || v*unit > 1<<50 {
		return 0, fmt.Errorf("size %q is not a number of bytes such as 8, 64K or 32MiB", s)
	}
	return int64(v * unit), nil
}
