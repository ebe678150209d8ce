package lumos

import (
	"fmt"

	"lightpath/plans/circuit"
)

// Configuration holds the maps of all OCSes of a fabric with interleaved wiring. Port i of each belongs to pod i.
type Configuration struct {
	Fabric Fabric
	// Even[h][k] is the map of OCS 2k of group h. Its mate, OCS 2k+1, always has the inverse. So a circuit i
	// -> j is one link, both ways: between port 2k of spine h of pod i and port 2k+1 of spine h of pod j.
	Even [][]circuit.Permutation
}

// NewConfiguration returns the configuration without circuits.
func NewConfiguration(f Fabric) *Configuration {
	c := &Configuration{Fabric: f, Even: make([][]circuit.Permutation, f.Spines())}
	for h := range c.Even {
		c.Even[h] = make([]circuit.Permutation, f.Pairs())
		for k := range c.Even[h] {
			c.Even[h][k] = circuit.AllDark(f.Pods)
		}
	}
	return c
}

// Map returns the map of OCS k of group h, to be read only.
func (c *Configuration) Map(h, k int) circuit.Permutation {
	if even := c.Even[h][k/2]; k%2 == 0 {
		return even
	}
	return c.Even[h][k/2].Inverse()
}

// Validate names the first map that its OCS cannot have.
func (c *Configuration) Validate() error {
	if err := c.Fabric.Validate(); err != nil {
		return err
	}
	if len(c.Even) != c.Fabric.Spines() {
		return fmt.Errorf("%w: maps: %d groups, want %d", ErrInput, len(c.Even), c.Fabric.Spines())
	}
	for h, group := range c.Even {
		if len(group) != c.Fabric.Pairs() {
			return fmt.Errorf("%w: maps[%d]: %d pairs of OCSes, want %d", ErrInput, h, len(group), c.Fabric.Pairs())
		}
		for k, p := range group {
			if err := p.Validate(c.Fabric.Pods); err != nil {
				return fmt.Errorf("%w: maps[%d][%d]: %w", ErrInput, h, k, err)
			}
			for i, j := range p {
				if i == j {
					return fmt.Errorf("%w: maps[%d][%d][%d]: a circuit from pod %d to itself", ErrInput, h, k, i, i)
				}
			}
		}
	}
	return nil
}

// Clone returns a copy that shares nothing with c.
func (c *Configuration) Clone() *Configuration {
	d := &Configuration{Fabric: c.Fabric, Even: make([][]circuit.Permutation, len(c.Even))}
	for h, group := range c.Even {
		for _, p := range group {
			d.Even[h] = append(d.Even[h], p.Clone())
		}
	}
	return d
}

// Change says how much of a core was rewired. A link is one circuit on each of two OCSes.
type Change struct {
	Links   int `json:"links"`   // that the core could have: ports of spines / 2
	Made    int `json:"made"`    // links that were not there before
	Removed int `json:"removed"` // links that are no more there
	// Needed is a lower bound of Made for any configuration with the required links.
	Needed int `json:"needed"`
}

// Ratio returns the share of the core's links that were made anew, 0 to 1.
func (c Change) Ratio() float64 {
	if c.Links == 0 {
		return 0
	}
	return float64(c.Made) / float64(c.Links)
}
