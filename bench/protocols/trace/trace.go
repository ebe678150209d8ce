package trace

import "time"

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
	// Hash is equal for equal runs, with lines or without. It covers the time of each event and the number of choices
	// before it.
	Hash uint64
}

// Mix adds a number to the hash.
func (t *Trace) Mix(x uint64) {
	t.Hash = (t.Hash ^ x) * 0x9e3779b97f4a7c15
	t.Hash ^= t.Hash >> 29
}
