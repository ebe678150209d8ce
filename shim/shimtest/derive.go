package shimtest

import (
	"slices"

	"lightpath/shim"
	"lightpath/shim/membership"
)

// InitFrom makes one communicator from a parent, as one rank of a process of its own does.
func InitFrom(o membership.Origin) (*shim.Comm, error) {
	comms, err := shim.Init([]shim.InitArgs{{From: &o}})
	if err != nil {
		return nil, err
	}
	return comms[0], nil
}

// Family is the communicators made from a world, by rank of the parent; nil if the rank has none.
type Family struct {
	*World
	Children []*shim.Comm
}

// InitFrom makes one communicator per rank from the parent that origin names. The test destroys them at its end.
func (w *World) InitFrom(origin func(c *shim.Comm) membership.Origin) (*Family, []error) {
	f := &Family{w, make([]*shim.Comm, len(w.Comms))}
	errs := w.Each(func(c *shim.Comm) (err error) {
		f.Children[slices.Index(w.Comms, c)], err = InitFrom(origin(c))
		return err
	})
	w.t.Cleanup(func() {
		(WorldOf(w.t, slices.DeleteFunc(f.Children, func(c *shim.Comm) bool { return c == nil }))).Destroy()
	})
	return f, errs
}

// Derive is InitFrom with the same arguments on all ranks. It sets the parent, and ends the test with the first error.
func (w *World) Derive(o membership.Origin) *Family {
	w.t.Helper()
	f, errs := w.InitFrom(func(c *shim.Comm) membership.Origin {
		o := o // a copy for each rank
		o.Parent = c
		return o
	})
	NoErrors(w.t, errs)
	return f
}

// Must runs f on every child, concurrently, and ends the test with the first error.
func (f *Family) Must(run func(c *shim.Comm) error) {
	f.t.Helper()
	NoErrors(f.t, Concurrently(f.t, len(f.Children), func(i int) error {
		if f.Children[i] == nil {
			return nil
		}
		return run(f.Children[i])
	}))
}
