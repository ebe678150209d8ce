package lumos

import (
	"fmt"

	"lightpath/plans/circuit"
	"lightpath/plans/lumos/matrix"
	"lightpath/plans/lumos/slots"
)

// Core is the core of a running cluster: its logical topology and configuration, which follow
// the requirement with few links moved. Not safe for concurrent use.
type Core struct {
	fabric Fabric
	leaves *slots.Table     // links of leaves by spine
	groups []*slots.Table   // links of pods by pair of OCSes, of each group
	need   []*matrix.Matrix // C_h
}

// NewCore returns a core without circuits.
func NewCore(f Fabric) (*Core, error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	c := &Core{fabric: f, leaves: slots.New(f.Leaves(), f.Spines())}
	for range f.Spines() {
		c.groups = append(c.groups, slots.New(f.Pods, f.Pairs()))
		c.need = append(c.need, matrix.New(f.Pods))
	}
	c.watch()
	return c, nil
}

// configured returns a core with a configuration, and without a requirement.
func configured(has *Configuration) (*Core, error) {
	if err := has.Validate(); err != nil {
		return nil, err
	}
	c, err := NewCore(has.Fabric)
	if err != nil {
		return nil, err
	}
	for h, group := range has.Even {
		for k, p := range group {
			for i, j := range p {
				if j != circuit.Dark {
					c.groups[h].Put(i, j, k)
				}
			}
		}
	}
	return c, nil
}

// CoreFor returns a core that carries a requirement, planned from nothing.
func CoreFor(r *Requirement) (*Core, error) {
	c, err := NewCore(r.Fabric())
	if err != nil {
		return nil, err
	}
	if err := c.replan(r); err != nil {
		return nil, err
	}
	for h, core := range c.need {
		if c.groups[h], err = realize(c.fabric, core); err != nil {
			return nil, fmt.Errorf("lumos: spine %d: %w", h, err)
		}
	}
	return c, nil
}

// watch lets the links of leaves determine the links between pods and the costs of spines.
func (c *Core) watch() {
	c.leaves.Watch = func(a, b, h, by int) {
		i, j := c.fabric.Pod(a), c.fabric.Pod(b)
		c.need[h].Add(i, j, by)
		c.need[h].Add(j, i, by)
	}
	c.leaves.Cost = c.cost
}

// cost returns the cost of a link of leaves a -> b by spine h. A contended link to the spine costs most. Then
// come circuits that must be removed, then a new circuit, then an unused existing circuit.
func (c *Core) cost(a, b, h int) int {
	i, j := c.fabric.Pod(a), c.fabric.Pod(b)
	cost := 0
	if c.fabric.Tau == 1 {
		if max(c.need[h].RowSum(i), c.need[h].RowSum(j)) >= c.fabric.KSpine {
			return -1
		}
		if c.leaves.From(a, h) >= 0 {
			cost += 3
		}
		if c.leaves.At(b, h) >= 0 {
			cost += 3
		}
	}
	switch {
	case c.groups[h].Have(i, j) > c.need[h].At(i, j):
		return cost
	case c.groups[h].Fits(i, j):
		return cost + 1
	}
	return cost + 2
}

// Update makes the core carry a requirement of its fabric. Links that are still needed stay where they are.
// Unused circuits stay until their ports are needed, unless prune is set. An error changes nothing.
func (c *Core) Update(r *Requirement, prune bool) (Change, error) {
	if r.Fabric() != c.fabric {
		return Change{}, fmt.Errorf("%w: the requirement is of another fabric", ErrInput)
	}
	before := c.Configuration()
	change := Change{Links: c.fabric.Pods * c.fabric.ocses() / 2, Needed: c.missing(r)}
	if err := c.follow(r); err != nil {
		return Change{}, err
	}
	for h, t := range c.groups {
		need := c.need[h].Clone() // the table keeps it
		if prune {
			t.Prune(need)
		}
		if err := t.Reach(need); err != nil {
			panic(fmt.Sprintf("lumos: group %d: %v: a logical topology fits its core", h, err))
		}
	}
	after := c.Configuration()
	for h := range after.Even {
		for k := range after.Even[h] {
			change.Made += before.Even[h][k].Changes(after.Even[h][k])
			change.Removed += after.Even[h][k].Changes(before.Even[h][k])
		}
	}
	return change, nil
}

// follow changes the logical topology to one of r. If tau = 1, the change may be impossible; then follow plans it from
// nothing.
func (c *Core) follow(r *Requirement) error {
	want := r.links.Clone() // the table keeps it
	c.leaves.Prune(want)
	if err := c.leaves.Reach(want); err != nil {
		return fmt.Errorf("lumos: %w", err)
	}
	for h := range c.need {
		for i := range c.fabric.Pods {
			if c.need[h].RowSum(i) > c.fabric.KSpine {
				return c.replan(r)
			}
		}
	}
	return nil
}

// replan takes the logical topology of r from nothing.
func (c *Core) replan(r *Requirement) error {
	t, err := assign(r)
	if err != nil {
		return err
	}
	for h, core := range logicalOf(c.fabric, t).Core {
		c.need[h] = core
	}
	c.leaves = t
	c.watch()
	return nil
}

// missing returns how many links between pods r needs and the core lacks, over all spines.
func (c *Core) missing(r *Requirement) int {
	need := matrix.New(c.fabric.Pods)
	for a := range c.fabric.Leaves() {
		for _, cell := range r.links.Row(a) {
			need.Add(c.fabric.Pod(a), c.fabric.Pod(cell.Col), cell.Count)
		}
	}
	missing := 0
	for i := range c.fabric.Pods {
		for _, cell := range need.Row(i) {
			if cell.Col < i {
				continue
			}
			has := 0
			for _, t := range c.groups {
				has += t.Have(i, cell.Col)
			}
			missing += max(0, cell.Count-has)
		}
	}
	return missing
}

// Logical returns the logical topology of the last requirement.
func (c *Core) Logical() *Logical { return logicalOf(c.fabric, c.leaves) }

// Configuration returns the maps of the OCSes.
func (c *Core) Configuration() *Configuration {
	conf := &Configuration{Fabric: c.fabric, Even: make([][]circuit.Permutation, len(c.groups))}
	for h, t := range c.groups {
		for k := range c.fabric.Pairs() {
			conf.Even[h] = append(conf.Even[h], t.Links(k))
		}
	}
	return conf
}
