package foreign

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/plans"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/comm"
	"lightpath/shim/device"
	"lightpath/shim/log"
	"lightpath/shim/session"
	"lightpath/shim/stream"
)

// wire moves messages with communicators of the other library, a [stream.Wire].
type wire struct {
	c     *comm.Core
	in    *stream.Issuer
	lib   Library
	comms []Comm // by lane: one for each plane with circuits, one without circuits
	peers device.Peers
}

// Attach makes another library execute collectives on streams, for communicators that this process has just made.
// LIGHTPATH_FALLBACK must request it, and there must be plans or chosen algorithms. All processes of a communicator
// call Attach; either all ranks use the library, or none.
func Attach(comms []*comm.Core, lib Library) error {
	var able []*wire
	for _, c := range comms {
		if c == nil || !c.Cfg.Other.Interpose || c.Ranks == 1 || c.NonBlocking {
			continue
		}
		lanes, why := lanesOf(c)
		if lanes == 0 {
			c.Log.Info(log.Init, "rank %d: calls on streams are not interposed: %s", c.Rank, why)
			continue
		}
		w := &wire{c: c, lib: lib, comms: make([]Comm, lanes)}
		w.peers, _ = device.Active().(device.Peers)
		w.in = stream.NewIssuer(c, stream.Options{Wire: w, Lanes: lanes, Name: "interposed",
			Without: "passed to the other library"})
		able = append(able, w)
	}
	if len(able) == 0 {
		return nil
	}
	var failure error
	for _, w := range able {
		switch {
		case stream.Of(w.c) == nil:
			failure = fmt.Errorf("rank %d has no device: %w", w.c.Rank, calls.FactsOf(w.c).NoDevice)
		case w.peers == nil:
			failure = fmt.Errorf("rank %d: the device's driver cannot make streams and memory", w.c.Rank)
		}
	}
	agreed, err := agree(able, failure)
	if err == nil && agreed {
		failure = makeComms(able, lib)
		agreed, err = agree(able, failure)
	}
	if failure == nil && !agreed {
		failure = errors.New("another rank has no device, or has failed to make its communicators of the other library")
	}
	for _, w := range able {
		if c := w.c; agreed {
			c.Log.Info(log.Init, "rank %d: calls on streams are interposed: %d communicators of the other library",
				c.Rank, len(w.comms))
			calls.FactsOf(c).Foreign = true
			go w.in.Watch()
		} else {
			c.Log.Warn("rank %d: calls on streams are not interposed: %v", c.Rank, failure)
			w.in.Abandon()
		}
	}
	return err
}

// lanesOf returns the number of the other library's communicators that execute scripts: one for each plane with
// circuits, or one if algorithms are chosen. It depends only on values that all ranks share.
func lanesOf(c *comm.Core) (lanes int, why string) {
	p := circuits.Of(c)
	switch {
	case p == nil && len(c.Cfg.Algorithms) == 0:
		return 0, "there are no planes with circuits, and LIGHTPATH_ALGORITHM chooses no algorithm"
	case p == nil:
		return 1, ""
	case p.Site.Template.Circuits != plans.Duplex:
		// A receiver answers on the same plane: with a credit, an acknowledgement.
		return 0, fmt.Sprintf("the planes' circuits are %v, and the other library needs such as lead both ways (duplex)",
			p.Site.Template.Circuits)
	}
	planes := len(p.Site.Planes)
	if nets := len(c.Cfg.Other.Nets); nets != planes && (nets > 0 || planes > 1) {
		return 0, fmt.Sprintf("there are %d planes, and LIGHTPATH_INTERPOSE_NETS names %d networks of the other library",
			planes, nets)
	}
	return planes, ""
}

// run runs a group on host memory, with one call of each communicator.
func run(group []calls.Call) error {
	s := session.New(group)
	defer s.Close()
	for i := range group {
		if err := calls.Check(&group[i]); err != nil {
			return err
		}
		s.Comms = append(s.Comms, group[i].Comm)
	}
	return s.Run()
}

// agree reports whether no rank of any of the communicators has failed.
func agree(all []*wire, failure error) (bool, error) {
	fine := make([]uint8, len(all))
	group := make([]calls.Call, len(all))
	for i, w := range all {
		if failure == nil {
			fine[i] = 1
		}
		at := unsafe.Pointer(&fine[i])
		group[i] = calls.Call{Comm: w.c, Kind: calls.AllReduce, Type: datatype.Uint8, Op: datatype.Min, Count: 1, Send: at,
			Recv: at}
	}
	err := run(group)
	return err == nil && !slices.Contains(fine, 0), err
}

// makeComms makes the communicators of the other library, in one group.
func makeComms(all []*wire, lib Library) error {
	ids, failure := newIDs(all, lib)
	group := make([]calls.Call, len(all))
	for i, w := range all {
		at := unsafe.Pointer(&ids[i][0])
		group[i] = calls.Call{Comm: w.c, Kind: calls.Broadcast, Type: datatype.Uint8, Count: uint64(len(ids[i]) * IDBytes),
			Send: at, Recv: at}
	}
	if err := run(group); err != nil || failure != nil {
		return errors.Join(failure, err)
	}
	var inits []Init
	for i, w := range all {
		c := w.c
		for j, id := range ids[i] {
			if id == ([IDBytes]byte{}) {
				return errors.New("rank 0 has no id of the other library")
			}
			init := Init{ID: id, Ranks: c.Ranks, Rank: c.Rank, Device: c.Device, Name: laneName(c, j)}
			if j < len(c.Cfg.Other.Nets) {
				init.Net = c.Cfg.Other.Nets[j]
			}
			inits = append(inits, init)
		}
	}
	made, err := lib.Make(inits)
	if err != nil {
		return err
	}
	for _, w := range all {
		made = made[copy(w.comms, made):]
	}
	return nil
}

// newIDs makes the ids of the communicators whose rank 0 is here. A rank 0 that fails to make an id sends zeros, so
// that no rank waits for it.
func newIDs(all []*wire, lib Library) (ids [][][IDBytes]byte, failure error) {
	ids = make([][][IDBytes]byte, len(all))
	for i, w := range all {
		ids[i] = make([][IDBytes]byte, len(w.comms))
		for j := range ids[i] {
			if w.c.Rank == 0 && failure == nil {
				ids[i][j], failure = lib.NewID()
			}
		}
	}
	return ids, failure
}

// laneName is the name of a lane's communicator in the other library.
func laneName(c *comm.Core, j int) string {
	if p := circuits.Of(c); p != nil {
		return "lightpath " + p.Site.Planes[j].Name
	}
	return "lightpath"
}

// Executes reports whether the other library executes a call on a stream, and prepares its script, as
// [stream.Issuer.HasScript] does. An error is the error of the call.
func Executes(call *calls.Call) (bool, error) {
	if call.Comm == nil || !calls.FactsOf(call.Comm).Foreign {
		return false, nil
	}
	if err := calls.Check(call); err != nil {
		return false, err
	}
	return stream.IssuerOf(call.Comm).HasScript(call)
}

// Run puts calls that the other library executes on their streams, one after another. It does not wait for them.
func Run(group []calls.Call) error {
	for i := range group {
		in := stream.IssuerOf(group[i].Comm)
		e, err := in.Of(&group[i])
		if err != nil {
			return err
		}
		if e.Script == nil {
			return group[i].Misuse(errors.New("it is not interposed"))
		}
		d := stream.Of(group[i].Comm)
		d.Mu.Lock()
		err = in.Issue(e, &group[i])
		d.Mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// Prepare implements [stream.Wire].
func (w *wire) Prepare(*stream.Launch) error { return nil }

// Begin implements [stream.Wire].
func (w *wire) Begin(device.Stream) error { return nil }

// End implements [stream.Wire].
func (w *wire) End(device.Stream) error { return nil }

// Exchange implements [stream.Wire].
func (w *wire) Exchange(lane int, list []stream.Transfer, s device.Stream) error {
	return w.lib.Exchange(w.comms[lane], list, s)
}

// Alloc implements [stream.Wire].
func (w *wire) Alloc(size int64) (m stream.Memory, err error) {
	m.At, err = w.peers.AllocExchange(int(size))
	m.Base, m.Size = m.At, size
	return m, err
}

// Forget implements [stream.Wire].
func (w *wire) Forget(*stream.Memory) {}

// Check implements [stream.Wire].
func (w *wire) Check() error {
	for j, o := range w.comms {
		if err := w.lib.AsyncError(o); err != nil {
			return fmt.Errorf("shim: rank %d: communicator %q: %w", w.c.Rank, laneName(w.c, j), err)
		}
	}
	return nil
}

// Stop implements [stream.Wire].
func (w *wire) Stop(failed bool) {
	end := w.lib.Destroy
	if failed {
		end = w.lib.Abort
	}
	for _, o := range w.comms {
		if o != 0 {
			_ = end(o) // there is no caller to tell
		}
	}
}

// Free implements [stream.Wire].
func (w *wire) Free() {}
