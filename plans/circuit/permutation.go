package circuit

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
)

// Dark marks a port without a circuit.
const Dark = -1

// PortName returns the number of a port in words of commands: "dark" for none.
func PortName(p int) string {
	if p == Dark {
		return "dark"
	}
	return strconv.Itoa(p)
}

// Permutation is a plane's whole map: to[r] = s joins the transmitter of port r to the
// receiver of port s, Dark leaves r without a circuit. No two ports share a receiver;
// r -> r is a legal circuit. Values are shared freely and never changed after they are
// built: every function here that derives one returns a fresh slice.
type Permutation []int

// AllDark returns the map of n ports without a circuit.
func AllDark(n int) Permutation {
	p := slices.Repeat(Permutation{Dark}, n)
	return p
}

// Shift returns r -> (r+d) mod n; d may be negative.
func Shift(n, d int) Permutation {
	p := make(Permutation, n)
	p.SetShift(d)
	return p
}

// SetShift sets p to [Shift](len(p), d).
func (p Permutation) SetShift(d int) {
	n := len(p)
	for r := range p {
		p[r] = ((r+d)%n + n) % n
	}
}

// Distance returns the d for which p is [Shift](len(p), d), or false if p is no shift.
func (p Permutation) Distance() (d int, ok bool) {
	if len(p) == 0 || p[0] < 0 || p[0] >= len(p) {
		return 0, false
	}
	d = p[0]
	want := d
	for _, s := range p {
		if s != want {
			return 0, false
		}
		if want++; want == len(p) {
			want = 0
		}
	}
	return d, true
}

// Xor returns r -> r xor m; port r is dark if r xor m is n or more.
func Xor(n, m int) Permutation {
	p := make(Permutation, n)
	for r := range p {
		if p[r] = r ^ m; p[r] >= n {
			p[r] = Dark
		}
	}
	return p
}

// Validate reports the first position at which p is not a permutation of n ports.
func (p Permutation) Validate(n int) error {
	if len(p) != n {
		return fmt.Errorf("has %d entries, want %d", len(p), n)
	}
	from := slices.Repeat([]int{Dark}, n)
	for r, s := range p {
		switch {
		case s == Dark:
		case s < 0 || s >= n:
			return fmt.Errorf("[%d]: port %d is outside 0..%d", r, s, n-1)
		case from[s] != Dark:
			return fmt.Errorf("[%d]: port %d already receives from port %d", r, s, from[s])
		default:
			from[s] = r
		}
	}
	return nil
}

// Equal reports whether p and q are the same map.
func (p Permutation) Equal(q Permutation) bool {
	if len(p) != len(q) {
		return false
	}
	if p.same(q) {
		return true
	}
	for r := range p {
		if p[r] != q[r] {
			return false
		}
	}
	return true
}

// same reports whether p and q, of equal lengths, are the same slice.
func (p Permutation) same(q Permutation) bool { return len(p) == 0 || &p[0] == &q[0] }

// Clone returns a copy that the caller may change.
func (p Permutation) Clone() Permutation { return append(Permutation(nil), p...) }

// Inverse returns the map with every circuit reversed.
func (p Permutation) Inverse() Permutation {
	q := AllDark(len(p))
	for r, s := range p {
		if s != Dark {
			q[s] = r
		}
	}
	return q
}

// Involution reports whether every circuit r -> s has its circuit s -> r.
func (p Permutation) Involution() bool {
	for r, s := range p {
		if s != Dark && p[s] != r {
			return false
		}
	}
	return true
}

// Covers reports whether p has every circuit of want.
func (p Permutation) Covers(want Permutation) bool {
	if len(p) != len(want) {
		return false
	}
	if p.same(want) {
		return true
	}
	for r, s := range want {
		if s != Dark && s != r && p[r] != s {
			return false
		}
	}
	return true
}

// Hops counts the circuits on the only route from src to dst, and returns false if there is no route. Hops(r, r) is 0:
// a rank needs no circuit to reach itself.
func (p Permutation) Hops(src, dst int) (int, bool) {
	at := src
	for h := 0; h <= len(p); h++ {
		if at == dst {
			return h, true
		}
		if at = p[at]; at == Dark {
			return 0, false
		}
	}
	return 0, false
}

// Changes counts the transmit ports that get a new target when p becomes next. A port that only goes
// dark is not counted.
func (p Permutation) Changes(next Permutation) int {
	n := 0
	for r, s := range next {
		if s != Dark && p[r] != s {
			n++
		}
	}
	return n
}

// Digest is a short fingerprint for fences and messages; it is not collision resistant.
func (p Permutation) Digest() uint64 {
	h := fnv.New64a()
	var b [4]byte
	for _, s := range p {
		b[0], b[1], b[2], b[3] = byte(s), byte(s>>8), byte(s>>16), byte(s>>24)
		h.Write(b[:])
	}
	return h.Sum64()
}

// Pair is one circuit: from a port's transmitter to another's receiver.
type Pair struct{ From, To int }
