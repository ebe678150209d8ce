package sharedmem

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule"
)

// TestWhenLargePages checks that a buffer gets large pages, except at its ends, when the same pages are used the
// sixteenth time. The system is not asked again for pages that it has refused.
func TestWhenLargePages(t *testing.T) {
	const size = 2 << 20
	space := make([]byte, 8*size)
	at := unsafe.Pointer(unsafe.SliceData(space))
	first := (uintptr(at) + size - 1) &^ (size - 1)
	middle := extent{unsafe.Add(at, first-uintptr(at)+1), 5 * size} // 4 large pages, and two ends
	pages := int64(middle.n / os.Getpagesize())
	var asked [][2]uintptr
	var refusal error
	l := largePages{size: size, collapse: func(from, n uintptr) error {
		asked = append(asked, [2]uintptr{from, n})
		return refusal
	}}
	faults := pages
	use := func(times int, more int64) (large bool) {
		for range times {
			faults += more
			large = l.use(middle, faults)
		}
		return large
	}
	if use(collapseUse-1, pages/4); len(asked) != 0 {
		t.Fatalf("after %d uses: asked for %x", collapseUse-1, asked)
	}
	if large := use(1, 0); !large || len(asked) != 1 || asked[0] != [2]uintptr{first + size, 4 * size} {
		t.Fatalf("with use %d: large pages %v, asked for %x; the first ends at %#x", collapseUse, large, asked, first+size)
	}
	part := func(from, n uintptr) extent { return extent{unsafe.Add(at, from-uintptr(at)), int(n)} }
	for _, in := range []struct {
		extent
		large bool
	}{
		{part(first+size, size/4), true},
		{part(first+5*size-8, 8), true},
		{part(first+size-8, 16), false},
		{part(first+5*size-8, 16), false},
	} {
		if l.within(in.extent) != in.large {
			t.Errorf("%d bytes at %p: in large pages %v", in.n, in.at, !in.large)
		}
	}
	if large := use(100, 0); !large || len(asked) != 1 {
		t.Fatalf("later: large pages %v, asked for %x", large, asked)
	}
	asked = nil
	if large := use(100, pages); large || len(asked) != 0 {
		t.Errorf("memory that is new in every call: large pages %v, asked for %x", large, asked)
	}
	refusal = errors.New("no memory")
	if large := use(3*collapseUse, 0); large || len(asked) != 1 {
		t.Errorf("refused: large pages %v, asked for %x", large, asked)
	}
	refusal = nil
	use(1, pages)
	if large := use(collapseUse, 0); !large || len(asked) != 2 {
		t.Errorf("new pages after a refusal: large pages %v, asked for %x", large, asked)
	}

	asked = nil
	small := extent{middle.at, 2*size - 2} // holds no large page
	for range 2 * collapseUse {
		if l.use(small, faults) {
			t.Error("a buffer without space for a large page has one")
		}
	}
	for i := range buffersKnown { // the table forgets middle
		l.use(extent{middle.at, 3*size + i}, faults)
	}
	if use(1, 0) || len(asked) != 0 {
		t.Errorf("forgotten, and used once: asked for %x", asked)
	}
}

// TestExtents checks the extents of a call's buffers.
func TestExtents(t *testing.T) {
	const ranks = 3
	for _, coll := range collectives {
		for _, inPlace := range []bool{false, true} {
			g := newGroup(t, ranks, 1)
			j := &job{coll: coll, typ: datatype.Int32, count: 5, root: 1, inPlace: inPlace}
			g.bind(t, j)
			for r, op := range j.ops {
				send, recv := op.extents()
				wantSend, wantRecv := len(j.in[r]), len(j.out[r])
				if inPlace && wantSend > 0 && wantRecv > 0 { // the larger one includes the other
					if wantSend > wantRecv {
						wantRecv = 0
					} else {
						wantSend = 0
					}
					op.InPlace = true
					send, recv = op.extents()
				}
				if send.n != wantSend || recv.n != wantRecv {
					t.Errorf("%v, rank %d: %d and %d bytes, want %d and %d", j, r, send.n, recv.n, wantSend, wantRecv)
				}
			}
		}
	}
}

// TestLargePages checks that buffers get large pages while ranks use them, and keep their contents.
func TestLargePages(t *testing.T) {
	size := int(largePageSize())
	if size == 0 {
		t.Skip("the system has no large pages, or they are disabled")
	}
	if size > 4<<20 {
		t.Skipf("large pages are of %d bytes", size)
	}
	g := newReadable(t, 2)
	j := &job{coll: schedule.AllToAll, typ: datatype.Int64, count: size / 8}
	g.bind(t, j)
	var mapped [][]byte
	for r, op := range j.ops {
		for _, buf := range []*[]byte{&j.in[r], &j.out[r]} {
			m := mapMemory(t, 3*size)
			m = m[-uintptr(pointer(m))&uintptr(size-1):][:2*size]
			copy(m, *buf)
			*buf = m
			mapped = append(mapped, m)
		}
		op.Send, op.Recv = pointer(j.in[r]), pointer(j.out[r])
		g.arenas[r].UseLargePages()
	}
	var calls [2]Call
	for r, op := range j.ops {
		calls[r] = op.Call
	}
	rebind := func() {
		for r := range calls {
			calls[r].Seq++
			j.ops[r].Bind(g.arenas[r], &calls[r])
		}
	}
	for range 20 * collapseUse {
		clear(j.out[0])
		clear(j.out[1])
		rebind()
		g.finish(t, j)
		j.check(t)
		have := 0
		for _, m := range mapped {
			have += largePagesAt(t, pointer(m))
		}
		if have >= len(mapped) {
			if n := testing.AllocsPerRun(2*collapseUse, func() { rebind(); g.finish(t, j) }); n != 0 {
				t.Errorf("%v allocations in a call", n)
			}
			return
		}
	}
	if control := mapMemory(t, 2*size); unix.Madvise(control, unix.MADV_COLLAPSE) != nil {
		t.Skip("the system gives no large pages on demand")
	}
	t.Error("no large pages")
}

// TestPublishMax checks that blocks of results of publishMax bytes and more are published only in large pages.
func TestPublishMax(t *testing.T) {
	g := newReadable(t, 2)
	var op Op
	send := pointer(make([]byte, publishMax))
	op.Bind(g.arenas[0], &Call{Collective: schedule.AllToAll, Block: publishMax / 2, Send: send})
	op.cut()
	if op.publish(false) || !op.publish(true) {
		t.Errorf("publishes without large pages %v, with %v", op.publish(false), op.publish(true))
	}
	if op.Block--; !op.publish(false) {
		t.Error("fewer bytes are not published")
	}
}

// mapMemory returns a new mapping whose pages exist.
func mapMemory(t *testing.T, n int) []byte {
	t.Helper()
	m, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(m) })
	for i := 0; i < n; i += 4096 {
		m[i] = 1
	}
	return m
}

// largePagesAt returns the number of large pages in the mapping that an address is in.
func largePagesAt(t *testing.T, p unsafe.Pointer) int {
	t.Helper()
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Skip(err)
	}
	defer f.Close()
	in := false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var from, to uintptr
		if n, _ := fmt.Sscanf(lines.Text(), "%x-%x ", &from, &to); n == 2 {
			in = from <= uintptr(p) && uintptr(p) < to
		} else if text, ok := strings.CutPrefix(lines.Text(), "AnonHugePages:"); ok && in {
			kb := 0
			if _, err := fmt.Sscan(text, &kb); err != nil {
				t.Fatal(err)
			}
			return kb << 10 / int(largePageSize())
		}
	}
	return 0
}
