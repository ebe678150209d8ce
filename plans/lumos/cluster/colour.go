package cluster

// colouring assigns spines to the flows of a phase, so that no link carries more flows than it has room for. A spine h
// with room for n flows at once has n colours, n' H + h for n' < n. A flow from a leaf to another has one colour on its
// way up and down. Two flows from one leaf, or to one leaf, have different colours.
//
// If no flow is bound to a spine, this is the edge colouring of a bipartite graph. It exists if no leaf sends
// or receives more flows than there are colours (Konig): the links of a leaf then suffice for its GPUs. Flows
// between pods are bound to the spines of their circuits, so a colouring may not exist.
type colouring struct {
	spines, colours int
	index           map[int32]int32 // of leaves
	// at is, for sending and receiving and by leaf and colour, the flow that has it.
	at    [2][]int32
	flows []coloured
	chain []int32
}

// coloured is a flow inside a pod, between leaves by their indices.
type coloured struct {
	end    [2]int32
	colour int32 // uncoloured: none
}

const (
	free       = -1 // no flow has a colour
	bound      = -2 // one that cannot move has
	uncoloured = -1
)

func newColouring(spines, room int) *colouring {
	return &colouring{spines: spines, colours: spines * room, index: map[int32]int32{}}
}

// leaf returns the index of a leaf.
func (c *colouring) leaf(leaf int32) int32 {
	i, ok := c.index[leaf]
	if !ok {
		i = int32(len(c.index))
		c.index[leaf] = i
		for range c.colours {
			c.at[0], c.at[1] = append(c.at[0], free), append(c.at[1], free)
		}
	}
	return i
}

func (c *colouring) slot(side int, leaf, colour int32) *int32 {
	return &c.at[side][int(leaf)*c.colours+int(colour)]
}

// bind reserves a colour of a spine for a flow from a leaf (side 0) or to it (side 1). If no colour is free, the flow
// shares one.
func (c *colouring) bind(side int, leaf, spine int32) {
	leaf = c.leaf(leaf)
	for k := spine; int(k) < c.colours; k += int32(c.spines) {
		if s := c.slot(side, leaf, k); *s == free {
			*s = bound
			return
		}
	}
}

// add colours a flow, and recolours others if that makes room for it. Of several free colours it takes the cheapest. A
// flow without room stays uncoloured.
func (c *colouring) add(from, to int32, cost func(colour int32) float64) {
	f := coloured{[2]int32{c.leaf(from), c.leaf(to)}, uncoloured}
	least := 0.0
	for k := range int32(c.colours) {
		if *c.slot(0, f.end[0], k) == free && *c.slot(1, f.end[1], k) == free {
			if v := cost(k); f.colour == uncoloured || v < least {
				f.colour, least = k, v
			}
		}
	}
	if f.colour == uncoloured {
		f.colour = c.makeRoom(f.end)
	}
	id := int32(len(c.flows))
	c.flows = append(c.flows, f)
	if f.colour != uncoloured {
		c.set(id, id)
	}
}

// makeRoom exchanges two colours along a chain of flows so that one of them is free at both ends, and returns it.
func (c *colouring) makeRoom(end [2]int32) int32 {
	for a := range int32(c.colours) {
		if *c.slot(0, end[0], a) != free {
			continue
		}
		for b := range int32(c.colours) {
			if *c.slot(1, end[1], b) != free {
				continue
			}
			if c.exchange(1, end[1], a, b) {
				return a
			}
			if c.exchange(0, end[0], b, a) {
				return b
			}
		}
	}
	return uncoloured
}

// exchange makes a colour free at a leaf where colour other is free. It follows the chain of flows that
// alternate between the two colours, and exchanges them. It returns false if a flow of the chain is bound.
func (c *colouring) exchange(side int, leaf, colour, other int32) bool {
	c.chain = c.chain[:0]
	for want, next := colour, other; ; want, next = next, want {
		id := *c.slot(side, leaf, want)
		if id == bound {
			return false
		}
		if id == free {
			break
		}
		c.chain = append(c.chain, id)
		side = 1 - side
		leaf = c.flows[id].end[side]
	}
	for _, id := range c.chain {
		c.set(id, free)
	}
	for _, id := range c.chain {
		f := &c.flows[id]
		f.colour = colour + other - f.colour
		c.set(id, id)
	}
	return true
}

// set records who, a flow or none, as the owner of flow id's colour at both ends.
func (c *colouring) set(id, who int32) {
	f := &c.flows[id]
	for side, leaf := range f.end {
		*c.slot(side, leaf, f.colour) = who
	}
}

// spine returns the spine of a flow, numbered in the order of add, or false.
func (c *colouring) spine(id int) (spine int32, ok bool) {
	k := c.flows[id].colour
	if k == uncoloured {
		return 0, false
	}
	return k % int32(c.spines), true
}
