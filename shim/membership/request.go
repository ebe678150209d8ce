package membership

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"lightpath/shim/bootstrap"
	"lightpath/shim/comm"
	"lightpath/shim/control"
	"lightpath/shim/errdefs"
	"lightpath/shim/result"
)

// request is the body of control.MsgMembership, a rank's request to the parent's leader.
type request struct {
	Color, Key int
	Ranks      int
	ID         []byte
	Hello      bootstrap.Hello
	// Again is set if the rank has asked before, and has given up since; Hello.Leaves says why.
	Again bool
}

// answer is the body of control.MsgMembershipAnswer: the new communicator, the id to meet at, or neither for ranks
// without a color.
type answer struct {
	Comm  uint64
	Rank  int
	Table []bootstrap.Hello
	ID    []byte
}

// requests holds this rank's requests for communicators that come from one. Ranks count them, so equal numbers mean
// the same request. Safe for concurrent use.
type requests struct {
	mu      sync.Mutex
	last    uint64
	waits   map[uint64]chan *control.Message
	grow    *bootstrap.UniqueID // made for growing, and not used yet
	shrinks uint64              // requests to shrink
	shrunk  chan struct{}       // closed when the last of them has ended; nil before the first
}

// spend forgets the grow id once it is used.
func (q *requests) spend(id *bootstrap.UniqueID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.grow != nil && *q.grow == *id {
		q.grow = nil
	}
}

// GrowID makes the id by which new ranks join when this communicator grows. There is one id at a time, and it can be
// used once.
func GrowID(c *comm.Core) (bootstrap.UniqueID, error) {
	if err := c.Usable(); err != nil {
		return bootstrap.UniqueID{}, err
	}
	q := &Of(c).requests
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.grow != nil {
		return bootstrap.UniqueID{}, fmt.Errorf("shim: the id that ncclCommGetUniqueId made before has not been used yet: %w",
			errdefs.ErrInvalidUsage)
	}
	id, err := bootstrap.NewID(c.Cfg)
	if err == nil {
		q.grow = &id
	}
	return id, err
}

// next numbers a request, in the order of calls.
func (q *requests) next() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.last++
	return q.last
}

// expect returns the channel for the answer to a request.
func (q *requests) expect(seq uint64) <-chan *control.Message {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waits == nil {
		q.waits = map[uint64]chan *control.Message{}
	}
	ch := make(chan *control.Message, 1)
	q.waits[seq] = ch
	return ch
}

// forget ends expect.
func (q *requests) forget(seq uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.waits, seq)
}

// deliver delivers an answer of the leader to the request that waits for it.
func (q *requests) deliver(m *control.Message) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if ch := q.waits[m.Seq]; ch != nil {
		delete(q.waits, m.Seq)
		ch <- m
	}
}

// send sends a request to the parent's leader.
func (o *Origin) send(seq uint64, r *request) error {
	body, _ := json.Marshal(r) // plain structs: cannot fail
	return o.Parent.Star.ToLeader(&control.Message{Kind: control.MsgMembership, Seq: seq, Arg: uint64(o.How), Body: body})
}

// ask sends request number seq to the parent's leader, and returns the answer. It also ends if communicator c or the
// parent ends, or if a healthy parent fails.
func ask(c *comm.Core, seq uint64, r *request) (*answer, error) {
	o := Of(c).Args.From
	p := o.Parent
	answered := Of(p).requests.expect(seq)
	defer Of(p).requests.forget(seq)
	failed := p.FailedChan()
	if p.AsyncError() != nil {
		failed = nil // the parent is revoked
	}
	if err := o.send(seq, r); err != nil {
		return nil, err
	}
	timer := time.NewTimer(p.Cfg.Timeout + bootstrap.RefusalGrace)
	defer timer.Stop()
	var err error
	select {
	case m := <-answered:
		return readAnswer(m)
	case <-c.Context().Done():
		err = c.AsyncError()
	case <-failed:
		err = p.AsyncError()
	case <-p.Ended():
		err = fmt.Errorf("shim: %v: the parent was destroyed: %w", o.How, errdefs.ErrDestroyed)
	case <-p.Star.EveryoneLeft():
		return nil, fmt.Errorf("shim: %v: rank 0 of the parent is gone: %w", o.How, errdefs.ErrRemote)
	case <-timer.C:
		return nil, fmt.Errorf("shim: %v: no word from rank 0 of the parent in %v: %w", o.How,
			p.Cfg.Timeout, errdefs.ErrTimeout)
	}
	r.Again, r.Hello = true, Of(c).leaves(err)
	if o.send(seq, r) != nil {
		return nil, err
	}
	return o.lastAnswer(answered, err)
}

// lastAnswer waits for the leader's answer to a rank that gives up because of why. If the leader has decided before,
// the other ranks wait for this rank's connection. So the rank goes on, until it has told them.
func (o *Origin) lastAnswer(answered <-chan *control.Message, why error) (*answer, error) {
	select {
	case m := <-answered:
		if a, err := readAnswer(m); err == nil {
			return a, nil
		}
	case <-o.Parent.Star.EveryoneLeft():
	case <-time.After(abortTime):
	}
	return nil, why
}

// readAnswer reads an answer of the parent's leader.
func readAnswer(m *control.Message) (*answer, error) {
	if m.Arg != 0 {
		m.Arg-- // 0 is no error here
		return nil, result.Decode(m)
	}
	a := new(answer)
	return a, control.DecodeStrict(m.Body, a)
}
