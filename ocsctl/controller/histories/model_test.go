package histories

import (
	"fmt"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"

	"lightpath/plans/circuit"
)

// kind is an operation of a history. Every operation is of one plane.
type kind int

const (
	set kind = iota
	enable
	disable
	acquire
	release
	detach
	claim // Attach with a lease of the controller before
	move  // posts of all changing ports, until the plane has moved
	stray // a post with a past epoch, or for a holder that does not have the plane
	snapshot
	published // an observer's Sink.Changed
	takeover  // the time between two controllers
)

var kindNames = [...]string{"set", "enable", "disable", "acquire", "release", "detach", "claim", "move", "stray post",
	"snapshot", "published", "takeover"}

// answer classifies what a client was answered.
type answer int

const (
	done     answer = iota
	inForce         // the change is in force; a restart may lose it
	held            // refused: a communicator has the plane, or may claim it
	failed          // refused, or failed, without effect
	stale           // refused: the epoch is past
	foreign         // refused: another holder has the plane, or none
	ignored         // of a post: not refused
	unknown         // the controller ended before its answer
	inactive answer = -1
)

var answerNames = [...]string{"done", "in force", "held", "failed", "stale", "not the holder", "not refused", "unknown"}

// input is a request.
type input struct {
	plane  int
	kind   kind
	holder uint64
	epoch  uint32
	target string   // a map, see key
	text   string   // of disable; of takeover, if lost is set: why the plane is disabled
	moves  []string // of takeover: targets of moves that the controller before may have begun
	busy   bool     // of acquire: an operator's change of the plane overlaps
	shared bool     // of published and takeover: a rank was told the same
	lost   bool     // of takeover: the journal has lost changes that it had acknowledged
}

// output is an answer or an observation.
type output struct {
	answer answer
	epoch  uint32
	m      string
	holder uint64
	health health
	text   string // of health off: why an operator disabled the plane
	actual string // of published: the map of the device; "": it moves, or has lost circuits by itself
	moving bool
}

// health says why a plane is out of service.
type health int

const (
	well    health = iota
	off            // an operator has disabled it
	setting        // an operator's change is pending
	broken         // its device has failed
	unread         // its device has not reported its map since the takeover
)

var healthNames = [...]string{"in service", "disabled", "being set", "broken", "not reported"}

// state is a plane as clients may know it.
type state struct {
	epoch  uint32
	m      string // "": not known
	health health // well, broken or unread
	holder uint64 // 0: none
	grace  bool   // a takeover was, and nothing has shown that its grace time is over
	known  uint32 // the newest epoch that ranks know
	moved  bool   // the last epoch began with a move
	// offs holds why operators have disabled the plane; "": they have not. The last entry is in force. A takeover may
	// go back to any entry, since the journal need not have the later ones.
	offs string
}

const entryEnd = "\n"

// behind reports whether ranks know a newer epoch. Nothing may use the plane before it is out of service at that epoch.
func (s state) behind() bool { return s.epoch < s.known }

func (s state) off() string {
	entries := strings.Split(s.offs, entryEnd)
	return entries[len(entries)-1]
}

// key returns a map as a comparable value.
func key(m circuit.Permutation) string {
	b := make([]byte, len(m))
	for p, to := range m {
		b[p] = byte('0' + to)
		if to == circuit.Dark {
			b[p] = '-'
		}
	}
	return string(b)
}

// rules says what a controller may do by itself.
type rules struct {
	forgive bool // Config.Forgive
}

// step returns the states that may follow s if an operation takes effect now; none: it cannot.
func (r rules) step(s state, in input, out output) []state {
	switch in.kind {
	case set:
		return answered(s, out.answer, r.set(s, in))
	case enable:
		return answered(s, out.answer, enabled(s, out.answer))
	case disable:
		return answered(s, out.answer, []state{commanded(s, in.text, out.answer)})
	case acquire:
		return acquired(s, in, out.answer)
	case release, detach:
		return released(s, in, out.answer)
	case claim:
		next := []state{s}
		if out.answer == done && s.holder == 0 && s.grace {
			s.holder = in.holder
			next = append(next, s)
		}
		return next
	case move:
		return r.move(s, in, out.answer)
	case stray:
		return strayed(s, in, out.answer)
	case snapshot:
		return seen(s, out)
	case published:
		return r.published(s, in, out)
	case takeover:
		return taken(s, in, out)
	}
	panic(fmt.Sprint("kind ", in.kind))
}

// answered returns what follows an operator's request: effect holds the states after its effect.
func answered(s state, a answer, effect []state) []state {
	switch {
	case a == done || a == inForce:
		return effect
	case a == unknown:
		return append(effect, s)
	case a == held && s.holder == 0 && !s.grace:
		return nil
	}
	return []state{s}
}

// caughtUp returns s with the epoch at which an operator changes the plane. If ranks know a newer epoch, the plane must
// be out of service at that epoch, unless its device had not reported its map: then ok is false.
func (s state) caughtUp() (next state, ok bool) {
	if ok = !s.behind() || s.health == unread; ok {
		s.epoch = max(s.epoch, s.known)
	}
	return s, ok
}

func (r rules) set(s state, in input) []state {
	s, ok := s.caughtUp()
	if s.holder != 0 || !ok {
		return nil
	}
	s.epoch++
	s.m, s.health, s.grace, s.moved = in.target, well, false, true
	return []state{s}
}

func enabled(s state, a answer) []state {
	if s.health == well {
		return []state{commanded(s, "", a)}
	}
	late := s.health == unread && !s.behind()
	s, ok := s.caughtUp()
	if s.holder != 0 || !ok {
		return nil
	}
	s.epoch++
	s.health, s.m, s.grace, s.moved = well, "", false, false
	next := []state{commanded(s, "", a)}
	if late { // the journal's last move may have ended
		s.epoch++
		next = append(next, commanded(s, "", a))
	}
	return next
}

// commanded puts an operator's change in force.
func commanded(s state, text string, a answer) state {
	if a == done {
		s.offs = text // the journal has it, and so all before it
		return s
	}
	s.offs += entryEnd + text
	return s
}

func acquired(s state, in input, a answer) []state {
	out := s.health != well || s.off() != ""
	switch {
	case a == failed && (out || in.busy):
		return []state{s}
	case a == failed || out || s.holder != 0 || s.behind():
		return nil
	}
	s.holder, s.grace = in.holder, false
	return []state{s}
}

func released(s state, in input, a answer) []state {
	free := s
	free.holder = 0
	switch has := s.holder == in.holder; {
	case a == unknown && has:
		return []state{s, free}
	case a == done && has:
		return []state{free}
	case a == done && in.kind == release, a == failed && has:
		return nil
	}
	return []state{s}
}

func (r rules) move(s state, in input, a answer) []state {
	next := s
	next.epoch++
	next.m, next.moved = in.target, true
	switch may := s.holder == in.holder && s.epoch == in.epoch && s.health == well && !s.behind(); {
	case a == done && may:
		return []state{next}
	case a == done, a == stale && s.epoch == in.epoch, a == foreign && s.holder == in.holder:
		return nil
	case a == unknown && may:
		return []state{s, next}
	}
	return []state{s}
}

// strayed compares a plane with the answer to a post that no move waits for. A late post for the move that ended its
// epoch is not refused.
func strayed(s state, in input, a answer) []state {
	past, last := in.epoch < s.epoch, in.epoch == s.epoch-1 && in.target == s.m
	switch {
	case a == stale && past, a == foreign && s.holder != in.holder,
		a == ignored && (s.health != well || last || !past && s.grace):
		return []state{s}
	}
	return nil
}

// seen compares a plane with a snapshot. That of a failed plane shows the map that the device has now.
func seen(s state, o output) []state {
	failed := o.health >= broken
	switch {
	case o.epoch != s.epoch || o.holder != s.holder || s.m != "" && o.m != s.m && !failed:
		return nil
	case o.health == well && (s.health != well || s.off() != ""), o.health == off && s.off() != o.text,
		failed && s.health == well:
		return nil
	}
	if !failed {
		s.m = o.m
	}
	return []state{s}
}

// published compares a plane with what an observer was told. A plane may fail at any time. It returns by itself only
// if Config says so, or when its device reports its map after a takeover.
func (r rules) published(s state, in input, o output) []state {
	at, caughtUp := s.caughtUp()
	switch {
	case o.health == well && o.actual != "" && o.actual != o.m:
		return nil
	case o.health == well && s.health == well && s.moved && s.grace && s.behind() && o.epoch == s.epoch+1 && o.m == s.m:
		// The intent of a move without a change: a rank has told that the move has happened.
	case o.health == well && s.health == well && s.grace && s.holder == 0 && o.epoch == s.epoch+1 && o.m == s.m:
		s.moved = true // the first grant after a takeover: ranks may still know another map of their epoch
	case o.health == well && s.health == well:
		if o.epoch != s.epoch || s.m != "" && o.m != s.m {
			return nil
		}
	case o.health != well && (o.epoch < s.epoch || o.epoch > max(s.epoch, s.known)) &&
		(s.health != unread || o.epoch != s.epoch+1):
		return nil
	case o.health != well && (s.health == well || s.health == unread):
		s.health = o.health
	case o.health != well:
	case s.health == unread && (o.epoch == s.epoch || o.epoch == s.epoch+1):
		s.moved = true
	case r.forgive && caughtUp && (o.epoch == at.epoch+1 ||
		s.health == unread && o.epoch == at.epoch+2): // the journal's last move may have ended
		s.moved = false
	default:
		return nil
	}
	if o.health == well {
		s.health = well
	}
	s.epoch, s.m = o.epoch, o.m
	if in.shared {
		s.known = max(s.known, o.epoch)
	}
	return []state{s}
}

// taken compares a plane with what the next controller makes of it.
func taken(s state, in input, o output) []state {
	entries := strings.Split(s.offs, entryEnd)
	switch {
	case in.lost:
		entries = []string{in.text}
	case !continues(s, in.moves, o):
		return nil
	}
	s.epoch, s.m, s.health, s.holder, s.grace = o.epoch, o.m, o.health, 0, true
	if in.shared {
		s.known = max(s.known, o.epoch)
	}
	var next []state
	for _, e := range entries {
		s.offs = e
		next = append(next, s)
	}
	return next
}

// continues reports whether a plane may be as the next controller finds it. targets are those of moves that the
// controller before may have begun. Epochs do not go back. If the journal need not have the end of the last move, and
// the device has lost circuits, that move may seem to be under way; see state.behind.
func continues(s state, targets []string, o output) bool {
	underWay := s.moved && o.health != broken && o.epoch == s.epoch-1
	if o.epoch < s.epoch && !underWay {
		return false
	}
	if o.health != well || s.health != well || s.m == "" || underWay || slices.Contains(targets, o.m) {
		return true
	}
	if o.m == s.m { // a higher epoch is far above: the journal has a failure, and not how it ended
		return o.epoch != s.epoch+1
	}
	return o.epoch == s.epoch && slices.ContainsFunc(targets, func(to string) bool { return between(o.m, s.m, to) })
}

// between reports whether each port has its circuit in from, its circuit in to, or none.
func between(m, from, to string) bool {
	for p := range len(m) {
		if m[p] != '-' && m[p] != from[p] && m[p] != to[p] {
			return false
		}
	}
	return true
}

// model returns the rules as porcupine wants them.
func (r rules) model() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Partition: func(all []porcupine.Operation) [][]porcupine.Operation {
			var planes [][]porcupine.Operation
			for _, o := range all {
				p := o.Input.(input).plane
				for len(planes) <= p {
					planes = append(planes, nil)
				}
				planes[p] = append(planes[p], o)
			}
			return planes
		},
		Init: func() []any { return []any{state{health: unread}} },
		Step: func(s, in, out any) (next []any) {
			for _, n := range r.step(s.(state), in.(input), out.(output)) {
				next = append(next, n)
			}
			return next
		},
		DescribeOperation: func(in, out any) string { return describe(in.(input), out.(output)) },
		DescribeState:     func(s any) string { return fmt.Sprint(s) },
	}
	return m.ToModel()
}

func (s state) String() string {
	text := fmt.Sprintf("epoch %d map %s %s", s.epoch, s.m, healthNames[s.health])
	if s.offs != "" {
		text += fmt.Sprintf(" off %q", s.offs)
	}
	if s.holder != 0 {
		text += fmt.Sprint(" holder ", s.holder)
	}
	if s.grace {
		text += " grace"
	}
	if s.behind() {
		text += fmt.Sprint(" behind ", s.known)
	}
	return text
}

func describe(in input, o output) string {
	text := fmt.Sprintf("plane %d: %s", in.plane, kindNames[in.kind])
	switch in.kind {
	case snapshot, published, takeover:
		text += fmt.Sprintf(": epoch %d map %s %s %s", o.epoch, o.m, healthNames[o.health], o.text)
		if o.holder != 0 {
			text += fmt.Sprint(" holder ", o.holder)
		}
		return text
	case set:
		text += " to " + in.target
	case disable:
		text += " " + in.text
	case acquire, release, detach, claim:
		text += fmt.Sprint(" by ", in.holder)
	case move, stray:
		text += fmt.Sprintf(" by %d from epoch %d to %s", in.holder, in.epoch, in.target)
	}
	return text + ": " + answerNames[o.answer]
}
