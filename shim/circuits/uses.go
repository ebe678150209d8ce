package circuits

import (
	"sync/atomic"
	"time"
)

// Uses counts what operations of a rank have waited for.
type Uses struct {
	Ahead    uint64        // operations whose ticket was here before the call
	Asked    uint64        // operations whose ticket the rank had to ask for
	Declined uint64        // tickets that were here, for other calls
	Hidden   time.Duration // of switching between operations, while the job computed
	Exposed  time.Duration // of switching between operations, for which calls have waited
}

// uses is the state behind [Uses]. Calls write it, reports read it.
type uses struct {
	ahead, asked, declined atomic.Uint64
	hidden, exposed        atomic.Int64
	moving                 time.Time // when the last operation left planes that were still moving; zero: it has not
}

// Uses returns what the rank's operations have waited for.
func (p *Planes) Uses() Uses {
	u := &p.uses
	return Uses{u.ahead.Load(), u.asked.Load(), u.declined.Load(), time.Duration(u.hidden.Load()),
		time.Duration(u.exposed.Load())}
}

// noteMoving notes whether an operation leaves planes that still move to where the next operation begins.
func (p *Planes) noteMoving() {
	p.uses.moving = time.Time{}
	for j := range p.ticket.Use.Each() {
		if reached, err := p.Reached(j); err == nil && !reached {
			p.uses.moving = time.Now()
			return
		}
	}
}

// countSwitching counts the switching since the last operation. Of this, a call has waited from began on.
func (p *Planes) countSwitching(began time.Time) {
	u := &p.uses
	if u.moving.IsZero() {
		return
	}
	waited := time.Since(began)
	whole := time.Duration(p.Template.ReconfigUS * float64(time.Microsecond))
	u.hidden.Add(int64(min(began.Sub(u.moving), max(whole-waited, 0))))
	u.exposed.Add(int64(waited))
	u.moving = time.Time{}
}
