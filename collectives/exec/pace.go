package exec

import "lightpath/internal/monotonic"

// Pace turns on or off, from the next Bind, that the task takes the times of [Task.Brought].
func (t *Task) Pace(on bool) { t.pacing = on }

// early is in how many parts the time counts between the first bytes of all and a plane's own first:
// senders serve planes one after another, so it says little of a plane, but where it is long.
const early = 8

// Brought returns how long a plane took, in nanoseconds, to bring this rank what the program has it receive
// there. How late the others have called is no part of it. 0 where the plane brings nothing or the task
// does not pace. Valid from the end of the task until the next Bind.
func (t *Task) Brought(plane int) int64 {
	if plane >= len(t.lanes) || t.lanes[plane].last == 0 {
		return 0
	}
	l := &t.lanes[plane]
	return max(l.last-l.first+(l.first-t.first)/early, 1)
}

// pace notes that something has come on a lane.
func (t *Task) pace(l *lane) {
	if l.first != 0 && len(l.rx) > 0 {
		return
	}
	now := monotonic.Now()
	if t.first == 0 {
		t.first = now
	}
	if l.first == 0 {
		l.first = now
	}
	if len(l.rx) == 0 {
		l.last = now
	}
}
