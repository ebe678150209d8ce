package shim

import (
	"errors"
	"slices"
	"sync"

	"lightpath/shim/calls"
	"lightpath/shim/comm"
	"lightpath/shim/device"
)

// A driver keeps about a thousand operations for a stream, and has the thread wait that brings more. A thread that has several ranks must
// not wait for one of them before it has brought what the others are to do: long launches are put on their streams side by side.

// surelyKept is how many chunks a stream is given that no thread waits for: one is 40 operations at most, of 16 ranks.
const surelyKept = 24

// put puts the group's calls on streams. Where that fails, all that has begun does: it will not be whole.
func (g *directGroup) put() error {
	if g.long() && g.separate() {
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

func (g *directGroup) putOf(c *comm.Core) error {
	d := onDeviceOf(c)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := c.Sound(); err != nil {
		return err // failed or destroyed while this thread waited for the lock
	}
	here := slices.Contains(g.waits, c)
	if d.gdr != nil {
		return d.gdr.put(g.calls, here)
	}
	return d.direct.put(g.calls, here)
}

// putApart is put with a goroutine for each communicator.
func (g *directGroup) putApart() error {
	var all sync.WaitGroup
	errs := make([]error, len(g.puts))
	for i, c := range g.puts {
		all.Go(func() {
			if errs[i] = g.putOf(c); errs[i] != nil {
				for _, other := range g.puts { // those whose threads wait, too
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

// long reports whether a driver may have the thread wait in the middle of a communicator's calls, while those of others are still to come.
func (g *directGroup) long() bool {
	if len(g.puts) < 2 {
		return false
	}
	for _, c := range g.puts {
		chunks := int64(0)
		for i := range g.calls {
			if g.calls[i].Comm == c {
				chunks += onDeviceOf(c).chunksOf(&g.calls[i])
			}
		}
		if chunks > surelyKept {
			return true
		}
	}
	return false
}

// chunksOf is how many chunks, or rounds, a call has, or more.
func (d *onDevice) chunksOf(call *calls.Call) int64 {
	if d.gdr != nil {
		return d.gdr.roundsOf(call)
	}
	return d.direct.chunksOf(call)
}

// chunksOf is how many chunks a call has, or more.
func (x *direct) chunksOf(call *calls.Call) int64 {
	if x.n == 1 {
		return 1
	}
	chunk := x.slotBytes / int64(x.n)
	if call.Kind.P2P() {
		chunk = x.pairBytes
	}
	send, recv := call.Extents()
	return 1 + max(send, recv)/chunk
}

// separate reports whether the communicators have no stream in common, on which their order would matter, and none that is another one on
// another thread.
func (g *directGroup) separate() bool {
	for i := range g.calls {
		a := &g.calls[i]
		if a.Stream == device.LastDefault {
			return false
		}
		for k := range g.calls[:i] {
			if b := &g.calls[k]; a.Comm != b.Comm && a.Stream == b.Stream && (a.Stream > device.LastDefault || onDeviceOf(a.Comm).ctx == onDeviceOf(b.Comm).ctx) {
				return false
			}
		}
	}
	return true
}
