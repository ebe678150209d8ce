package histories

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/journal"
	"lightpath/plans/circuit"
)

// dice is a random source for several goroutines.
type dice struct {
	mu  sync.Mutex
	rng *rand.Rand
}

func newDice(seed, stream uint64) *dice { return &dice{rng: rand.New(rand.NewPCG(seed, stream))} }

func (d *dice) n(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rng.IntN(n)
}

// percent reports true in p of 100 cases.
func (d *dice) percent(p int) bool { return d.n(100) < p }

func (d *dice) upTo(t time.Duration) time.Duration { return time.Duration(d.n(int(t))) }

// panel is a cross-connect that moves in its own time, refuses, fails, ends at wrong maps, and loses reports. It
// outlives controllers.
type panel struct {
	dice *dice

	mu      sync.Mutex
	token   uint64 // the highest seen
	planes  []panelPlane
	settled func(plane int)
}

type panelPlane struct {
	at     circuit.Permutation
	to     circuit.Permutation // nil: it does not move
	moves  int                 // number of starts
	unwell error
	cycled bool // it has lost its circuits since its last move began
}

var errMirror = errors.New("mirror driver failed")

func newPanel(seed uint64, at circuit.Permutation, planes int) *panel {
	p := &panel{dice: newDice(seed, 1), planes: make([]panelPlane, planes), settled: func(int) {}}
	for j := range p.planes {
		p.planes[j].at = at
	}
	return p
}

// Switch implements controller.Device.
func (p *panel) Switch(plane int, m controller.Move) error { return p.start(plane, m.Token, m.To) }

// Verify implements controller.Verifier.
func (p *panel) Verify(plane int, token uint64) error { return p.start(plane, token, nil) }

// start begins a move, or a verification if to is nil.
func (p *panel) start(plane int, token uint64, to circuit.Permutation) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	pl := &p.planes[plane]
	switch {
	case token < p.token:
		return fmt.Errorf("token %d is below %d: %w", token, p.token, controller.ErrNotLeader)
	case p.dice.percent(2):
		return errors.New("the device refuses")
	}
	p.token = token
	if to == nil {
		to = pl.at
	} else if p.dice.percent(2) {
		to = circuit.AllDark(len(to)) // a wrong map
	}
	pl.to, pl.unwell, pl.cycled = to, nil, false
	pl.moves++
	number := pl.moves
	if p.dice.percent(2) {
		pl.unwell = errMirror
	}
	time.AfterFunc(p.dice.upTo(300*time.Microsecond), func() { p.arrive(plane, number) })
	return nil
}

// arrive ends the start with a number, unless interrupt has.
func (p *panel) arrive(plane, number int) {
	p.mu.Lock()
	if pl := &p.planes[plane]; pl.to != nil && pl.moves == number {
		pl.at, pl.to = pl.to, nil
	}
	f := p.settled
	if p.dice.percent(3) {
		f = func(int) {} // a lost report
	}
	p.mu.Unlock()
	f(plane)
}

// Map implements controller.Device.
func (p *panel) Map(plane int) (circuit.Permutation, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.planes[plane].to != nil {
		return nil, controller.ErrMoving
	}
	return p.planes[plane].at, nil
}

// actual returns a plane's map; "": it moves, or has lost its circuits by itself.
func (p *panel) actual(plane int) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	pl := &p.planes[plane]
	if pl.to != nil || pl.cycled {
		return ""
	}
	return key(pl.at)
}

// Report implements controller.Reporter.
func (p *panel) Report(plane int) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return "light", p.planes[plane].unwell
}

// OnSettled implements controller.Timed.
func (p *panel) OnSettled(f func(plane int)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settled = f
}

// harm makes a plane fail without a request, or cycles its power, so that its circuits are lost.
func (p *panel) harm(plane int) {
	p.mu.Lock()
	pl := &p.planes[plane]
	if p.dice.percent(50) {
		pl.unwell = errMirror
	} else {
		pl.at, pl.to, pl.cycled = circuit.AllDark(len(pl.at)), nil, true
	}
	f := p.settled
	p.mu.Unlock()
	f(plane)
}

// interrupt ends most moves: before they began, half-way, or at their target. The rest go on.
func (p *panel) interrupt() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for j := range p.planes {
		pl := &p.planes[j]
		if pl.to == nil {
			continue
		}
		half := pl.at.Clone()
		for r := range half {
			if half[r] != pl.to[r] {
				half[r] = circuit.Dark
			}
		}
		if n := p.dice.n(4); n < 3 {
			pl.at, pl.to = []circuit.Permutation{pl.at, half, pl.to}[n], nil
		}
	}
}

// polled is a panel that does not report: the core asks it after the reconfiguration time.
type polled struct{ controller.Device }

// disk is what the journal has. It outlives controllers.
type disk struct {
	dice   *dice
	faults troubles
	planes []journal.State
	backup []journal.State // an earlier state
}

// troubles are the chances, in percent, of faults of the journal.
type troubles struct {
	cut    int // per rule: a partition. The journal gets no more writes
	slow   int // per write: it takes longer than the controller waits
	refuse int // per write: it fails
	silent int // per write: its answer is lost
	lose   int // per takeover: acknowledged writes are lost, as if the store was restored from a backup
}

// some is a mix of troubles in which controllers lose nothing that they have acknowledged.
var some = troubles{cut: 50, slow: 1, refuse: 2, silent: 2}

// save makes a backup of the disk.
func (d *disk) save() { d.backup = slices.Clone(d.planes) }

// lose goes back to the backup, or does nothing. It reports whether it did.
func (d *disk) lose() bool {
	if d.backup == nil || !d.dice.percent(d.faults.lose) {
		return false
	}
	copy(d.planes, d.backup)
	return true
}

// pen is the journal of one controller. It writes the states of all planes together, some time after they changed. It
// is slow, refuses writes, stalls, and loses answers.
type pen struct {
	disk *disk

	mu      sync.Mutex
	planes  []journal.State
	waiting []func(error)
	lost    []func(error) // written, and never answered
	stalled bool
	over    bool
	wake    chan struct{}
}

func (d *disk) open() *pen {
	p := &pen{disk: d, planes: append([]journal.State(nil), d.planes...), wake: make(chan struct{}, 1)}
	go p.write()
	return p
}

// Intend implements controller.Journal.
func (p *pen) Intend(i controller.Intent, answer func(error)) {
	p.change(answer, func() { p.planes[i.Plane].Intend(i) })
}

// Record implements controller.Journal.
func (p *pen) Record(e controller.Event, answer func(error)) {
	p.change(answer, func() {
		if e.Plane >= 0 {
			p.planes[e.Plane].Apply(&e)
		}
	})
}

// change applies a change. Only changes whose answer is awaited start a write; others wait for the next one.
func (p *pen) change(answer func(error), apply func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		if answer != nil {
			go answer(controller.ErrNotLeader)
		}
		return
	}
	apply()
	if answer != nil {
		p.waiting = append(p.waiting, answer)
		select {
		case p.wake <- struct{}{}:
		default:
		}
	}
}

func (p *pen) write() {
	for range p.wake {
		delay, faults := p.disk.dice.upTo(200*time.Microsecond), &p.disk.faults
		if p.disk.dice.percent(faults.slow) {
			delay = 2 * journalTimeout
		}
		time.Sleep(delay)
		var err error
		p.mu.Lock()
		if p.stalled {
			p.mu.Unlock()
			continue
		}
		answers := p.waiting
		p.waiting = nil
		switch fate := p.disk.dice.n(100); {
		case p.over:
			err = controller.ErrNotLeader
		case fate < faults.refuse:
			err = errors.New("the disk refuses")
		case fate < faults.refuse+faults.silent:
			p.lost = append(p.lost, answers...)
			answers = nil
			fallthrough
		default:
			copy(p.disk.planes, p.planes)
		}
		p.mu.Unlock()
		for _, f := range answers {
			f(err)
		}
	}
}

// stall stops all writes until the end of the controller's rule.
func (p *pen) stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled = true
}

// cut ends the controller's rule. Each plane's pending write happens or not.
func (p *pen) cut() {
	p.mu.Lock()
	if p.over {
		p.mu.Unlock()
		return
	}
	p.over = true
	for j := range p.planes {
		if p.disk.dice.percent(30) {
			p.disk.planes[j] = p.planes[j]
		}
	}
	answers := append(p.waiting, p.lost...)
	p.waiting, p.lost = nil, nil
	close(p.wake)
	p.mu.Unlock()
	for _, f := range answers {
		f(controller.ErrNotLeader)
	}
}

// leading is Config.Leading.
func (p *pen) leading() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return controller.ErrNotLeader
	}
	return nil
}
