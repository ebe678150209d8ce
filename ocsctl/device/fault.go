package device

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"lightpath/plans/circuit"
)

// FaultKind names a fault, as fault scripts do.
type FaultKind string

// The faults.
const (
	// LostReply: the switch executes the next change, but loses its answer and the next Count-1 answers. Count 0 stands
	// for 1.
	LostReply FaultKind = "lost-reply"
	// SlowPair: circuits In to Out take Delay longer, until Clear; -1 is any port.
	SlowPair FaultKind = "slow-pair"
	// StuckMirror: the mirror of ingress In (or of egress Out, if In is -1) does not follow, until Clear. New circuits
	// through it are in the table, but become FAILED. With Silent they are reported as TUNED, and are dark.
	StuckMirror FaultKind = "stuck-mirror"
	// LostLight: a fibre was pulled. Until Clear, no light arrives at egress Out. If Out is -1, none arrives at the end of
	// the circuit from ingress In. Table and port states do not change.
	LostLight FaultKind = "lost-light"
	// FadingLight: a connector is dirty. Until Clear, egress Out or, if Out is -1, the circuit from ingress In loses
	// LossDB more. Several of them add up.
	FadingLight FaultKind = "fading-light"
	// GhostConnect: the table reports a circuit In to Out that was never made.
	GhostConnect FaultKind = "ghost"
	// PartialBulk: of the next bulk request with more circuits to make than Count, only the first
	// Count are made; the others get ErrPartial, or with Silent an answer of success.
	PartialBulk FaultKind = "partial-bulk"
	// ThirdParty: another writer connects In to Out and removes the circuits of both ports. Out -1 removes In's
	// circuit.
	ThirdParty FaultKind = "third-party"
	// Reboot: the switch is down for Delay. Config.ColdBoot determines the effect on circuits.
	Reboot FaultKind = "reboot"
	// Clear ends SlowPair, StuckMirror, LostLight, FadingLight and pending faults, and removes ghosts.
	Clear FaultKind = "clear"
)

// Fault is a fault to inject. Its kind determines the fields that it uses.
type Fault struct {
	Kind    FaultKind
	In, Out int
	Count   int
	Silent  bool
	Delay   time.Duration
	LossDB  float64
}

// ErrFault reports a fault that is impossible at this switch.
var ErrFault = errors.New("no such fault")

// faults are pending and lasting faults.
type faults struct {
	lostNext, lost int // number of answers to lose from the next change on, and now
	slow           []Fault
	stuck          []Fault
	pulled, fading []Fault
	partial        *Fault
	script         []*time.Timer
}

type limit struct {
	taken  int
	silent bool
}

// Inject injects a fault, at once or at the next request that it concerns.
func (d *Device) Inject(f Fault) error {
	d.lock()
	defer d.unlock()
	return d.inject(d.cfg.Now(), f)
}

func (d *Device) inject(now time.Time, f Fault) error {
	if err := d.possible(f); err != nil {
		return err
	}
	d.emit(now, Event{Kind: Injected, In: f.In, Out: f.Out, Note: string(f.Kind)})
	switch f.Kind {
	case LostReply:
		d.faults.lostNext = max(f.Count, 1)
	case SlowPair:
		d.faults.slow = append(d.faults.slow, f)
	case StuckMirror:
		d.faults.stuck = append(d.faults.stuck, f)
	case LostLight:
		d.faults.pulled = append(d.faults.pulled, f)
		d.relight(now)
	case FadingLight:
		d.faults.fading = append(d.faults.fading, f)
		d.relight(now)
	case PartialBulk:
		d.faults.partial = &f
	case GhostConnect:
		d.ghosts = append(d.ghosts, &row{in: f.In, out: f.Out, state: Tuned})
		d.revision++
	case ThirdParty:
		d.thirdParty(now, f)
	case Reboot:
		d.reboot(now, f.Delay)
	case Clear:
		d.faults = faults{script: d.faults.script}
		d.relight(now)
		if d.ghosts != nil {
			d.ghosts = nil
			d.revision++
		}
	}
	return nil
}

// possible returns an error if the fault is impossible at this switch.
func (d *Device) possible(f Fault) error {
	inside := func(port int) bool { return port >= 0 && port < d.cfg.Ports }
	orAny := func(port int) bool { return port == -1 || inside(port) }
	ok := true
	switch f.Kind {
	case LostReply, PartialBulk, Reboot, Clear:
	case SlowPair:
		ok = orAny(f.In) && orAny(f.Out)
	case StuckMirror, LostLight, FadingLight:
		ok = inside(f.In) || f.In == -1 && inside(f.Out)
	case GhostConnect:
		ok = inside(f.In) && inside(f.Out)
	case ThirdParty:
		ok = inside(f.In) && orAny(f.Out)
	default:
		return fmt.Errorf("device: %w: %q", ErrFault, f.Kind)
	}
	switch {
	case !ok:
		return fmt.Errorf("device: %s: %w: %d to %d of %d ports", f.Kind, ErrPort, f.In, f.Out, d.cfg.Ports)
	case f.Delay < 0 || f.Count < 0 || !(f.LossDB >= 0 && f.LossDB <= maxLossDB):
		return fmt.Errorf("device: %s: %w: negative count or delay, or a loss outside 0..%d dB", f.Kind, ErrFault, maxLossDB)
	}
	return nil
}

// DropReply reports whether a server's next answer is lost. Servers call it once before every answer.
func (d *Device) DropReply() bool {
	d.lock()
	defer d.unlock()
	if d.faults.lost == 0 {
		return false
	}
	d.faults.lost--
	return true
}

// arm begins to lose answers, because a change has arrived.
func (f *faults) arm() {
	if f.lostNext > 0 {
		f.lost, f.lostNext = f.lostNext, 0
	}
}

// bulkLimit returns the number of a request's circuits that are made.
func (f *faults) bulkLimit(mode Mode, n int) limit {
	if p := f.partial; p != nil && mode == Bulk && n > p.Count {
		f.partial = nil
		return limit{p.Count, p.Silent}
	}
	return limit{taken: math.MaxInt}
}

// touch applies lasting faults to a new circuit.
func (f *faults) touch(r *row) {
	for _, s := range f.slow {
		if (s.In == -1 || s.In == r.in) && (s.Out == -1 || s.Out == r.out) {
			r.due = r.due.Add(s.Delay)
		}
	}
	for _, s := range f.stuck {
		if s.In == r.in || s.In == -1 && s.Out == r.out {
			if r.dim = true; !s.Silent {
				r.outcome = Failed
			}
		}
	}
}

// maxLossDB bounds Fault.LossDB: no light is left then.
const maxLossDB = 60

// lossDB returns the loss that faults add to a circuit.
func (f *faults) lossDB(r *row) (sum float64) {
	for _, p := range f.fading {
		if p.Out == r.out || p.Out == -1 && p.In == r.in {
			sum += p.LossDB
		}
	}
	return sum
}

// dark reports whether a fault stops the light of a circuit.
func (f *faults) dark(r *row) bool {
	return slices.ContainsFunc(f.pulled, func(p Fault) bool { return p.Out == r.out || p.Out == -1 && p.In == r.in })
}

func (f *faults) stop() {
	for _, t := range f.script {
		t.Stop()
	}
}

func (d *Device) thirdParty(now time.Time, f Fault) {
	for _, r := range []*row{d.byIn[f.In], d.outRow(f.Out)} {
		if r != nil && d.byIn[r.in] == r {
			d.cut(now, r, string(ThirdParty))
		}
	}
	if f.Out != circuit.Dark {
		d.connect(now, now, circuit.Pair{From: f.In, To: f.Out})
	}
	d.schedule()
}

func (d *Device) outRow(out int) *row {
	if out == circuit.Dark {
		return nil
	}
	return d.byOut[out]
}

// reboot takes the switch down.
func (d *Device) reboot(now time.Time, down time.Duration) {
	d.emit(now, Event{Kind: Rebooted, In: -1, Out: -1})
	d.bootAt, d.saved = now.Add(down), nil
	d.ghosts, d.faults.lost, d.faults.lostNext, d.faults.partial = nil, 0, 0, nil
	if d.cfg.ColdBoot != Maintain {
		for _, r := range d.byIn {
			if r != nil {
				d.saved = append(d.saved, circuit.Pair{From: r.in, To: r.out})
				d.cut(now, r, string(Reboot))
			}
		}
	}
	d.schedule()
}

// boot brings the switch up again.
func (d *Device) boot(at time.Time) {
	d.bootAt = time.Time{}
	if d.cfg.ColdBoot == Restore {
		for _, p := range d.saved {
			d.connect(at, at, p)
		}
	}
	d.emit(at, Event{Kind: Started, In: -1, Out: -1})
	d.schedule()
}
