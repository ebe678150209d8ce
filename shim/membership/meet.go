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
	o := st.Args.From
	switch {
	case o == nil:
		return meetByID(c, h)
	case o.How == BySplit:
		return meetBySplit(c, h, st.number)
	case o.How == ByShrink:
		return meetSurvivors(c, h, st.number)
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
	args := &Of(c).Args
	ids := append([]bootstrap.UniqueID{args.ID}, args.More...)
	places := make([]bootstrap.Place, len(ids))
	for i := range ids {
		addr, sec, err := bootstrap.ParseID(&ids[i])
		if err != nil {
			return err
		}
		// An address that all ranks know beforehand may be listened on later.
		shared := ids[i] == bootstrap.EnvID(addr)
		places[i] = bootstrap.Place{Addr: addr, Secret: sec, Patience: shared}
		if c.Cfg.Sockets.CommID != "" && c.Rank == 0 && shared {
			if _, err := bootstrap.StartRoot(c.Cfg, sec, addr); err != nil && !errors.Is(err, syscall.EADDRINUSE) {
				return err
			}
		}
	}
	c.Secret = places[0].Secret
	if len(places) > 1 {
		h.Places = len(places)
	}
	var err error
	c.ID, c.Table, err = bootstrap.Meet(c.Context(), places, h, c.Cfg.Timeout)
	return err
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
