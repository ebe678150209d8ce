package membership

import (
	"errors"
	"fmt"
	"syscall"

	"lightpath/shim/bootstrap"
	"lightpath/shim/comm"
	"lightpath/shim/control"
)

// Meet meets the other ranks of a communicator that [State.Begin] has begun. Then the communicator has its number,
// table and secret.
func Meet(c *comm.Core, h *bootstrap.Hello) error {
	st := Of(c)
	err := st.meet(c, h)
	st.heard = !errors.Is(err, bootstrap.ErrUnheard)
	return err
}

func (st *State) meet(c *comm.Core, h *bootstrap.Hello) error {
	o := st.Args.From
	switch {
	case o == nil:
		return meetByID(c, h)
	case o.How == BySplit:
		return meetBySplit(c, h, st.number)
	case o.How == ByShrink:
		return meetSurvivors(c, h)
	}
	r := &request{Ranks: o.Ranks}
	if o.ID != nil {
		r.ID = o.ID[:]
	}
	a, err := ask(c, st.number, r)
	if err != nil {
		return err
	}
	if len(a.ID) != bootstrap.UniqueIDSize {
		return fmt.Errorf("shim: %v: %w: id of %d bytes", o.How, control.ErrMessage, len(a.ID))
	}
	st.Args.ID = bootstrap.UniqueID(a.ID)
	Of(o.Parent).requests.spend(&st.Args.ID)
	return meetByID(c, h)
}

// meetByID meets the other ranks where their ids say.
func meetByID(c *comm.Core, h *bootstrap.Hello) error {
	places, err := Of(c).Args.places(h)
	if err != nil {
		return err
	}
	for _, at := range places {
		if c.Cfg.Sockets.CommID != "" && c.Rank == 0 && at.Patience {
			_, err := bootstrap.StartRoot(c.Cfg, at.Secret, at.Addr)
			if err != nil && !errors.Is(err, syscall.EADDRINUSE) {
				return err
			}
		}
	}
	c.Secret = places[0].Secret
	c.ID, c.Table, err = bootstrap.Meet(c.Context(), places, h, c.Cfg.Timeout)
	return err
}

// places returns the places that the ids name, and notes in the hello if there are several.
func (a *Args) places(h *bootstrap.Hello) (places []bootstrap.Place, err error) {
	for _, id := range append([]bootstrap.UniqueID{a.ID}, a.More...) {
		addr, secret, err := bootstrap.ParseID(&id)
		if err != nil {
			return nil, err
		}
		// An address that all ranks know beforehand may be listened on later.
		places = append(places, bootstrap.Place{Addr: addr, Secret: secret, Patience: id == bootstrap.EnvID(addr)})
	}
	if len(places) > 1 {
		h.Places = len(places)
	}
	return places, nil
}

// meetBySplit asks the parent's leader for the ranks of this color.
func meetBySplit(c *comm.Core, h *bootstrap.Hello, number uint64) error {
	o := Of(c).Args.From
	a, err := ask(c, number, &request{Color: o.Color, Key: o.Key, Hello: *h})
	if err != nil || o.Color == NoColor {
		return err
	}
	h.Rank, h.Ranks = a.Rank, len(a.Table)
	if a.Rank < 0 || a.Rank >= len(a.Table) {
		return fmt.Errorf("shim: %v: %w", o.How, control.ErrMessage)
	}
	c.Rank, c.Ranks = h.Rank, h.Ranks
	c.ID, c.Table = a.Comm, a.Table
	c.Secret = o.Parent.Secret.Derive("split", o.Parent.ID, number, uint64(o.Color))
	return bootstrap.CheckTable(a.Table, h)
}
