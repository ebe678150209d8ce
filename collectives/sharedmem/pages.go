package sharedmem

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"lightpath/collectives/schedule"
)

// The kernel looks up each page that it copies out of another process, which for small pages takes as
// long as copying them. So a buffer that a program uses again and again gets large pages
// (MADV_COLLAPSE: the system moves what is in it; nothing else changes for the program). That costs
// what it gains in some 16 calls, so it comes when a buffer has been used as often. That a buffer has
// new pages is seen from the process's page faults: somebody must have had as many as it has
// pages. So memory that is new in every call is left alone.

const (
	// collapseUse is with which use of a buffer it gets large pages.
	collapseUse = 16
	// collapseTime is how long one call may spend on that, and collapseStep the large pages that it asks for
	// at a time; what is left is for later calls.
	collapseTime = 50 * time.Millisecond
	collapseStep = 8
	// buffersKnown is how many buffers are remembered.
	buffersKnown = 64
)

// largePages knows the buffers of one communicator. Its zero value does nothing.
type largePages struct {
	size    uintptr // of a large page, 0: none are wanted
	buffers [buffersKnown]buffer
	next    int // of buffers, to be forgotten

	usage    unix.Rusage
	collapse func(from, n uintptr) error
}

// buffer is a program's, as one that has been used.
type buffer struct {
	extent
	uses    int
	faults  int64   // of this process before the last use
	left    uintptr // from here on it has small pages
	refused bool    // the system does not give it large ones
}

// UseLargePages lets buffers that are used repeatedly have large pages, where the system has them.
func (a *Arena) UseLargePages() {
	a.large.size = largePageSize()
	a.large.collapse = collapse
}

// largePageSize is the system's, 0 where it has none or is told to make none.
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
	// Not raw: it takes milliseconds.
	if _, _, e := unix.Syscall(unix.SYS_MADVISE, from, n, unix.MADV_COLLAPSE); e != 0 {
		return e
	}
	return nil
}

// settle gives the buffers of o large pages, if it is time for that, and reports whether the one that is sent
// has them.
func (o *Op) settle() bool {
	l := &o.a.large
	send, recv := o.extents()
	if l.size == 0 {
		return false
	}
	if max(send.n, recv.n) < int(l.size) {
		return o.publishable(true) && l.within(send)
	}
	if unix.Getrusage(unix.RUSAGE_SELF, &l.usage) != nil {
		return false
	}
	faults := l.usage.Minflt + l.usage.Majflt
	l.use(recv, faults)
	return l.use(send, faults)
}

// extents returns this rank's buffers, empty where it has none or one is in the other.
func (o *Op) extents() (send, recv extent) {
	n, root := o.a.ranks, o.a.rank == o.Root
	s, r := 1, 1 // blocks
	switch o.Collective {
	case schedule.AllGather:
		r = n
	case schedule.ReduceScatter:
		s = n
	case schedule.AllToAll:
		s, r = n, n
	case schedule.Broadcast:
		s = among(root, 1)
	case schedule.Reduce:
		r = among(root, 1)
	case schedule.Gather:
		r = among(root, n)
	case schedule.Scatter:
		s = among(root, n)
	}
	if o.InPlace && s > 0 && r > 0 {
		if s > r {
			r = 0
		} else {
			s = 0
		}
	}
	return extent{o.Send, s * o.Block}, extent{o.Recv, r * o.Block}
}

func among(has bool, blocks int) int {
	if has {
		return blocks
	}
	return 0
}

// use takes note that a call has a buffer, when the process has had so many page faults, and reports whether
// it has large pages.
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

// within reports whether memory lies in what a buffer has of large pages.
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

// move gives a buffer large pages up to an address, as far as it gets in the time.
func (l *largePages) move(b *buffer, to uintptr) {
	for end := time.Now().Add(collapseTime); b.left < to && time.Now().Before(end); {
		n := min(collapseStep*l.size, to-b.left)
		if l.collapse(b.left, n) != nil {
			b.refused = true // memory is short, or of a kind that cannot
			return
		}
		b.left += n
	}
}

// find returns what is known of a buffer, in place of the one that has come first where it is new.
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
