package shim

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/plans"
	"lightpath/shim/control"
	"lightpath/shim/log"
	"lightpath/shim/other"
)

// interposer executes collectives of a communicator on streams as sends and receives of the other library, step by
// step, with kernels of ours between them. It exists where all ranks have been able to make its communicators.
type interposer struct {
	c     *Comm
	lib   other.Library
	comms []other.Comm // by lane: one for each plane with circuits, one where there are none
	// gdr is the library, where that is the RDMA ports' own; nil: another libnccl.
	gdr   *gpuDirect
	ended chan struct{} // closed when nothing is on streams any more, or the communicator has failed
	gone  chan struct{} // closed when nothing of it is left

	mu    sync.Mutex // guards what follows
	table map[shape]*scripted
	site  planSite // plans are made for, where there are circuits

	asking plansAsked
	launching
}

// forOther reports whether there is an interposer and its library is another libnccl.
func (in *interposer) forOther() bool { return in != nil && in.gdr == nil }

// Interpose has collectives on streams of communicators that this process has just made executed by another library, where
// LIGHTPATH_FALLBACK asks for that and there is something to execute: plans, or chosen algorithms. All processes
// of a communicator come here with it, and agree: all ranks of it do so, or none.
func Interpose(comms []*Comm, lib other.Library) error {
	var able []*interposer
	for _, c := range comms {
		if c == nil || !c.cfg.Interpose || c.args.Ranks == 1 || c.args.NonBlocking {
			continue
		}
		lanes, why := c.interposedLanes()
		if lanes == 0 {
			c.log.Info(log.Init, "rank %d: calls on streams are not interposed: %s", c.args.Rank, why)
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
		case in.c.dev == nil:
			failure = fmt.Errorf("rank %d has no device: %w", in.c.args.Rank, in.c.noDevice)
		case in.peers == nil:
			failure = fmt.Errorf("rank %d: the device's driver cannot make streams and memory", in.c.args.Rank)
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
			c.log.Info(log.Init, "rank %d: calls on streams are interposed: %d communicators of the other library", c.args.Rank, len(in.comms))
			go in.watch()
		} else {
			c.log.Warn("rank %d: calls on streams are not interposed: %v", c.args.Rank, failure)
			in.abandon()
		}
	}
	return err
}

func newInterposer(c *Comm, lib other.Library, lanes int) *interposer {
	in := &interposer{c: c, lib: lib, comms: make([]other.Comm, lanes), table: map[shape]*scripted{}, ended: make(chan struct{}), gone: make(chan struct{})}
	in.asking.answers = make(chan *control.Message, 4)
	in.setUp(c, lanes)
	if c.light != nil {
		in.site = c.light.withoutForwarding()
	}
	c.inter.Store(in) // now: whoever makes calls first asks the leader for plans
	return in
}

// interposedLanes returns how many communicators of the other library execute what: one for each plane with
// circuits, or one where algorithms are chosen. It depends on what all ranks share.
func (c *Comm) interposedLanes() (lanes int, why string) {
	switch {
	case c.light == nil && len(c.cfg.Algorithms) == 0:
		return 0, "there are no planes with circuits, and LIGHTPATH_ALGORITHM chooses no algorithm"
	case c.light == nil:
		return 1, ""
	case c.light.template.Circuits != plans.Duplex:
		// Whoever receives has to answer on the same plane: a credit, an acknowledgement.
		return 0, fmt.Sprintf("the planes' circuits are %v, and the other library needs such as lead both ways (duplex)", c.light.template.Circuits)
	case c.cfg.BarrierTime:
		return 0, "LIGHTPATH_BARRIER is time, and streams keep none"
	}
	planes := len(c.light.planes)
	if nets := len(c.cfg.InterposeNets); nets != planes && (nets > 0 || planes > 1) {
		return 0, fmt.Sprintf("there are %d planes, and LIGHTPATH_INTERPOSE_NETS names %d networks of the other library", planes, nets)
	}
	return planes, ""
}

// withoutForwarding is where plans are made whose messages nobody forwards.
func (o *planSite) withoutForwarding() planSite {
	site, template := *o, *o.template
	template.Forwarding = false
	site.template = &template
	return site
}

// agree tells whether no rank of any of the communicators has failed.
func agree(all []*interposer, failure error) (bool, error) {
	fine := make([]uint8, len(all))
	calls := make([]Call, len(all))
	for i, in := range all {
		if failure == nil {
			fine[i] = 1
		}
		at := unsafe.Pointer(&fine[i])
		calls[i] = Call{Comm: in.c, Kind: CallAllReduce, Type: datatype.Uint8, Op: datatype.Min, Count: 1, Send: at, Recv: at}
	}
	err := Run(calls)
	return err == nil && !slices.Contains(fine, 0), err
}

// makeOthers makes the communicators of the other library, in one group.
func makeOthers(all []*interposer, lib other.Library) error {
	ids, failure := drawIDs(all, lib)
	calls := make([]Call, len(all))
	for i, in := range all {
		at := unsafe.Pointer(&ids[i][0])
		calls[i] = Call{Comm: in.c, Kind: CallBroadcast, Type: datatype.Uint8, Count: uint64(len(ids[i]) * other.IDBytes), Send: at, Recv: at}
	}
	if err := Run(calls); err != nil || failure != nil {
		return errors.Join(failure, err)
	}
	var inits []other.Init
	for i, in := range all {
		c := in.c
		for j, id := range ids[i] {
			if id == (otherID{}) {
				return errors.New("rank 0 has no id of the other library")
			}
			init := other.Init{ID: id, Ranks: c.args.Ranks, Rank: c.args.Rank, Device: c.args.Device, Name: c.laneName(j)}
			if j < len(c.cfg.InterposeNets) {
				init.Net = c.cfg.InterposeNets[j]
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
			if in.c.args.Rank == 0 && failure == nil {
				ids[i][j], failure = lib.NewID()
			}
		}
	}
	return ids, failure
}

// laneName is what the other library's communicator of a lane is called there.
func (c *Comm) laneName(j int) string {
	if c.light == nil {
		return "lightpath"
	}
	return "lightpath " + c.light.planes[j].Name
}

// abandon has the communicator's calls passed through.
func (in *interposer) abandon() {
	defer close(in.gone)
	in.c.inter.Store(nil)
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
	case <-in.c.poisonCh:
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
			in.c.spread(fmt.Errorf("shim: rank %d: communicator %q: %w", in.c.args.Rank, in.c.laneName(j), err))
			return
		}
	}
}
