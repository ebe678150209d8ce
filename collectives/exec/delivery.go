package exec

import "lightpath/internal/monotonic"

// MeasureDelivery turns the measurement of [Task.DeliveryTime] on or off, from the next Bind on.
func (t *Task) MeasureDelivery(on bool) { t.measuring = on }

// early is the divisor for the time between the first bytes on any plane and the first bytes on a plane. Senders serve
// planes one after another, so this time depends on the plane only if it is long.
const early = 8

// DeliveryTime returns the time in nanoseconds that a plane took to deliver its part of the program to this rank. It
// does not include the time until the other ranks made the call. It is 0 if the plane delivers nothing or
// MeasureDelivery is off. The result is valid from the end of the task until the next Bind.
func (t *Task) DeliveryTime(plane int) int64 {
	if plane >= len(t.lanes) || t.lanes[plane].lastByte == 0 {
		return 0
	}
	l := &t.lanes[plane]
	return max(l.lastByte-l.firstByte+(l.firstByte-t.firstByte)/early, 1)
}

// noteDelivery records progress of the receives on a lane.
func (t *Task) noteDelivery(l *lane) {
	if l.firstByte != 0 && len(l.rx) > 0 {
		return
	}
	now := monotonic.Now()
	if t.firstByte == 0 {
		t.firstByte = now
	}
	if l.firstByte == 0 {
		l.firstByte = now
	}
	if len(l.rx) == 0 {
		l.lastByte = now
	}
}
