// Package staged runs calls on streams through page-locked host memory: the device copies what a call sends into it, the CPU
// runs the call there as steps on host memory, and the device copies what it has received out of it.
//
// Layer: a path, above stream and steps. It never waits for a device on the CPU.
package staged

import (
	"sync/atomic"
	"unsafe"

	"lightpath/shim/comm"
	"lightpath/shim/device"
	"lightpath/shim/memory"
	"lightpath/shim/steps"
	"lightpath/shim/stream"
)

// state is what a communicator has for launches that are staged. They follow each other on the device, so that all of them
// have one staging memory in turn. [stream.Device].Mu guards it.
type state struct {
	dev      *stream.Device
	control  memory.Pinned // its first bytes are the word that streams wait for
	seq      uint32        // what the word becomes with the last launch
	staging  memory.Pinned
	outgrown []memory.Pinned // launches that have not ended may still use it
	graph    *graphMemory    // of the capture that came last

	back  device.Stream             // results of launches of several steps are copied on it
	turns [steps.Rooms]device.Event // after the results of a step

	lanes  []*relayLane
	worker worker
}

var slot = comm.NewSlot[state]()

// Setup gives a communicator that has a device what launches need.
func Setup(c *comm.Core) {
	st := &state{dev: stream.Of(c)}
	slot.Set(c, st)
	c.AddHooks(comm.Hooks{Closed: st.close})
}

// graphMemory is the word and the staging memory of launches of one capture, which follow each other. It lives as long as
// they do.
type graphMemory struct {
	capture uint64
	memory  memory.Pinned
	dev     *stream.Device
	users   atomic.Int32
}

// leave gives the memory back when its last launch is gone.
func (g *graphMemory) leave() {
	if g.users.Add(-1) == 0 {
		g.dev.Unlock(g.memory)
	}
}

// prepare makes what the first launch needs, and with apart the first that copies results on a stream of its own.
func (st *state) prepare(apart bool) (err error) {
	if err := st.dev.Prepare(); err != nil {
		return err
	}
	if st.control.At == nil {
		if st.control, err = st.dev.Lock(memory.WordSize); err != nil {
			return err
		}
		atomic.StoreUint32(st.control.Word(), st.seq)
	}
	if apart && st.back == 0 {
		if err := stream.NewEvents(&st.turns[0], &st.turns[1]); err != nil {
			return err
		}
		st.back, err = device.Active().NewStream()
	}
	return err
}

// memoryFor returns the staging memory of a launch that is not captured.
func (st *state) memoryFor(size int) (unsafe.Pointer, error) {
	if size > st.staging.Size {
		r, err := st.dev.Lock(size)
		if err != nil {
			return nil, err
		}
		st.outgrown, st.staging = append(st.outgrown, st.staging), r
	}
	return st.staging.At, nil
}

// memoryOfGraph returns the word and the staging memory of a captured launch, of which it is now a user. A graph may be
// replayed while other launches are on their way, so it has its own for as long as it lives.
func (st *state) memoryOfGraph(capture device.Capture, size int) (*graphMemory, error) {
	g := st.graph
	if g == nil || g.capture != capture.ID || g.users.Load() == 0 || g.memory.Size < memory.WordSize+size {
		r, err := st.dev.Lock(memory.WordSize + size)
		if err != nil {
			return nil, err
		}
		g = &graphMemory{capture: capture.ID, memory: r, dev: st.dev}
		atomic.StoreUint32(r.Word(), 0)
		st.graph = g
	}
	g.users.Add(1)
	return g, nil
}

// close gives back what no stream uses any more. Of a communicator that has failed with launches on streams the rest stays:
// nothing says when streams come to them.
func (st *state) close() {
	if !st.dev.Over() {
		return
	}
	st.dev.Mu.Lock()
	defer st.dev.Mu.Unlock()
	for _, r := range append(st.outgrown, st.staging, st.control) {
		st.dev.Unlock(r)
	}
	stream.FreeEvents(&st.turns[0], &st.turns[1])
	if st.back != 0 {
		_ = device.Active().FreeStream(st.back)
	}
	for _, l := range st.lanes {
		l.close(st.dev)
	}
	st.worker.close()
	st.outgrown, st.staging, st.control, st.graph, st.back, st.lanes = nil, memory.Pinned{}, memory.Pinned{}, nil, 0, nil
}
