package stream

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"unsafe"

	"lightpath/shim/calls"
	"lightpath/shim/comm"
	"lightpath/shim/device"
	"lightpath/shim/memory"
)

// group is the calls of a group that [Launcher]s put on streams. Groups are pooled.
type group struct {
	calls []calls.Call
	rest  []calls.Call // calls without a launcher
	comms []*comm.Core
	puts  []*comm.Core // communicators with work for streams
	bufs  []hostBuffer
	waits []*comm.Core // communicators whose calls have no stream
}

var groups = sync.Pool{New: func() any { return new(group) }}

func (g *group) reset() {
	clear(g.calls)
	clear(g.rest)
	clear(g.comms)
	clear(g.puts)
	clear(g.bufs)
	clear(g.waits)
	g.calls, g.rest, g.comms, g.puts, g.bufs, g.waits = g.calls[:0], g.rest[:0], g.comms[:0], g.puts[:0],
		g.bufs[:0], g.waits[:0]
}

// Run puts the calls for which launched returns true on their streams, and runs the other calls with rest. Calls that
// have no stream, and only buffers in host memory, have completed when Run returns.
func Run(all []calls.Call, launched func(*calls.Call) bool, rest func([]calls.Call) error) error {
	g := groups.Get().(*group)
	err := g.run(all, launched, rest)
	for i := range g.bufs {
		g.bufs[i].finish(err)
	}
	g.reset()
	groups.Put(g)
	return err
}

func (g *group) run(all []calls.Call, launched func(*calls.Call) bool, rest func([]calls.Call) error) error {
	for i := range all {
		call := &all[i]
		if !launched(call) {
			g.rest = append(g.rest, *call)
			continue
		}
		g.calls = append(g.calls, *call)
		if !slices.Contains(g.comms, call.Comm) {
			g.comms = append(g.comms, call.Comm)
		}
	}
	// All ranks put their launches on streams in one order, since one stream may serve several communicators.
	slices.SortFunc(g.comms, byID)
	for _, c := range g.comms {
		if err := g.divide(c); err != nil {
			return err
		}
	}
	if err := g.put(); err != nil {
		return err
	}
	if len(g.rest) > 0 {
		if err := rest(g.rest); err != nil {
			return err
		}
	}
	for _, c := range g.waits {
		Drain(c)
		c.Check()
		if err := c.AsyncError(); err != nil {
			return err
		}
	}
	return nil
}

// byID orders communicators in the same way on all ranks.
func byID(a, b *comm.Core) int { return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Rank, b.Rank)) }

// divide decides how the group's calls of one communicator run.
func (g *group) divide(c *comm.Core) error {
	here, err := g.onHost(c)
	if err != nil {
		return err
	}
	if c.Ranks == 1 && (here || g.scalesOnHost(c)) {
		for i := range g.calls {
			if g.calls[i].Comm == c {
				g.rest = append(g.rest, g.calls[i])
			}
		}
		return nil
	}
	g.puts = append(g.puts, c)
	if !here {
		return nil
	}
	g.waits = append(g.waits, c)
	return g.pin(c)
}

// scalesOnHost reports whether a kernel would multiply data in host memory, which it cannot reach. A single rank has no
// other memory for it.
func (g *group) scalesOnHost(c *comm.Core) bool {
	return slices.ContainsFunc(g.calls, func(call calls.Call) bool {
		if call.Comm != c || call.Count == 0 || !call.Kind.Reduces() || call.Op != calls.OpPreMulSum {
			return false
		}
		place, err := device.Active().Locate(call.Recv)
		return err == nil && place.Kind == device.Host
	})
}

// onHost reports whether a communicator's calls have only host memory and no stream.
func (g *group) onHost(c *comm.Core) (bool, error) {
	for i := range g.calls {
		call := &g.calls[i]
		if call.Comm != c {
			continue
		}
		if call.Stream != 0 {
			return false, nil
		}
		send, recv := call.Extents()
		for _, b := range [2]struct {
			name string
			at   unsafe.Pointer
			size int64
		}{{"sendbuff", call.Send, send}, {"recvbuff", call.Recv, recv}} {
			place, err := locate(call, b.name, b.at, b.size)
			if err != nil || place.Kind >= device.Managed {
				return false, err
			}
		}
	}
	return true, nil
}

// hostBuffer is page-locked memory that replaces a buffer in host memory.
type hostBuffer struct {
	of     *comm.Core
	pinned memory.Pinned
	to     unsafe.Pointer // nil: it is a send buffer
	size   int64
}

// finish copies a result to the caller's buffer and frees the memory. After an error it keeps the memory if streams may
// still use it.
func (b *hostBuffer) finish(err error) {
	if err != nil && (b.of.Failed() || !Of(b.of).Over()) {
		return
	}
	if err == nil && b.to != nil {
		copy(memory.Bytes(b.to, b.size), memory.Bytes(b.pinned.At, b.size))
	}
	memory.Unpin(b.pinned)
}

// pin replaces the buffers of a communicator's calls by page-locked memory, which devices need.
func (g *group) pin(c *comm.Core) error {
	if err := device.Active().(device.Peers).EnterContext(Of(c).Context); err != nil {
		return err
	}
	defer device.Active().Leave()
	for i := range g.calls {
		call := &g.calls[i]
		if call.Comm != c || call.Count == 0 {
			continue
		}
		send, recv := call.Extents()
		if err := g.pinBuffer(c, &call.Send, send, true); err != nil {
			return err
		}
		if err := g.pinBuffer(c, &call.Recv, recv, false); err != nil {
			return err
		}
		if err := call.Resolve(); err != nil {
			return err
		}
	}
	return nil
}

func (g *group) pinBuffer(c *comm.Core, at *unsafe.Pointer, size int64, isSend bool) error {
	if size == 0 {
		return nil
	}
	r, err := memory.Pin(int(size))
	if err != nil {
		return err
	}
	b := hostBuffer{of: c, pinned: r, size: size}
	if isSend {
		copy(memory.Bytes(r.At, size), memory.Bytes(*at, size))
	} else {
		b.to = *at
	}
	*at = r.At
	g.bufs = append(g.bufs, b)
	return nil
}

// A driver queues about a thousand operations for a stream. Then it blocks the thread that adds more. A thread with
// several ranks must not block on one rank before it has added the work of the others. So goroutines put long launches
// on their streams side by side.

// surelyKept returns how many parts a stream takes without blocking the thread. A part has more operations the more
// ranks there are, at most 40 with 16. Ranks that share a device share the room for operations.
func surelyKept(c *comm.Core) int64 { return min(24, int64(192/(c.Ranks*Sharing(c)))) }

// put puts the group's calls on streams. If that fails for one communicator, put fails all communicators that have
// begun: the group will stay incomplete.
func (g *group) put() error {
	if g.isLong() && g.isSeparate() {
		return g.putApart()
	}
	for i, c := range g.puts {
		if err := g.putOf(c); err != nil {
			for _, begun := range g.puts[:i] {
				begun.Spread(err)
			}
			return err
		}
	}
	return nil
}

func (g *group) putOf(c *comm.Core) error {
	d := Of(c)
	d.Mu.Lock()
	defer d.Mu.Unlock()
	if err := c.Healthy(); err != nil {
		return err // failed or destroyed while this thread waited for the lock
	}
	return d.Launcher.Put(g.calls, slices.Contains(g.waits, c))
}

// putApart is put with a goroutine for each communicator.
func (g *group) putApart() error {
	var all sync.WaitGroup
	errs := make([]error, len(g.puts))
	for i, c := range g.puts {
		all.Go(func() {
			if errs[i] = g.putOf(c); errs[i] != nil {
				for _, other := range g.puts { // their goroutines may be blocked too
					if other != c {
						other.Spread(errs[i])
					}
				}
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// isLong reports whether a driver may block the thread in the middle of one communicator's calls, before it has added
// the calls of the others.
func (g *group) isLong() bool {
	if len(g.puts) < 2 {
		return false
	}
	for _, c := range g.puts {
		parts := int64(0)
		for i := range g.calls {
			if g.calls[i].Comm == c {
				parts += Of(c).Launcher.Parts(&g.calls[i])
			}
		}
		if parts > surelyKept(c) {
			return true
		}
	}
	return false
}

// isSeparate reports whether goroutines may put the communicators' launches side by side. No two communicators may
// share a stream, on which their order would matter. No call may use the per-thread default stream, which differs
// between threads.
func (g *group) isSeparate() bool {
	for i := range g.calls {
		a := &g.calls[i]
		if a.Stream == device.LastDefault {
			return false
		}
		for k := range g.calls[:i] {
			b := &g.calls[k]
			if a.Comm != b.Comm && a.Stream == b.Stream &&
				(a.Stream > device.LastDefault || Of(a.Comm).Context == Of(b.Comm).Context) {
				return false
			}
		}
	}
	return true
}
