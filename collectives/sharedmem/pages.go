package sharedmem

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// The kernel looks up every page that it copies out of another process. With small pages that takes as long as the
// copy. So a buffer that a program uses repeatedly is moved to large pages (MADV_COLLAPSE). The move keeps the
// contents; nothing else changes for the program. It costs as much as about 16 calls gain, so it happens at a buffer's
// 16th use.
//
// The process's page faults show that a buffer may have new pages: then there were at least half as many faults as it
// has pages. So memory that is new in every call stays as it is.

const (
	// collapseUse is the use of a buffer at which it is moved to large pages.
	collapseUse = 16
	// collapseTime is how long one call may spend on a move; later calls continue it. collapseStep is how many large pages
	// are asked for at a time.
	collapseTime = 50 * time.Millisecond
	collapseStep = 8
	// buffersKnown is how many buffers are remembered.
	buffersKnown = 64
)

// largePages knows the buffers of one communicator. The zero value moves none.
type largePages struct {
	size    uintptr // of a large page, 0: move none
	buffers [buffersKnown]buffer
	next    int // index of the buffer to forget next

	usage    unix.Rusage
	collapse func(from, n uintptr) error
}

// buffer is a program's buffer that calls have used.
type buffer struct {
	extent
	uses    int
	faults  int64   // of this process before the last use
	left    uintptr // the buffer has small pages from this address on
	refused bool    // the system gives it no large pages
}

// UseLargePages moves buffers that are used repeatedly to large pages, if the system has them.
func (a *Arena) UseLargePages() {
	a.large.size = largePageSize()
	a.large.collapse = collapse
}

// largePageSize returns the bytes of a large page, 0 if the system has none or is configured to give none.
var largePageSize = sync.OnceValue(func() uintptr {
	const dir = "/sys/kernel/mm/transparent_hugepage/"
	if policy, err := os.ReadFile(dir + "enabled"); err != nil || strings.Contains(string(policy), "[never]") {
		return 0
	}
	text, err := os.ReadFile(dir + "hpage_pmd_size")
	if err != nil {
		return 0
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32)
	if err != nil || n&(n-1) != 0 {
		return 0
	}
	return uintptr(n)
})

func collapse(from, n uintptr) error {
	// Not a raw call: it takes milliseconds.
	if _, _, e := unix.Syscall(unix.SYS_MADVISE, from, n, unix.MADV_COLLAPSE); e != 0 {
		return e
	}
	return nil
}

// useLargePages counts a use of the buffers of o, moves them if it is time, and reports whether the send buffer has
// large pages.
func (o *Op) useLargePages() bool {
	l := &o.a.large
	send, recv := o.extents()
	if l.size == 0 {
		return false
	}
	if max(send.n, recv.n) < int(l.size) {
		return o.mayPublish(true) && l.within(send)
	}
	if unix.Getrusage(unix.RUSAGE_SELF, &l.usage) != nil {
		return false
	}
	faults := l.usage.Minflt + l.usage.Majflt
	l.use(recv, faults)
	return l.use(send, faults)
}

// extents returns this rank's buffers. One that it does not have, or that lies in the other, is empty.
func (o *Op) extents() (send, recv extent) {
	in, out := o.Collective.IOBlocksAt(o.a.ranks, o.a.rank == o.Root)
	switch {
	case !o.InPlace || in == 0 || out == 0:
	case in > out:
		out = 0
	default:
		in = 0
	}
	return extent{o.Send, in * o.Block}, extent{o.Recv, out * o.Block}
}

// use counts a use of a buffer, when the process has had so many page faults, and reports whether it has large pages.
func (l *largePages) use(e extent, faults int64) bool {
	at := uintptr(e.at)
	from, to := (at+l.size-1)&^(l.size-1), (at+uintptr(e.n))&^(l.size-1)
	if e.n < int(l.size) || from >= to {
		return false
	}
	b := l.find(e)
	if fresh := faults-b.faults >= int64(e.n/os.Getpagesize()/2); fresh || b.uses == 0 {
		b.uses, b.left, b.refused = 0, from, false
	}
	b.faults, b.uses = faults, b.uses+1
	if b.uses >= collapseUse && b.left < to && !b.refused {
		l.move(b, to)
	}
	return b.left == to
}

// within reports whether memory lies in the large pages of a known buffer.
func (l *largePages) within(e extent) bool {
	at := uintptr(e.at)
	for i := range l.buffers {
		b := &l.buffers[i]
		if from := (uintptr(b.at) + l.size - 1) &^ (l.size - 1); from <= at && at+uintptr(e.n) <= b.left {
			return true
		}
	}
	return false
}

// move moves a buffer to large pages up to an address, as far as collapseTime allows.
func (l *largePages) move(b *buffer, to uintptr) {
	for end := time.Now().Add(collapseTime); b.left < to && time.Now().Before(end); {
		n := min(collapseStep*l.size, to-b.left)
		if l.collapse(b.left, n) != nil {
			b.refused = true // no memory, or a kind of memory without large pages
			return
		}
		b.left += n
	}
}

// find returns the entry of a buffer. A new buffer replaces the oldest entry.
func (l *largePages) find(e extent) *buffer {
	for i := range l.buffers {
		if l.buffers[i].extent == e {
			return &l.buffers[i]
		}
	}
	b := &l.buffers[l.next]
	l.next = (l.next + 1) % buffersKnown
	*b = buffer{extent: e}
	return b
}
