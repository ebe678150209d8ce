package controller

import (
	"fmt"

	"lightpath/plans/circuit"
)

// attachment is an [Attachment] of a [Core].
type attachment struct {
	core  *Core
	sink  Sink
	port  int
	who   string
	id    uint64 // from machine.nextID; 0: not attached
	since int64
	// recorded: the journal has answered the Attached event. Before that, the rank is granted no planes: a
	// controller that takes over would not wait for it, and might grant them to another rank.
	recorded bool
}

// Attach implements Controller.
func (c *Core) Attach(s Sink, o AttachOptions) (Attachment, error) {
	a := &attachment{core: c, sink: s, port: max(o.Port, -1), who: o.Who}
	var err error
	if e := c.call(func(now int64) { err = c.machine.attach(a, o, now) }); e != nil {
		return nil, e
	}
	if err != nil {
		return nil, err
	}
	return a, nil
}

// Post implements Attachment.
func (a *attachment) Post(plane int, epoch uint32, holder uint64, target circuit.Permutation) error {
	if err := a.check("post", plane, target); err != nil {
		return err
	}
	target = target.Clone()
	return a.core.do(func(now int64) { a.core.machine.post(a, plane, roundKey{epoch, holder}, target, now) })
}

// Acquire implements Attachment.
func (a *attachment) Acquire(id, mask, holder uint64) error {
	if err := a.checkMask("acquire", mask); err != nil {
		return err
	}
	return a.core.do(func(now int64) { a.core.machine.acquire(a, id, mask, holder, now) })
}

// Release implements Attachment.
func (a *attachment) Release(mask, holder uint64) error {
	if err := a.checkMask("release", mask); err != nil {
		return err
	}
	var err error
	if e := a.core.call(func(now int64) { err = a.core.machine.release(a, mask, holder, now) }); e != nil {
		return e
	}
	return err
}

// Detach implements Attachment.
func (a *attachment) Detach(clean bool) {
	// An error means that the core has stopped. It uses the attachment until its goroutine has ended.
	if err := a.core.call(func(now int64) { a.core.machine.detach(a, clean, "", now) }); err != nil {
		<-a.core.done
	}
}

func (a *attachment) check(what string, plane int, target circuit.Permutation) error {
	if a.port < 0 {
		return fmt.Errorf("controller: %s: %w", what, errNoPort)
	}
	if target == nil {
		target = circuit.Permutation{}
	}
	if err := a.core.check(plane, target); err != nil {
		return fmt.Errorf("controller: port %d: %s: %w", a.port, what, err)
	}
	return nil
}

func (a *attachment) checkMask(what string, mask uint64) error {
	if a.port < 0 {
		return fmt.Errorf("controller: %s: %w", what, errNoPort)
	}
	if n := len(a.core.cfg.Planes); mask == 0 || n < MaxPlanes && mask>>n != 0 {
		return fmt.Errorf("controller: port %d: %s: mask %#x of %d planes", a.port, what, mask, n)
	}
	return nil
}
