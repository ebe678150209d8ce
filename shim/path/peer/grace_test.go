package peer

import (
	"math/rand/v2"
	"testing"
	"unsafe"

	"lightpath/shim/bootstrap"
	"lightpath/shim/comm"
)

// gated is a rank whose stream passes its gates word by word, again and again. The stream of another rank enters and
// leaves launches.
type gated struct {
	x, other *Path
	step     int
}

func newGated() *gated {
	page := &tokenPage{n: 2, mem: make([]byte, pageSize(2)), at: 1 << 40}
	page.begin()
	c := &comm.Core{Identity: comm.Identity{Table: make([]bootstrap.Hello, 2)}}
	g := &gated{x: &Path{c: c, n: 2, me: 0, page: page}, other: &Path{c: c, n: 2, me: 1, page: page}}
	g.x.queue.page = page
	g.x.passGates()
	return g
}

// stream carries out the next word unless it has to wait. settles reports that it set settling, in that it passed the
// entry gate.
func (g *gated) stream() (settles, in bool) {
	page := g.x.page
	w := g.x.queue.words[g.step]
	at := (*uint32)(unsafe.Pointer(&page.mem[w.At-page.at]))
	switch {
	case !w.wait:
		*at = uint32(w.Value)
	case *at != uint32(w.Value):
		return false, false
	}
	g.step = (g.step + 1) % len(g.x.queue.words)
	own := page.rank(0)
	return at == &own.settling && w.Value == 1, at == &own.gateIn
}

// TestGates: a stream passes its entry gate only if the other rank has been outside since the stream settled. No
// stream waits for long. Stream and watchers take turns at random. Either rank's watcher may shut the gates wherever
// the stream is.
func TestGates(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for round := range 2000 {
		g := newGated()
		theirs := g.x.page.rank(1)
		theirs.current = 7
		for range rng.IntN(9) {
			g.stream()
		}
		g.other.shutGates()
		for range rng.IntN(9) { // its own watcher does not know of the failure yet
			if _, in := g.stream(); in {
				t.Fatalf("round %d: the stream is let in when another rank has failed", round)
			}
		}
		g.x.shutGates()
		outside := false
		for passed, turn := 0, 0; passed < 5; turn++ {
			if turn > 10000 {
				t.Fatalf("round %d: the stream stands at word %d", round, g.step)
			}
			switch own := g.x.page.rank(0); rng.IntN(6) {
			case 0, 1:
				settles, in := g.stream()
				if settles {
					outside = false
				}
				if in && !outside {
					t.Fatalf("round %d: the stream is let in while the other one is in a launch", round)
				}
				if in {
					passed++
				}
			case 2, 3:
				g.x.advanceGates()
			case 4:
				own.gateIn *= rng.Uint32N(2) // a rank that fails later shuts it
			case 5:
				if rng.IntN(4) == 0 { // its launch ends, and a replay of it begins
					theirs.waited, outside = 0, true
				}
			}
		}
	}
}
