package demo

import (
	"cmp"
	"path/filepath"
	"slices"

	"lightpath/collectives/wire"
	"lightpath/ocsctl/emulator"
	"lightpath/plans/fabric"
)

// backend makes the planes of a trial and records what they carry.
type backend interface {
	// configure completes the files of the fabric and of its controller.
	configure(e *Experiment, dir string, f *fabric.Fabric, o *fabric.OCSD)
	// start makes the planes, after the files in dir are written and before the controller runs.
	start(t *Trial, dir string) error
	// audit compares the record with the plan, after the controller has stopped. It also returns the intervals of the
	// iteration shown, by plane.
	audit(a *auditor, iters []window, shown int) (counts, [][]Interval, error)
	// close removes the planes.
	close()
}

// memoryBackend is the emulated switch, which carries the frames itself and logs each of them.
type memoryBackend struct{ log string }

func (b *memoryBackend) configure(e *Experiment, dir string, _ *fabric.Fabric, o *fabric.OCSD) {
	b.log = filepath.Join(dir, "frames.log")
	o.FrameLog, o.MTU = b.log, e.Scale.FrameData+wire.HeaderSize
}

func (b *memoryBackend) start(*Trial, string) error { return nil }

func (b *memoryBackend) close() {}

func (b *memoryBackend) audit(a *auditor, iters []window, shown int) (counts, [][]Interval, error) {
	log, err := emulator.ReadLog(b.log)
	if err != nil {
		return counts{}, nil, err
	}
	c, err := a.audit(log, iters)
	return c, measured(log, iters[shown], a.steps), err
}

// measured returns the intervals of one iteration by plane, from the log. A step lasts from its first bit to its last.
func measured(log *emulator.Log, w window, steps []int) [][]Interval {
	out := make([][]Interval, log.Planes)
	us := func(ns int64) float64 { return float64(ns-w.start) / 1e3 }
	for plane := range out {
		byStep := map[int]*Interval{}
		var h wire.Header
		for i := range log.Frames {
			r := &log.Frames[i]
			if int(r.Plane) != plane || r.Start < w.start || r.Start > w.end || wire.Decode(r.Label[:], &h) != nil {
				continue
			}
			step := slices.Index(steps, int(h.Step))
			if in := byStep[step]; in == nil {
				byStep[step] = &Interval{Step: step, StartUS: us(r.Start), EndUS: us(r.Finish)}
			} else {
				in.StartUS, in.EndUS = min(in.StartUS, us(r.Start)), max(in.EndUS, us(r.Finish))
			}
		}
		for _, in := range byStep {
			out[plane] = append(out[plane], *in)
		}
		for i := range log.Switches {
			if s := &log.Switches[i]; int(s.Plane) == plane && s.Start >= w.start && s.Start <= w.end {
				out[plane] = append(out[plane], Interval{Step: -1, StartUS: us(s.Start), EndUS: us(s.End), To: s.Map})
			}
		}
		sortByStart(out[plane])
	}
	return out
}

func sortByStart(list []Interval) {
	slices.SortFunc(list, func(a, b Interval) int { return cmp.Compare(a.StartUS, b.StartUS) })
}
