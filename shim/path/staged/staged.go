// Package staged runs calls on streams through page-locked host memory. The device copies a call's input into that
// memory. The CPU runs the call there as steps on host memory. The device copies the result back.
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

// state is a communicator's memory and streams for staged launches. Launches run one after another on the device, so
// they share one staging memory. [stream.Device].Mu guards it.
type state struct {
	dev      *stream.Device
	control  memory.Pinned // its first bytes are the word that streams wait for
	seq      uint32        // value of the word after the last launch
	staging  memory.Pinned
	outgrown []memory.Pinned // launches that have not ended may still use it
	graph    *graphMemory    // of the latest capture

	back  device.Stream             // copies the results of launches with several steps
	turns [steps.Rooms]device.Event // recorded after the results of a step

	lanes  []*relayLane
	worker worker
}

var slot = comm.NewSlot[state]()

// Setup prepares a communicator that has a device for staged launches.
func Setup(c *comm.Core) {
	st := &state{dev: stream.Of(c)}
	slot.Set(c, st)
	c.AddHooks(comm.Hooks{Closed: st.close})
}

// graphMemory holds the word and the staging memory of the launches of one capture. These launches run one after
// another. The memory is freed with the last of them.
type graphMemory struct {
	capture uint64
	memory  memory.Pinned
	dev     *stream.Device
	users   atomic.Int32
}

// leave drops one user, and frees the memory after the last.
func (g *graphMemory) leave() {
	if g.users.Add(-1) == 0 {
		g.dev.Unlock(g.memory)
	}
}

// prepare creates what launches need, if it does not exist yet. If apart is true, it also creates the stream that
// copies results.
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

// memoryOfGraph returns the word and the staging memory of a captured launch, and counts the launch as a user. A graph
// may be replayed while other launches are pending, so it keeps memory of its own until it is destroyed.
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

// close frees what no stream uses any more. If the communicator failed with launches on streams, close frees nothing:
// it cannot know when the streams reach those launches.
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
