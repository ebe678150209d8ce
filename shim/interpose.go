package shim

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/plans"
	"lightpath/shim/arbiter/live"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/comm"
	"lightpath/shim/control"
	"lightpath/shim/log"
	"lightpath/shim/other"
	"lightpath/shim/planning"
)

// interposer executes collectives of a communicator on streams as sends and receives of the other library, step by
// step, with kernels of ours between them. It exists where all ranks have been able to make its communicators.
type interposer struct {
	c     *comm.Core
	lib   other.Library
	comms []other.Comm // by lane: one for each plane with circuits, one where there are none
	// gdr is the library, where that is the RDMA ports' own; nil: another libnccl.
	gdr   *gpuDirect
	ended chan struct{} // closed when nothing is on streams any more, or the communicator has failed
	gone  chan struct{} // closed when nothing of it is left

	mu    sync.Mutex // guards what follows
	table map[calls.Shape]*scripted
	site  planning.Site // plans are made for, where there are circuits

	asking plansAsked
	launching
}

// forOther reports whether there is an interposer and its library is another libnccl.
func (in *interposer) forOther() bool { return in != nil && in.gdr == nil }

// Interpose has collectives on streams of communicators that this process has just made executed by another library, where
// LIGHTPATH_FALLBACK asks for that and there is something to execute: plans, or chosen algorithms. All processes
// of a communicator come here with it, and agree: all ranks of it do so, or none.
func Interpose(comms []*comm.Core, lib other.Library) error {
	var able []*interposer
	for _, c := range comms {
		if c == nil || !c.Cfg.Interpose || c.Ranks == 1 || c.NonBlocking {
			continue
		}
		lanes, why := interposedLanes(c)
		if lanes == 0 {
			c.Log.Info(log.Init, "rank %d: calls on streams are not interposed: %s", c.Rank, why)
			continue
		}
		able = append(able, newInterposer(c, lib, lanes))
	}
	if len(able) == 0 {
		return nil
	}
	var failure error
	for _, in := range able {
		switch {
		case onDeviceOf(in.c) == nil:
			failure = fmt.Errorf("rank %d has no device: %w", in.c.Rank, calls.FactsOf(in.c).NoDevice)
		case in.peers == nil:
			failure = fmt.Errorf("rank %d: the device's driver cannot make streams and memory", in.c.Rank)
		}
	}
	agreed, err := agree(able, failure)
	if err == nil && agreed {
		failure = makeOthers(able, lib)
		agreed, err = agree(able, failure)
	}
	if failure == nil && !agreed {
		failure = errors.New("another rank has no device, or has failed to make its communicators of the other library")
	}
	for _, in := range able {
		if c := in.c; agreed {
			c.Log.Info(log.Init, "rank %d: calls on streams are interposed: %d communicators of the other library", c.Rank, len(in.comms))
			go in.watch()
		} else {
			c.Log.Warn("rank %d: calls on streams are not interposed: %v", c.Rank, failure)
			in.abandon()
		}
	}
	return err
}

func newInterposer(c *comm.Core, lib other.Library, lanes int) *interposer {
	in := &interposer{c: c, lib: lib, comms: make([]other.Comm, lanes), table: map[calls.Shape]*scripted{}, ended: make(chan struct{}), gone: make(chan struct{})}
	in.asking.answers = make(chan *control.Message, 4)
	in.setUp(c, lanes)
	if circuits.Of(c) != nil {
		in.site = circuits.Of(c).WithoutForwarding()
	}
	if l := live.Of(c); c.Rank == 0 && l.Scripted == nil {
		l.Scripted = func(s calls.Shape) *planning.Agreed {
			if known := interposerOf(c).known(s); known != nil {
				return known.plan
			}
			return nil
		}
	}
	interposerSlot.Set(c, in) // now: whoever makes calls first asks the leader for plans
	return in
}

// interposedLanes returns how many communicators of the other library execute what: one for each plane with
// circuits, or one where algorithms are chosen. It depends on what all ranks share.
func interposedLanes(c *comm.Core) (lanes int, why string) {
	switch {
	case circuits.Of(c) == nil && len(c.Cfg.Algorithms) == 0:
		return 0, "there are no planes with circuits, and LIGHTPATH_ALGORITHM chooses no algorithm"
	case circuits.Of(c) == nil:
		return 1, ""
	case circuits.Of(c).Template.Circuits != plans.Duplex:
		// Whoever receives has to answer on the same plane: a credit, an acknowledgement.
		return 0, fmt.Sprintf("the planes' circuits are %v, and the other library needs such as lead both ways (duplex)", circuits.Of(c).Template.Circuits)
	case c.Cfg.BarrierTime:
		return 0, "LIGHTPATH_BARRIER is time, and streams keep none"
	}
	planes := len(circuits.Of(c).Planes)
	if nets := len(c.Cfg.InterposeNets); nets != planes && (nets > 0 || planes > 1) {
		return 0, fmt.Sprintf("there are %d planes, and LIGHTPATH_INTERPOSE_NETS names %d networks of the other library", planes, nets)
	}
	return planes, ""
}

// agree tells whether no rank of any of the communicators has failed.
func agree(all []*interposer, failure error) (bool, error) {
	fine := make([]uint8, len(all))
	group := make([]calls.Call, len(all))
	for i, in := range all {
		if failure == nil {
			fine[i] = 1
		}
		at := unsafe.Pointer(&fine[i])
		group[i] = calls.Call{Comm: in.c, Kind: calls.AllReduce, Type: datatype.Uint8, Op: datatype.Min, Count: 1, Send: at, Recv: at}
	}
	err := Run(group)
	return err == nil && !slices.Contains(fine, 0), err
}

// makeOthers makes the communicators of the other library, in one group.
func makeOthers(all []*interposer, lib other.Library) error {
	ids, failure := drawIDs(all, lib)
	group := make([]calls.Call, len(all))
	for i, in := range all {
		at := unsafe.Pointer(&ids[i][0])
		group[i] = calls.Call{Comm: in.c, Kind: calls.Broadcast, Type: datatype.Uint8, Count: uint64(len(ids[i]) * other.IDBytes), Send: at, Recv: at}
	}
	if err := Run(group); err != nil || failure != nil {
		return errors.Join(failure, err)
	}
	var inits []other.Init
	for i, in := range all {
		c := in.c
		for j, id := range ids[i] {
			if id == (otherID{}) {
				return errors.New("rank 0 has no id of the other library")
			}
			init := other.Init{ID: id, Ranks: c.Ranks, Rank: c.Rank, Device: c.Device, Name: laneName(c, j)}
			if j < len(c.Cfg.InterposeNets) {
				init.Net = c.Cfg.InterposeNets[j]
			}
			inits = append(inits, init)
		}
	}
	made, err := lib.Make(inits)
	if err != nil {
		return err
	}
	for _, in := range all {
		made = made[copy(in.comms, made):]
	}
	return nil
}

type otherID = [other.IDBytes]byte

// drawIDs draws the ids of the communicators whose rank 0 is here. One that has none sends zeros, so that nobody
// waits for it.
func drawIDs(all []*interposer, lib other.Library) (ids [][]otherID, failure error) {
	ids = make([][]otherID, len(all))
	for i, in := range all {
		ids[i] = make([]otherID, len(in.comms))
		for j := range ids[i] {
			if in.c.Rank == 0 && failure == nil {
				ids[i][j], failure = lib.NewID()
			}
		}
	}
	return ids, failure
}

// laneName is what the other library's communicator of a lane is called there.
func laneName(c *comm.Core, j int) string {
	if circuits.Of(c) == nil {
		return "lightpath"
	}
	return "lightpath " + circuits.Of(c).Planes[j].Name
}

// abandon has the communicator's calls passed through.
func (in *interposer) abandon() {
	defer close(in.gone)
	interposerSlot.Set(in.c, nil)
	for _, o := range in.comms {
		if o != 0 {
			_ = in.lib.Abort(o)
		}
	}
}

// watch aborts the other library's communicators when ours fails: nothing else ends what they have on streams.
func (in *interposer) watch() {
	defer close(in.gone)
	select {
	case <-in.c.FailedChan():
	case <-in.ended:
	}
	end := in.lib.Destroy
	if in.c.AsyncError() != nil {
		end = in.lib.Abort
	}
	for _, o := range in.comms {
		_ = end(o) // nobody is left to be told
	}
	<-in.ended
	if in.c.AsyncError() == nil {
		in.free() // what a communicator that has failed has on streams may still come to its memory
	}
}

// close ends the interposer of a communicator that has nothing on streams, or has failed, and returns when it has.
func (in *interposer) close() {
	if in == nil {
		return
	}
	close(in.ended)
	<-in.gone
}

// check fails the communicator if the other library has failed since it was asked last.
func (in *interposer) check() {
	if in == nil || in.c.AsyncError() != nil {
		return
	}
	for j, o := range in.comms {
		if err := in.lib.AsyncError(o); err != nil {
			in.c.Spread(fmt.Errorf("shim: rank %d: communicator %q: %w", in.c.Rank, laneName(in.c, j), err))
			return
		}
	}
}
