package staged

import (
	"errors"
	"slices"
	"sync/atomic"
	"unsafe"

	"lightpath/shim/calls"
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
	control  memory.Pinned // the word that streams wait for, then the words of the first relays
	seq      uint32        // value of the word after the last launch
	staging  memory.Pinned
	outgrown []memory.Pinned // launches that have not ended may still use it
	graph    *graphMemory    // of the latest capture

	prepared bool
	torn     bool                      // a launch is only partly on its streams: no event tells when they have left it
	back     device.Stream             // copies the results of launches with several steps; 0: the launch's stream does
	turns    [steps.Rooms]device.Event // recorded after the results of a step

	lanes  []*relayLane
	words  []memory.Pinned // of the other relays
	sides  stream.Sides    // for relays
	worker worker
}

var slot = comm.NewSlot[state]()

// Setup prepares a communicator that has a device for staged launches.
func Setup(c *comm.Core) {
	st := &state{dev: stream.Of(c), worker: worker{open: true}}
	st.worker.loop = st.worker.run
	slot.Set(c, st)
	c.AddHooks(comm.Hooks{Closed: st.close})
}

// Prepare makes what launches need: the streams, the events, one copy of each kind, and staging memory for calls of up
// to [calls.MostPieces] pieces. Later, a driver may wait for the work of the device before it makes one, and that work
// may wait for this rank. If it fails, the first launch tries again.
func Prepare(c *comm.Core) error {
	st := slot.Of(c)
	if st.dev.Context == 0 {
		return nil // a driver without contexts
	}
	if err := device.Active().(device.Peers).EnterContext(st.dev.Context); err != nil {
		return err
	}
	defer device.Active().Leave()
	st.dev.Mu.Lock()
	defer st.dev.Mu.Unlock()
	if err := errors.Join(device.Active().LoadCopies(), st.prepare(c)); err != nil {
		return err
	}
	if calls.FactsOf(c).Launches != calls.NoLaunches {
		return nil // few calls are staged, most of which need no memory
	}
	_, err := st.memoryFor(2 * steps.Rooms * int(calls.FactsOf(c).Cut))
	return err
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

// prepare creates what launches need, if it does not exist yet.
func (st *state) prepare(c *comm.Core) (err error) {
	if st.prepared {
		return nil
	}
	err = errors.Join(st.dev.Prepare(), stream.NewEvents(&st.turns[0], &st.turns[1]), st.sides.Prepare(c))
	if err == nil && st.control.At == nil {
		if st.control, err = st.dev.Lock(memory.PageSize); err == nil {
			atomic.StoreUint32(st.control.Word(), st.seq)
		}
	}
	if err == nil {
		err = st.dev.Pool.Prepare()
	}
	if err == nil && calls.FactsOf(c).Launches == calls.NoLaunches { // otherwise few calls have several steps
		st.back, err = st.dev.Pool.Take()
	}
	st.prepared = err == nil
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
	over := st.dev.Over()
	st.dev.Mu.Lock()
	defer st.dev.Mu.Unlock()
	if !over || st.torn {
		return
	}
	for _, r := range slices.Concat(st.outgrown, st.words, []memory.Pinned{st.staging, st.control}) {
		st.dev.Unlock(r)
	}
	stream.FreeEvents(&st.turns[0], &st.turns[1])
	st.sides.Free(st.dev.Pool)
	st.dev.Pool.Give(st.back)
	st.worker.close()
	st.outgrown, st.words, st.lanes, st.graph = nil, nil, nil, nil
	st.staging, st.control, st.back, st.prepared = memory.Pinned{}, memory.Pinned{}, 0, false
}
