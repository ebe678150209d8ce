package session

import (
	"runtime"

	"lightpath/collectives/exec"
	"lightpath/collectives/sharedmem"
	"lightpath/shim/stall"
)

const (
	// SpinLong polls take about 1 us. A running rank answers in less.
	SpinLong = 50
	// SpinShort is for ranks whose peers wait for the same CPU.
	SpinShort = 3
)

// Patience learns whether spinning pays. It pays if every rank has a running CPU. If other programs make two ranks
// share a CPU, a spinning rank delays the rank that it waits for.
type Patience struct {
	vain  int    // long spins in a row that ended in a yield
	calls uint32 // one call in 32 spins long, whatever the others did
}

// polls returns how often the next call is to poll.
func (p *Patience) polls() int {
	p.calls++
	if p.vain < sharedmem.SpinVain || p.calls%sharedmem.SpinRetry == 0 {
		return SpinLong
	}
	return SpinShort
}

// Learn records the result of a call that polled this often. came says whether the awaited data arrived.
func (p *Patience) Learn(polls int, came bool) {
	switch {
	case came:
		p.vain = 0
	case polls == SpinLong:
		p.vain++
	}
}

// Polls returns how often a call of the communicator is to poll before it does anything else.
func (st *State) Polls() int {
	c := st.c
	switch {
	case c.Cfg.Spin >= 0:
		return 1 + c.Cfg.Spin
	case c.LocalRanks <= runtime.NumCPU():
		return st.Patience.polls()
	}
	return 1
}

// Yielder learns whether yields pay; nil if ranks outnumber CPUs.
func (st *State) Yielder() *exec.Yielder {
	if st.c.LocalRanks > runtime.NumCPU() {
		return nil
	}
	return &st.yielder
}

// policy sets how the session waits. A yield costs about 0.3 us if no other process wants the CPU, a wake-up 30 us. So
// ranks yield long before they sleep, also if each could have a CPU: the system may have put two on one. If ranks
// outnumber CPUs, spinning delays the awaited rank, and so both.
func (s *Session) policy() {
	s.opts.Timeout, s.opts.Alone = 0, true
	for _, c := range s.Comms {
		if s.opts.Timeout == 0 || c.Cfg.Timeout < s.opts.Timeout {
			s.opts.Timeout = c.Cfg.Timeout
		}
		s.opts.Alone = s.opts.Alone && c.SoleRank
	}
	c, ref := s.Comms[0], &s.refs[0]
	s.opts.StallAfter = stall.Interval(s.opts.Timeout)
	s.opts.ShortSpin = 0
	if c.LocalRanks <= runtime.NumCPU() {
		s.opts.Spin, s.opts.Yield = 64, 2000
		switch {
		case ref.shared():
			s.opts.Spin = 0 // the call has already spun
		case !ref.onCircuits():
			s.opts.ShortSpin = 16 // about as long as a wake-up takes
		}
	} else {
		s.opts.Spin, s.opts.Yield = 1, 200
		if ref.onCircuits() {
			// On the emulated wire a frame takes far longer than a wake-up, and the switch itself needs the CPUs.
			s.opts.Spin, s.opts.Yield = 0, 0
		}
	}
	if c.Cfg.Spin >= 0 {
		s.opts.Spin, s.opts.ShortSpin = c.Cfg.Spin, 0
	}
}
