package bootstrap

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"

	"lightpath/shim/control"
	"lightpath/shim/errdefs"
	"lightpath/shim/status"
)

// MaxRanks bounds a communicator; frames carry ranks in 16 bits.
const MaxRanks = 4096

// gathering is the state of a meeting of all ranks, or of one block of ranks if they meet at several places.
type gathering struct {
	ranks    int
	block    span
	table    []*Hello         // by rank
	conns    map[int]net.Conn // by rank; ranks that wait for an answer
	refusal  string
	class    uint64 // of the refusal; see classes
	answered int
	expect   int          // the largest number of ranks that a hello names: so many wait for an answer
	settled  func()       // called before the ranks get the table; may be nil
	informed map[int]bool // ranks that have an answer, by Hello.Was; they may come again for the next meeting
	try      int          // root.try
}

// Agreed makes the table of a communicator from the hellos of all its ranks, received in another way. If they do not
// fit together, it returns the reason.
func Agreed(hellos []*Hello) (table []Hello, err error) {
	g := &gathering{}
	for _, h := range hellos {
		if g.admit(h); g.refusal != "" {
			return nil, refused(g.class, g.refusal)
		}
	}
	for _, h := range g.table {
		table = append(table, *h)
	}
	return table, nil
}

// span is the range of ranks from first to first+n-1.
type span struct{ first, n int }

func (s span) has(rank int) bool { return rank >= s.first && rank < s.first+s.n }

// blockOf returns the ranks that meet at a place: consecutive ranks, divided as evenly as possible over the places.
func blockOf(place, places, ranks int) span {
	first := place * ranks / places
	return span{first, (place+1)*ranks/places - first}
}

// placeOf returns the place at which a rank meets its block.
func placeOf(rank, places, ranks int) int {
	p := rank * places / ranks
	for !blockOf(p, places, ranks).has(rank) {
		p++
	}
	return p
}

// block returns the ranks that meet at the place of h.
func (h *Hello) block() span {
	if h.places() == 1 {
		return span{0, h.Ranks}
	}
	return blockOf(placeOf(h.Rank, h.Places, h.Ranks), h.Places, h.Ranks)
}

func (h *Hello) places() int { return max(h.Places, 1) }

// valid reports whether the numbers of h are in range.
func (h *Hello) valid() bool {
	return h.Ranks >= 1 && h.Ranks <= MaxRanks && h.Rank >= 0 && h.Rank < h.Ranks && h.Places >= 0 && h.Places <= h.Ranks
}

// take handles a hello from conn, and reports whether all ranks have now come.
func (g *gathering) take(h *Hello, conn net.Conn) (complete bool) {
	switch {
	case h.valid():
		g.expect = max(g.expect, h.block().n)
	case h.Ranks <= MaxRanks:
		g.expect = max(g.expect, h.Ranks)
	}
	refused := g.refusal != ""
	if !refused {
		g.admit(h)
	}
	switch {
	case refused && h.Without != "" && (g.informed[h.Was] || h.Try > g.try):
		_ = conn.Close() // the rank comes for the next meeting, which has not begun
		return false
	case g.refusal != "":
		g.mark(h)
		g.answer(conn, g.refuses())
		return false
	}
	g.conns[h.Rank] = conn
	return g.complete()
}

// mark records that a rank has its answer.
func (g *gathering) mark(h *Hello) {
	if g.informed == nil {
		g.informed = map[int]bool{}
	}
	g.informed[h.Was] = true
}

func (g *gathering) complete() bool { return g.ranks > 0 && len(g.missing()) == 0 }

// admit adds a hello to the table, or refuses all ranks.
func (g *gathering) admit(h *Hello) {
	if g.ranks == 0 && h.Ranks > 0 && h.Ranks <= MaxRanks {
		g.ranks, g.table = h.Ranks, make([]*Hello, h.Ranks)
		if g.block = (span{0, h.Ranks}); h.valid() {
			g.block = h.block()
		}
	}
	var first *Hello
	for _, t := range g.table {
		if t != nil {
			first = t
			break
		}
	}
	switch {
	case first != nil && h.Without != first.Without:
		g.refuse(first.excludes() + ", " + h.excludes())
	case first != nil && h.Ranks != first.Ranks:
		g.refuse(fmt.Sprintf("%s says the communicator has %d ranks, %s says %d", first.Where(), first.Ranks,
			h.Where(), h.Ranks))
	case h.Rank < 0 || h.Rank >= g.ranks:
		g.refuse(fmt.Sprintf("%s is not one of %d ranks", h.Where(), g.ranks))
	case first != nil && h.places() != first.places() || h.Places > h.Ranks:
		g.refuse(fmt.Sprintf("%s has %d ids for the communicator, %s has %d", h.Where(), h.places(),
			first.Where(), first.places()))
	case first != nil && !g.block.has(h.Rank):
		g.refuse(fmt.Sprintf("%s and %s have the ids in different orders", first.Where(), h.Where()))
	case h.Leaves != "":
		g.refuseAs(classRemote, h.Left())
	case g.table[h.Rank] != nil:
		g.refuse(fmt.Sprintf("%s and process %d on %s both claim to be rank %d", g.table[h.Rank].Where(),
			h.PID, h.Name, h.Rank))
	case first != nil && h.Version != first.Version:
		g.refuse(fmt.Sprintf("%s runs Lightpath %s, %s runs %s", first.Where(), first.Version, h.Where(), h.Version))
	case h.Version != Version:
		g.refuse(fmt.Sprintf("%s runs Lightpath %s, the rendezvous %s", h.Where(), h.Version, Version))
	case first != nil && h.Fabric != first.Fabric:
		g.refuse(fmt.Sprintf("%s has fabric %s, %s has %s", first.Where(), fabricName(first.Fabric), h.Where(),
			fabricName(h.Fabric)))
	case first != nil && h.Settings != first.Settings:
		g.refuse(fmt.Sprintf("%s is set to %s, %s to %s", first.Where(), first.Settings, h.Where(), h.Settings))
	default:
		g.table[h.Rank] = h
	}
}

// classes are what the error of a refusal is. Control messages carry their indexes as Seq.
var classes = [...]error{errdefs.ErrInvalidUsage, errdefs.ErrTimeout, errdefs.ErrRemote}

const (
	classUsage = iota
	classTimeout
	classRemote
)

// Refusal returns the message of a refusal for the reason why, which an error has.
func Refusal(why string, err error) *control.Message {
	m := &control.Message{Kind: control.MsgRefuse, Body: []byte(why)}
	for i, class := range classes {
		if errors.Is(err, class) {
			m.Seq = uint64(i)
		}
	}
	return m
}

// refuse answers all ranks that have come or will come with an error: they do not fit together.
func (g *gathering) refuse(why string) { g.refuseAs(classUsage, why) }

func (g *gathering) refuseAs(class uint64, why string) {
	if g.refusal != "" || g.answered > 0 {
		return
	}
	g.refusal, g.class = why, class
	g.tell(g.refuses())
}

// refuses returns the message of the refusal.
func (g *gathering) refuses() *control.Message {
	return &control.Message{Kind: control.MsgRefuse, Seq: g.class, Body: []byte(g.refusal)}
}

// welcome sends the table to all ranks.
func (g *gathering) welcome() {
	body, _ := json.Marshal(g.table) // plain structs: cannot fail
	if g.settled != nil {
		g.settled()
	}
	g.tell(&control.Message{Kind: control.MsgWelcome, Arg: RandomID(), Body: body})
}

// tell sends an answer to all ranks that have come.
func (g *gathering) tell(m *control.Message) {
	for rank, conn := range g.conns {
		if g.table != nil {
			g.mark(g.table[rank])
		}
		g.answer(conn, m)
	}
}

func (g *gathering) answer(conn net.Conn, m *control.Message) {
	g.answered++
	_ = control.Send(conn, m) // a rank that has ended gets no answer
	_ = conn.Close()
}

const leftWhileMade = " left while the communicator was made"

// Left says that the rank has left, and why.
func (h *Hello) Left() string { return h.Where() + leftWhileMade + ": " + h.Leaves }

// gone handles the end of a rank's connection.
func (g *gathering) gone(h *Hello, conn net.Conn) {
	if g.refusal == "" && g.answered == 0 && g.conns[h.Rank] == conn {
		g.refuseAs(classRemote, h.Where()+leftWhileMade)
	}
}

// missing lists the ranks of the block that have not come.
func (g *gathering) missing() (ranks []int) {
	for r, h := range g.table {
		if h == nil && g.block.has(r) {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// late names the ranks that have not come.
func (g *gathering) late() string {
	if ranks := g.missing(); len(ranks) > 0 {
		return status.ListRanks(ranks)
	}
	return "ranks that meet at another id"
}

func (g *gathering) close() {
	for _, conn := range g.conns {
		_ = conn.Close()
	}
}

func fabricName(digest string) string {
	if digest == "" {
		return "none"
	}
	return digest[:min(16, len(digest))]
}
