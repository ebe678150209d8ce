package schedule

// The hierarchical ring has groups of g consecutive ranks. A reduce-scatter runs along the ring of each group, then
// along the rings of ranks with the same position in all groups. An allgather runs in reverse. It takes g-1 + n/g-1
// steps and (n-1)/n of S per rank, and two configurations serve all steps. With one group, or with groups of one rank,
// it is the ring.

// group is the parameter: the number of ranks in a group.
var group = &parameter{
	what: "one number of ranks a group", maxCount: 1, minValue: 1,
	defaultValue: usualGroup,
	valid:        func(n int, args []int) bool { return n%args[0] == 0 },
}

// usualGroup returns the largest divisor of n that is at most its square root.
func usualGroup(n int) int {
	for g := 1; ; g++ {
		if h := n / g; n%g == 0 && h*h <= n {
			return h
		}
	}
}

// grouping places the chunk of rank i of group q at i n/g + q, so that a step in the ring of a group sends one range.
type grouping struct{ g, groups int }

func (b *builder) grouping() grouping {
	g := b.parameter()
	return grouping{g, b.n / g}
}

func (t grouping) position(owner int) int { return owner%t.g*t.groups + owner/t.g }

// hierarchicalReduceScatter computes the sum of rank r's chunk at rank r.
func (b *builder) hierarchicalReduceScatter(t grouping, buf Buffer) {
	for k := range t.g - 1 {
		b.step()
		for r := range b.n {
			i := r % t.g
			owner := (i - k - 1 + t.g) % t.g
			at := Ref{buf, owner * t.groups}
			b.sendReduce(r, r-i+(i+1)%t.g, at, at, t.groups)
		}
	}
	for k := range t.groups - 1 {
		b.step()
		for r := range b.n {
			at := Ref{buf, t.position(b.mod(r - (k+1)*t.g))}
			b.sendReduce(r, b.mod(r+t.g), at, at, 1)
		}
	}
}

// hierarchicalAllGather distributes rank r's chunk of Output from rank r to all ranks.
func (b *builder) hierarchicalAllGather(t grouping, pos func(int) int) {
	for k := range t.groups - 1 {
		b.step()
		for r := range b.n {
			at := Ref{Output, pos(b.mod(r - k*t.g))}
			b.send(r, b.mod(r+t.g), at, at, 1)
		}
	}
	for k := range t.g - 1 {
		b.step()
		for r := range b.n {
			i := r % t.g
			owner := (i - k + t.g) % t.g
			for q := range t.groups {
				at := Ref{Output, pos(q*t.g + owner)}
				b.send(r, r-i+(i+1)%t.g, at, at, 1)
			}
		}
	}
}

func hierarchicalAllReduce(b *builder) {
	t := b.grouping()
	b.Sub = b.n
	b.loadAll(Output)
	b.hierarchicalReduceScatter(t, Output)
	b.hierarchicalAllGather(t, t.position)
}

func hierarchicalReduceScatter(b *builder) {
	t := b.grouping()
	b.Blocks[Scratch] = b.n
	for r := range b.n {
		for c := range b.n {
			b.load(r, c, Ref{Scratch, t.position(c)}, 1)
		}
	}
	b.hierarchicalReduceScatter(t, Scratch)
	b.storeOwn(t.position)
}

func hierarchicalAllGather(b *builder) {
	b.loadOwn()
	b.hierarchicalAllGather(b.grouping(), func(c int) int { return c })
}
