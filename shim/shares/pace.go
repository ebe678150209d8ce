// Package shares makes the shares of packet planes follow the speed of the planes.
package shares

import (
	"slices"
	"time"
)

// What planes carry, and the shares that fit it. Paces are relative: numbers that are in proportion to bytes per time.

const (
	// ShareTotal is what the shares of all planes add up to.
	ShareTotal = 1024
	// leastShare: no plane's share is below this part of an even one, so that it is seen when the plane has recovered.
	leastShare = 32
	// shareGain is how many times as long a call must take as it would with other shares for these to be worth it.
	shareGain = 1.25
	// paceTotal is what the paces of a rank's planes add up to, but for rounding.
	paceTotal = 1 << 20
	// A window ends with paceOps operations and paceTime after its beginning, or with one and longTime.
	paceOps  = 4
	paceTime = 200 * time.Millisecond
	longTime = 2 * time.Second
)

// window adds up what planes have brought a rank.
type window struct {
	Ops   int
	Since int64   // when it began, in ns
	bytes []int64 // by plane, as the others
	ns    []int64
	pace  []uint64
	ideal []int
}

func newWindow(planes int) window {
	return window{bytes: make([]int64, planes), ns: make([]int64, planes), pace: make([]uint64, planes), ideal: make([]int, planes)}
}

// add adds an operation that has ended now and brought so many bytes on each plane in the times that took returns, and
// reports whether the window is over.
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
	return w.Ops >= paceOps && lasted >= paceTime || lasted >= longTime
}

// end returns the paces of the window, valid until the next end, and begins another.
func (w *window) end() []uint64 {
	total := 0.0
	for j := range w.bytes {
		total += rate(w.bytes[j], w.ns[j])
	}
	for j := range w.pace {
		w.pace[j] = max(uint64(paceTotal*(rate(w.bytes[j], w.ns[j])/total)), 1)
	}
	w.clear()
	return w.pace
}

func (w *window) clear() {
	w.Ops = 0
	clear(w.bytes)
	clear(w.ns)
}

func rate(bytes, ns int64) float64 { return float64(max(bytes, 1)) / float64(max(ns, 1)) }

// slowest combines what ranks tell: each plane at the pace that the rank has seen that it is slowest for,
// since that rank is waited for. Ranks that have measured nothing tell zeros. The result is nil where none
// has.
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

// idealShares sets shares in proportion to paces, none below the least. They add up to shareTotal.
func idealShares(shares []int, pace []uint64) []int {
	k := len(pace)
	least := max(ShareTotal/(leastShare*k), 1)
	clear(shares)
	// Planes that are due less than the least get that, and the others divide the rest, which may be too little
	// for more of them.
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

// nextShares is idealShares, but a plane's share that is below an even one grows to twice what it is, or
// little more: what a plane does with few bytes says little about what it does with many.
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

// grownShares gives planes that have less than an even share half as much again, to try: where processors
// are what is scarce, a plane that has recovered is as late with a little as it would be with more. From
// three quarters of an even share on it gets that.
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

// shareOf is a plane's share; nil shares are even.
func shareOf(shares []int, plane, planes int) int {
	if shares == nil {
		return ShareTotal / planes
	}
	return shares[plane]
}

// stretch is how many times as long as with ideal shares, without a least one, a call takes with these.
func stretch(shares []int, pace []uint64) float64 {
	sum, worst := 0.0, 0.0
	for j, p := range pace {
		sum += float64(p)
		worst = max(worst, float64(shareOf(shares, j, len(pace)))/float64(p))
	}
	return worst * sum / ShareTotal
}

// misfit reports whether other shares are worth it. ideal is where those go.
func misfit(shares, ideal []int, pace []uint64) bool {
	return stretch(shares, pace) >= shareGain*stretch(idealShares(ideal, pace), pace)
}

// evenShares reports whether shares are even but for rounding.
func evenShares(shares []int) bool { return slices.Max(shares)-slices.Min(shares) < len(shares) }

// sharesFit reports whether shares are such as nextShares makes.
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
