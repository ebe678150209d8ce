package kernels

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lightpath/collectives/datatype"
	"lightpath/internal/require"
)

// script replaces STREAM: copies take 1 us, ordinary additions 4 us and the other loops 2 us.
const script = `#!/bin/sh
[ "$1" = 65536 ] || exit 3
while read loop; do case $loop in copy*) echo 1000;; add) echo 4000;; *) echo 2000;; esac; done
`

func options(t *testing.T, text string) *Options {
	stream := filepath.Join(t.TempDir(), "stream")
	require.NoError(t, os.WriteFile(stream, []byte(text), 0o700))
	return &Options{Stream: stream, Type: datatype.Float32, Bytes: 64 << 10, Threads: []int{1, 3}, Sources: []int{2, 5},
		Rounds: 3}
}

func TestRates(t *testing.T) {
	lines, err := Run(t.Context(), options(t, script))
	require.NoError(t, err)
	want := map[string]float64{"copy": 2 * 65.536, "copy-nt": 2 * 65.536, "add": 3 * 16.384, "add-nt": 3 * 32.768,
		"triad": 3 * 32.768, "triad-nt": 3 * 32.768}
	ours := map[string]int{"copy past the caches": 2, "sum into a source": 3, "sum of 2": 3, "sum of 2 past the caches": 3,
		"sum of 5 past the caches": 6}
	for i, l := range lines {
		if threads := 1 + 2*(i/(len(want)+len(ours))); l.Threads != threads {
			t.Errorf("%s is of %d threads, want %d", l.Name, l.Threads, threads)
		}
		if l.Stream && (l.Best != want[l.Name] || l.Median != want[l.Name] || l.OfAdd != want[l.Name]/want["add-nt"]) {
			t.Errorf("%s: %v GB/s, median %v, %v of the addition; want %v", l.Name, l.Best, l.Median, l.OfAdd, want[l.Name])
		}
		if !l.Stream && (l.Arrays != ours[l.Name] || l.Best < l.Median || l.Median <= 0 || len(l.ns) != 3 ||
			l.OfAdd != l.Best/want["add-nt"]) {
			t.Errorf("%+v", l)
		}
	}
	if len(lines) != 2*(len(want)+len(ours)) {
		t.Errorf("%d lines", len(lines))
	}
}

func TestStreamThatFails(t *testing.T) {
	// The process may end before or after the request.
	for text, says := range map[string]string{
		"#!/bin/sh\necho of no use >&2; exit 1\n":         "of no use",
		"#!/bin/sh\nread loop; echo soon\nread another\n": `"soon"`,
	} {
		if _, err := Run(t.Context(), options(t, text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v; want %s in the error", err, says)
		}
	}
}

// TestOnAll checks that all threads work at the same time, each once.
func TestOnAll(t *testing.T) {
	meet := make(chan int)
	took, err := onAll(2, func(thread int) {
		if thread == 0 {
			meet <- 1
		} else {
			<-meet
		}
	})()
	if err != nil || took <= 0 || took > time.Hour {
		t.Errorf("%v, %v", took, err)
	}
}
