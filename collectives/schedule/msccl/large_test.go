package msccl

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"lightpath/collectives/schedule"
	"lightpath/internal/require"
)

// A file of some kilobytes can have a million chunks in one step, and one of a megabyte thousands of waits in a row.
// Quadratic work takes hours or tens of gigabytes then.

// TestManyStagingCells: cells that share a chunk of staging follow one another. The second is filled after the last use
// of the first. There are as many chunks as cells in use at a time, at most.
func TestManyStagingCells(t *testing.T) {
	const cells, steps = 400_000, 40
	rng := rand.New(rand.NewPCG(1, 2))
	m := &memory{s: &schedule.Schedule{Ranks: 1, Sub: 1}, used: [][]int32{{0}}}
	var inUse [2 * steps]int
	for range cells {
		since := rng.Int32N(steps)
		c := m.stage(0, 0, since)
		m.touch(c, since+rng.Int32N(steps))
		for step := since; step <= m.cells[c].last; step++ {
			inUse[step]++
		}
	}
	m.placeStaging()
	slices.SortFunc(m.cells, func(a, b cell) int {
		return cmp.Or(cmp.Compare(a.ref.Chunk, b.ref.Chunk), cmp.Compare(a.since, b.since))
	})
	for i, c := range m.cells[1:] {
		if before := m.cells[i]; before.ref == c.ref && before.last >= c.since {
			t.Fatalf("chunk %d is used up to step %d, and filled in step %d", c.ref.Chunk, before.last, c.since)
		}
	}
	if most := slices.Max(inUse[:]); int(m.used[0][0]) != most {
		t.Errorf("%d chunks, want %d", m.used[0][0], most)
	}
}

// TestManyWaits decodes a file with many waits in a row, each of which waits for a step of its own, before a send.
func TestManyWaits(t *testing.T) {
	const waits = 20_000
	var b strings.Builder
	step := func(s int, kind, buf string, at, block, dep int) {
		fmt.Fprintf(&b, `<step s="%d" type="%s" srcbuf="i" srcoff="0" dstbuf="%s" dstoff="%d" cnt="1" depid="%d" deps="%d"`+
			` hasdep="1"/>`, s, kind, buf, at, block, dep)
	}
	b.WriteString(`<algo name="x" proto="LL" nchannels="1" nchunksperloop="2" ngpus="2" coll="allgather" inplace="0">`)
	for g := range 2 {
		fmt.Fprintf(&b, `<gpu id="%d" i_chunks="1" o_chunks="2" s_chunks="1"><tb id="0" send="-1" recv="-1" chan="0">`, g)
		step(0, "cpy", "o", g, -1, -1)
		for i := range waits {
			step(1+i, "cpy", "s", 0, -1, -1)
		}
		fmt.Fprintf(&b, `</tb><tb id="1" send="%d" recv="%d" chan="0">`, 1-g, 1-g)
		for i := range waits {
			step(i, "nop", "o", 0, 0, 1+i)
		}
		step(waits, "s", "o", 1-g, -1, -1)
		step(waits+1, "r", "o", 1-g, -1, -1)
		b.WriteString(`</tb></gpu>`)
	}
	b.WriteString(`</algo>`)
	f, err := Decode([]byte(b.String()))
	require.NoError(t, err)
	s, err := f.Schedule(0)
	require.NoError(t, err)
	if len(s.Steps) != 1 {
		t.Errorf("%d steps", len(s.Steps))
	}
}

// TestScratchOfAllRanks: a schedule gives every rank whole blocks of scratch. A small file on large blocks can fill the
// first chunk of thousands of blocks, and its proof would take gigabytes.
func TestScratchOfAllRanks(t *testing.T) {
	const ranks, sub = 8, 1 << 12
	var b strings.Builder
	fmt.Fprintf(&b, `<algo name="x" proto="LL" nchannels="1" nchunksperloop="%d" ngpus="%d" coll="broadcast" inplace="0">`,
		sub, ranks)
	for g := range ranks {
		fmt.Fprintf(&b, `<gpu id="%d" i_chunks="1" o_chunks="1" s_chunks="%d">`, g, maxPlaces)
		if g == 0 {
			b.WriteString(`<tb id="0" send="-1" recv="-1" chan="0">`)
			for i := range maxScratch/(ranks*sub) + 1 {
				fmt.Fprintf(&b, `<step s="%d" type="cpy" srcbuf="i" srcoff="0" dstbuf="s" dstoff="%d" cnt="1" depid="-1" deps="-1"`+
					` hasdep="0"/>`, i, i)
			}
			b.WriteString(`</tb>`)
		}
		b.WriteString(`</gpu>`)
	}
	b.WriteString(`</algo>`)
	f, err := Decode([]byte(b.String()))
	require.NoError(t, err)
	if _, err = f.Schedule(0); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "scratch") {
		t.Error(err)
	}
}
