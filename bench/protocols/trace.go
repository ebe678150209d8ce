package protocols

import (
	"hash/fnv"
	"io"
	"strconv"
	"time"
)

// Line is one line of a trace: a message from an actor to another, or something that happens at one actor.
type Line struct {
	Sent time.Duration // of a message: when it left From
	At   time.Duration // of simulated time; of a message: when To got it
	Kind Kind
	From string // actor: "controller 1", "etcd", "plane 0", "job 2 rank 3"; "" for a line of one actor
	To   string
	Text string // "grant 0x3", "switch to epoch 7", "crash"
}

// Kind is the kind of a line.
type Kind string

// The kinds.
const (
	Message   Kind = "message"
	Internal  Kind = "internal"  // an actor's own step
	Fault     Kind = "fault"     // injected
	Violation Kind = "violation" // of an invariant; the last line of a trace
)

// Trace is what happened in a run.
type Trace struct {
	Lines []Line
}

// Hash returns a number that is equal for equal traces.
func (t *Trace) Hash() uint64 {
	h := fnv.New64a()
	for i := range t.Lines {
		l := &t.Lines[i]
		for _, s := range []string{strconv.FormatInt(int64(l.Sent), 10), strconv.FormatInt(int64(l.At), 10), string(l.Kind),
			l.From, l.To, l.Text} {
			_, _ = io.WriteString(h, s) // a hash has no errors
			_, _ = h.Write([]byte{0})
		}
	}
	return h.Sum64()
}
