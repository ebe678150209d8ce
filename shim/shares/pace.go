package shares

import (
	"slices"
	"time"
)

// The paces of planes, and the shares that fit them. Paces are relative numbers, proportional to bytes per time.

const (
	// ShareTotal is the sum of the shares of all planes.
	ShareTotal = 1024
	// leastShare sets the smallest share: an even share divided by leastShare. It lets ranks see that the plane has
	// recovered.
	leastShare = 32
	// shareGain is the ratio of the times with old and new shares from which a change pays.
	shareGain = 1.25
	// paceTotal is the sum of the paces of a rank's planes, except for rounding.
	paceTotal = 1 << 20
	// A window has several parts. A part ends with at least paceOps operations and paceTime, or with one operation and
	// longTime.
	parts    = 2
	paceOps  = 4
	paceTime = 100 * time.Millisecond
	longTime = time.Second
)

// window measures the rates of a rank's planes. The best part counts for each plane: other work on the host slows one
// plane or another for a moment, and a slow plane is slow in every part.
type window struct {
	Ops   int       // of this part
	Since int64     // when this part began, in ns
	part  int       // how many parts have ended
	bytes []int64   // of this part, by plane, like the slices below
	ns    []int64   // of this part
	best  []float64 // the highest rate in a part
	pace  []uint64
	ideal []int
}

func newWindow(planes int) window {
	return window{bytes: make([]int64, planes), ns: make([]int64, planes), best: make([]float64, planes),
		pace: make([]uint64, planes), ideal: make([]int, planes)}
}

// add adds an operation that ended at now. bytes are its bytes on each plane, and took returns its time on a plane in
// nanoseconds. add reports whether the window has ended.
func (w *window) add(bytes []int64, took func(plane int) int64, now int64) bool {
	longest := int64(0)
	for j := range w.bytes {
		ns := took(j)
		w.bytes[j] += bytes[j]
		w.ns[j] += ns
		longest = max(longest, ns)
	}
	if w.Ops++; w.Ops == 1 {
		w.Since = now - longest
	}
	lasted := time.Duration(now - w.Since)
	if (w.Ops < paceOps || lasted < paceTime) && lasted < longTime {
		return false
	}
	for j := range w.best {
		w.best[j] = max(w.best[j], rate(w.bytes[j], w.ns[j]))
	}
	w.clearPart()
	w.part++
	return w.part == parts
}

// end returns the paces of the window and begins the next. The result is valid until the next end.
func (w *window) end() []uint64 {
	total := 0.0
	for _, r := range w.best {
		total += r
	}
	for j, r := range w.best {
		w.pace[j] = max(uint64(paceTotal*(r/total)), 1)
	}
	w.clear()
	return w.pace
}

func (w *window) clear() {
	w.part = 0
	clear(w.best)
	w.clearPart()
}

func (w *window) clearPart() {
	w.Ops = 0
	clear(w.bytes)
	clear(w.ns)
}

func rate(bytes, ns int64) float64 { return float64(max(bytes, 1)) / float64(max(ns, 1)) }

// slowest combines the paces of all ranks: each plane gets the smallest pace that a rank measured, since the other
// ranks wait for that rank. Ranks without measurements send zeros. The result is nil if no rank has measured.
func slowest(told [][]uint64, planes int) []uint64 {
	var all []uint64
	for _, pace := range told {
		if slices.Max(pace) == 0 {
			continue
		}
		if all == nil {
			all = slices.Repeat([]uint64{paceTotal}, planes)
		}
		for j, p := range pace {
			all[j] = min(all[j], max(p, 1))
		}
	}
	return all
}

// idealShares sets shares proportional to paces, none below the smallest share. They add up to ShareTotal.
func idealShares(shares []int, pace []uint64) []int {
	k := len(pace)
	least := max(ShareTotal/(leastShare*k), 1)
	clear(shares)
	// Planes that would get less than the smallest share get that. The other planes divide the rest, which may put
	// more of them below the smallest share.
	rest, sum := ShareTotal, uint64(0)
	for _, p := range pace {
		sum += p
	}
	for again := true; again; {
		again = false
		for j, p := range pace {
			if shares[j] == 0 && p*uint64(rest) < uint64(least)*sum {
				shares[j], again = least, true
				rest -= least
				sum -= p
			}
		}
	}
	fastest, left := 0, rest
	for j, p := range pace {
		if p > pace[fastest] {
			fastest = j
		}
		if shares[j] == 0 {
			shares[j] = int(p * uint64(rest) / sum)
			left -= shares[j]
		}
	}
	shares[fastest] += left
	return shares
}

// nextShares is idealShares with limited growth. A share below an even one grows to at most about twice its size. A
// plane's pace with few bytes says little about its pace with many.
func nextShares(now []int, pace []uint64) []int {
	sum := uint64(0)
	for _, p := range pace {
		sum += p
	}
	limited := slices.Clone(pace)
	for j, p := range pace {
		if s := uint64(shareOf(now, j, len(pace))); 2*s < ShareTotal && s*uint64(len(pace)) < ShareTotal {
			limited[j] = max(min(p, (sum-p)*2*s/(ShareTotal-2*s)), 1)
		}
	}
	return idealShares(make([]int, len(pace)), limited)
}

// grownShares returns shares for a trial: planes below an even share get half as much again. If processors are the
// bottleneck, a recovered plane is equally late with small and larger shares. From three quarters of an even share on,
// all shares become even.
func grownShares(now []int) []int {
	k := len(now)
	grown := make([]uint64, k)
	for j, s := range now {
		if grown[j] = uint64(s); s*k < ShareTotal {
			grown[j] = uint64(min(s+s/2+1, ShareTotal/k))
		}
	}
	if slices.Min(grown)*uint64(4*k) >= 3*ShareTotal {
		grown = slices.Repeat([]uint64{1}, k)
	}
	return idealShares(make([]int, k), grown)
}

// shareOf returns a plane's share. nil shares are even.
func shareOf(shares []int, plane, planes int) int {
	if shares == nil {
		return ShareTotal / planes
	}
	return shares[plane]
}

// stretch returns the time of a call with these shares, divided by its time with ideal shares without a smallest one.
func stretch(shares []int, pace []uint64) float64 {
	sum, worst := 0.0, 0.0
	for j, p := range pace {
		sum += float64(p)
		worst = max(worst, float64(shareOf(shares, j, len(pace)))/float64(p))
	}
	return worst * sum / ShareTotal
}

// misfit reports whether other shares are worth a change. It writes them to ideal.
func misfit(shares, ideal []int, pace []uint64) bool {
	return stretch(shares, pace) >= shareGain*stretch(idealShares(ideal, pace), pace)
}

// evenShares reports whether shares are even, except for rounding.
func evenShares(shares []int) bool { return slices.Max(shares)-slices.Min(shares) < len(shares) }

// sharesFit reports whether shares are valid: one for each plane, from 1 to ShareTotal, with the right sum.
func sharesFit(shares []int, planes int) bool {
	sum := 0
	for _, s := range shares {
		if s < 1 || s > ShareTotal {
			return false
		}
		sum += s
	}
	return len(shares) == planes && sum == ShareTotal
}
