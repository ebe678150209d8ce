package session

import (
	"runtime"

	"lightpath/collectives/sharedmem"
)

const (
	// SpinLong polls take about 1 us: more than a rank that runs takes to answer.
	SpinLong = 50
	// SpinShort is for ranks whose peers do not run while they do.
	SpinShort = 3
)

// Patience learns whether spinning pays. It does if every rank runs. If two ranks share a CPU, as they do when other
// programs want one, the rank that spins holds up the rank that it waits for.
type Patience struct {
	vain  int    // long spins in a row that ended in a yield
	calls uint32 // one in 32 spins long whatever the others did
}

// polls returns how often the next call is to poll.
func (p *Patience) polls() int {
	p.calls++
	if p.vain < sharedmem.SpinVain || p.calls%sharedmem.SpinRetry == 0 {
		return SpinLong
	}
	return SpinShort
}

// Learn takes note of a call that has polled so often: what it waited for came, or not.
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

// policy sets how the session waits. A yield to other processes costs some 0.3 us if none of them wants the CPU, a wake-up
// 30 us. So ranks yield long before they sleep, also if each could have a CPU: the system may have put two on one. If
// ranks outnumber CPUs, a rank that waits is in the way of the rank that it waits for, and spinning only delays both.
func (s *Session) policy() {
	s.opts.Timeout, s.opts.Alone = 0, true
	for _, c := range s.Comms {
		if s.opts.Timeout == 0 || c.Cfg.Timeout < s.opts.Timeout {
			s.opts.Timeout = c.Cfg.Timeout
		}
		s.opts.Alone = s.opts.Alone && c.SoleRank
	}
	c, ref := s.Comms[0], &s.refs[0]
	s.opts.Brief = 0
	if c.LocalRanks <= runtime.NumCPU() {
		s.opts.Spin, s.opts.Yield = 64, 2000
		switch {
		case ref.shared():
			s.opts.Spin = 0 // the call has spun alone
		case !ref.onCircuits():
			s.opts.Brief = 16 // about as long as a wake-up takes
		}
	} else {
		s.opts.Spin, s.opts.Yield = 1, 200
		if ref.onCircuits() {
			// A frame takes the emulated wire far longer than a wake-up takes, and the switch itself needs the cores.
			s.opts.Spin, s.opts.Yield = 0, 0
		}
	}
	if c.Cfg.Spin >= 0 {
		s.opts.Spin, s.opts.Brief = c.Cfg.Spin, 0
	}
}
