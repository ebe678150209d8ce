package shimtest

import (
	"slices"

	"lightpath/shim"
	"lightpath/shim/membership"
)

// bear makes one communicator of a parent, as one rank of a process of its own would.
func InitFrom(o membership.Origin) (*shim.Comm, error) {
	comms, err := shim.Init([]shim.InitArgs{{From: &o}})
	if err != nil {
		return nil, err
	}
	return comms[0], nil
}

// family is the children of a world, by rank of the parent.
type Family struct {
	*World
	Children []*shim.Comm
}

// bears makes children and has them destroyed when the test ends.
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

// must runs f on every child, concurrently.
func (f *Family) Must(run func(c *shim.Comm) error) {
	f.t.Helper()
	for r, err := range Concurrently(f.t, len(f.Children), func(i int) error {
		if f.Children[i] == nil {
			return nil
		}
		return run(f.Children[i])
	}) {
		if err != nil {
			f.t.Fatalf("rank %d: %v", r, err)
		}
	}
}
