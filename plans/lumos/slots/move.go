package slots

// tries bounds how many pairs of slots shift compares, starting with the first open ones.
const tries = 8

// hop is a link that moves from slot c to the other of two.
type hop struct{ u, v, c int }

// shift makes a link u -> v by moving others. Slot a is open at u and slot b at v. The links of a and b on
// the path from v change slots where they conflict. shift chooses the pair with the shortest path. It returns
// false if clearing a slot has closed one of the two. It has then removed a link, so the next call sees
// another table.
func (t *Table) shift(u, v int) bool {
	best, ba, bb := -1, 0, 0
	tried := 0
	for a := 0; a < t.q && tried < tries*tries; a++ {
		if !t.openOut(u, a) {
			continue
		}
		for b := range t.q {
			if !t.openIn(v, b) {
				continue
			}
			tried++
			if n := len(t.path(v, a, b, best)); best < 0 || n < best {
				best, ba, bb = n, a, b
			}
		}
	}
	if t.At(u, ba) >= 0 {
		t.drop(u, ba)
	}
	if from := t.From(v, bb); from >= 0 {
		if !t.surplus(from, v) {
			return false
		}
		t.drop(from, bb)
	}
	hops := t.path(v, ba, bb, -1)
	for _, h := range hops {
		t.drop(h.u, h.c)
	}
	for _, h := range hops {
		c := ba + bb - h.c
		t.clear(h.u, h.v, c) // at the end of the path, of a link that may go
		t.Put(h.u, h.v, c)
	}
	t.clear(u, v, ba)
	t.Put(u, v, ba)
	return true
}

// path returns the links that must change between slots a and b so that a link may enter v by a, if b is open there. It
// ends at the first open slot. If limit is at least 0, it ends after more than limit hops.
func (t *Table) path(v, a, b, limit int) []hop {
	var hops []hop
	for a != b && !t.openIn(v, a) {
		u := t.From(v, a)
		hops = append(hops, hop{u, v, a})
		if t.openOut(u, b) || limit >= 0 && len(hops) > limit {
			break
		}
		v = t.At(u, b)
		hops = append(hops, hop{u, v, b})
	}
	return hops
}

// turn makes room for a link of i and j. Neither has a slot open at the side where the other has one. turn
// reverses the links of a path from i to the nearest node with a slot open on that side. Such a node exists:
// each reachable node without an open slot is left by as many links as could enter it, and fewer links enter
// i.
func (t *Table) turn(i, j int) {
	leaving := t.first(i, t.openOut) < 0 && t.first(j, t.openOut) < 0
	next, open := t.At, t.openOut
	if !leaving {
		next, open = t.From, t.openIn
	}
	type step struct{ from, slot int }
	reached := map[int]step{i: {}}
	end := -1
	for queue := []int{i}; end < 0; queue = queue[1:] {
		for c := range t.q {
			to := next(queue[0], c)
			if to < 0 {
				continue
			}
			if _, seen := reached[to]; seen {
				continue
			}
			reached[to] = step{queue[0], c}
			queue = append(queue, to)
			if t.first(to, open) >= 0 {
				end = to
				break
			}
		}
	}
	type link struct{ u, v int }
	var turned []link
	for at := end; at != i; at = reached[at].from {
		s := reached[at]
		if leaving {
			t.drop(s.from, s.slot)
			turned = append(turned, link{at, s.from})
		} else {
			t.drop(at, s.slot)
			turned = append(turned, link{s.from, at})
		}
	}
	for _, l := range turned {
		t.join(l.u, l.v)
	}
}
