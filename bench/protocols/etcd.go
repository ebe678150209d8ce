package protocols

import (
	"fmt"
	"slices"
	"time"

	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/journal"
)

// store is etcd: the states of planes, and the key of the leader, which has a lease. It answers while a majority of its
// members runs. A write is durable when it is answered, unless a fault loses it.
type store struct {
	w      *world
	node   *node
	down   int           // members that do not run
	slow   time.Duration // of each write
	leader *rule         // that has the key; nil: none
	until  int64         // end of its lease
	held   contents
	saved  []contents // earlier ones, the newest last
	lost   bool       // it has lost acknowledged writes
}

// contents is what the store keeps.
type contents struct {
	revision uint64
	planes   []journal.State
	seq      uint64
}

const (
	leaseTime   = 5 * time.Second
	renewEvery  = leaseTime / 3
	retryPause  = 300 * time.Millisecond
	savedStates = 8
)

func newStore(w *world) *store {
	return &store{w: w, node: w.newNode("etcd"), held: contents{revision: 1, planes: make([]journal.State, w.cfg.Planes)}}
}

// available reports whether a majority of the members runs.
func (s *store) available() bool { return 2*(s.w.cfg.Members-s.down) > s.w.cfg.Members }

// expire ends a lease that has not been renewed.
func (s *store) expire() {
	if s.leader != nil && s.until <= s.w.clock {
		s.leader = nil
	}
}

// commit makes contents durable.
func (s *store) commit(c contents) {
	if s.saved = append(s.saved, s.held); len(s.saved) > savedStates {
		s.saved = s.saved[1:]
	}
	s.held = c
}

// lose goes back to earlier contents: a majority of the disks has lost acknowledged writes.
func (s *store) lose(back int) {
	if back = min(back, len(s.saved)); back > 0 {
		s.held = s.saved[len(s.saved)-back]
		s.saved = s.saved[:len(s.saved)-back]
		s.lost = true
	}
}

// rule is the leadership of a process: the journal of its core.
type rule struct {
	p       *process
	token   uint64
	until   int64 // on the process's clock: end of the lease as far as the process knows
	local   []journal.State
	seq     uint64
	over    error // why it has ended
	late    bool  // its lease has ended, and the process is about to notice
	pending []func(error)
	dirty   bool
	writing bool
}

// request sends a message to the store, and calls answered with the answer. A lost message has no answer.
func (p *process) request(what string, do func() (any, bool), answered func(any)) {
	w, gen, sent := p.w, p.gen, p.w.time()
	p.toStore.carry(func() {
		w.message(&p.toStore, sent, what)
		if !w.store.available() {
			return
		}
		w.store.expire()
		answer, ok := do()
		if !ok {
			return
		}
		sent := w.time()
		w.after(w.store.slow, func() {
			p.fromStore.carry(func() {
				if p.gen == gen && p.up {
					w.message(&p.fromStore, sent, "answer: "+what)
					answered(answer)
					p.touch()
				}
			})
		})
	})
}

// campaign asks to be the leader until this process is. The answer is the contents from which the leader starts, or nil
// if another process leads.
func (p *process) campaign() {
	asked := p.now()
	try := &rule{p: p}
	p.request("campaign", func() (any, bool) {
		s := p.w.store
		if s.leader != nil {
			return (*contents)(nil), true
		}
		c := s.held
		c.revision++
		s.commit(c)
		s.leader, s.until = try, p.w.clock+int64(leaseTime)
		try.token = c.revision
		c.planes = slices.Clone(c.planes)
		return &c, true
	}, func(a any) {
		if c := a.(*contents); c != nil && p.rule == nil {
			try.until, try.local, try.seq = asked+int64(leaseTime), c.planes, c.seq
			p.lead(try)
		}
	})
	p.after(2*retryPause, func() {
		if p.rule == nil {
			p.campaign()
		}
	})
}

// renew prolongs the lease for as long as the rule lasts.
func (r *rule) renew() {
	p := r.p
	asked := p.now()
	p.request("renew", func() (any, bool) {
		if p.w.store.leader != r {
			return false, true
		}
		p.w.store.until = p.w.clock + int64(leaseTime)
		return true, true
	}, func(a any) {
		switch {
		case p.rule != r:
		case a.(bool):
			r.until = max(r.until, asked+int64(leaseTime))
		default:
			r.end("the store has another leader")
		}
	})
	p.after(renewEvery, func() {
		if p.rule == r {
			r.renew()
		}
	})
}

// end ends the rule. The process notices in its next step.
func (r *rule) end(why string) {
	if r.over == nil {
		r.over = fmt.Errorf("%s: %w", why, controller.ErrNotLeader)
	}
}

// leading returns nil while the lease lasts.
func (r *rule) leading() error {
	if r.over == nil && r.p.now() >= r.until {
		r.end("the lease has ended")
	}
	return r.over
}

// Intend implements [controller.Journal].
func (r *rule) Intend(i controller.Intent, done func(error)) {
	r.local[i.Plane].Intend(i)
	r.p.w.planes[i.Plane].intend(&i)
	r.put(done)
}

// Record implements [controller.Journal].
func (r *rule) Record(e controller.Event, done func(error)) {
	r.seq = max(r.seq+1, e.Seq)
	if e.Plane >= 0 && r.local[e.Plane].Apply(&e) || done != nil {
		r.put(done)
	}
}

// baseline records planes without a record.
func (r *rule) baseline(plane int, at controller.Recovered) {
	if r.local[plane].Baseline(at) {
		r.put(nil)
	}
}

// put writes the local state, and calls done with the result.
func (r *rule) put(done func(error)) {
	r.dirty = true
	if done != nil {
		r.pending = append(r.pending, done)
	}
	r.p.w.later(r.flush)
}

// flush writes all pending changes in one transaction. It repeats the transaction until there is an answer, or the rule
// has ended.
func (r *rule) flush() {
	p := r.p
	if p.rule != r || r.over != nil {
		r.answer(r.over)
		return
	}
	if r.writing || !r.dirty {
		return
	}
	r.writing, r.dirty = true, false
	pending := r.pending
	r.pending = nil
	r.transact(contents{planes: slices.Clone(r.local), seq: r.seq}, func(err error) {
		r.writing = false
		for _, done := range pending {
			done(err)
		}
		r.flush()
	})
}

func (r *rule) transact(c contents, done func(error)) {
	p, ended := r.p, false
	p.request("write", func() (any, bool) {
		s := p.w.store
		if s.leader != r {
			return false, true
		}
		c.revision = s.held.revision + 1
		s.commit(c)
		return true, true
	}, func(a any) {
		if ended || p.rule != r {
			return
		}
		ended = true
		if !a.(bool) {
			r.end("the store has another leader")
			done(r.over)
			return
		}
		done(nil)
	})
	p.after(time.Second+p.w.store.slow, func() {
		if ended || p.rule != r {
			return
		}
		ended = true
		if r.leading() != nil {
			done(r.over)
			return
		}
		r.transact(c, done)
	})
}

// answer ends all pending writes.
func (r *rule) answer(err error) {
	pending := r.pending
	r.pending = nil
	for _, done := range pending {
		done(err)
	}
}
