package demo

import (
	"fmt"
	"math"
	"path/filepath"
	"sync"
	"time"

	"lightpath/bench"
	"lightpath/collectives/transport/ebpf"
	"lightpath/internal/monotonic"
	"lightpath/ocsctl/kernel"
	"lightpath/plans"
	"lightpath/plans/fabric"
)

// kernelBackend runs planes in the kernel. It audits the counters of the switch's ports, which no rank can write. Over
// the whole run they must match the plan, with no frame lost. Times come from samples of the same counters and
// circuits.
type kernelBackend struct {
	down    func() error
	view    *kernel.View
	sampler *sampler
}

func (b *kernelBackend) configure(_ *Experiment, _ string, f *fabric.Fabric, _ *fabric.OCSD) {
	bench.OnKernel(f)
}

func (b *kernelBackend) start(t *Trial, dir string) error {
	f, err := fabric.Load(filepath.Join(dir, "fabric.yaml"))
	if err != nil {
		return err
	}
	state, down, err := bench.KernelPlanes(f, t.Experiment.Scale.FrameData)
	if err != nil {
		return err
	}
	b.down = down
	if b.view, err = kernel.Look(state); err != nil {
		return err
	}
	b.sampler = sample(b.view)
	return nil
}

func (b *kernelBackend) close() {
	if b.view != nil {
		b.sampler.stop()
		_ = b.view.Close() // the memory was only read
	}
	if b.down != nil {
		_ = b.down() // the next demo removes a fabric that stays
	}
}

func (b *kernelBackend) audit(a *auditor, iters []window, shown int) (counts, [][]Interval, error) {
	b.sampler.stop()
	var c counts
	ports := b.view.State().Ranks
	want, err := a.perPort(ports)
	if err != nil {
		return c, nil, err
	}
	runs := float64(len(iters) + warmup)
	for plane := range want {
		for port, bytes := range want[plane] {
			counters, err := b.view.Counters(plane, port)
			if err != nil {
				return c, nil, err
			}
			s := counters.Stats()
			lost := s.Dark + s.Misdirected + s.CameBack + s.Other + s.Strayed
			c.Frames += int(s.Forwarded)
			c.Lost += int(lost)
			if lost > 0 {
				return c, nil, fmt.Errorf("%w: plane %d port %d lost frames: "+
					"%d dark, %d misdirected, %d came back, %d foreign, %d strayed", ErrAudit, plane, port, s.Dark, s.Misdirected,
					s.CameBack, s.Other, s.Strayed)
			}
			payload := payloadOf(&s)
			if math.Abs(payload-runs*bytes) > runs*a.slack {
				return c, nil, fmt.Errorf("%w: plane %d port %d carried %.0f bytes in %.0f runs, the plan says %.0f each",
					ErrAudit, plane, port, payload, runs, bytes)
			}
		}
	}
	for _, w := range iters {
		c.Switches += b.sampler.switches(w)
	}
	return c, b.sampler.intervals(a, iters[shown]), nil
}

// payloadOf returns what a port has carried, in bytes without headers.
func payloadOf(s *kernel.Stats) float64 {
	return float64(s.ForwardedBytes) - float64(s.Forwarded)*ebpf.FrameOverhead
}

// perPort returns the bytes that leave each port in one run of the plan, by plane and port.
func (a *auditor) perPort(ports int) ([][]float64, error) {
	circuits, err := a.expected()
	if err != nil {
		return nil, err
	}
	sum := make([][]float64, len(a.plan.Planes))
	for plane := range sum {
		sum[plane] = make([]float64, ports)
	}
	for k, bytes := range circuits {
		sum[k.plane][k.src] += bytes
	}
	return sum, nil
}

// samplePeriod is how often counters and circuits are sampled. A sample is loads from memory, without a system call.
const samplePeriod = 200 * time.Microsecond

// sampler records the progress of each plane's counters, and the changes of its circuits.
type sampler struct {
	view    *kernel.View
	quit    chan struct{}
	done    sync.WaitGroup
	once    sync.Once
	carried [][]carriedAt // by plane, one for each change
	maps    [][]mapAt     // the same
}

// carriedAt is the payload that all ports of a plane had carried at a time, in bytes.
type carriedAt struct {
	at    int64 // CLOCK_MONOTONIC ns
	bytes float64
}

// mapAt is the map of a plane from a time on.
type mapAt struct {
	at int64 // CLOCK_MONOTONIC ns
	to []int // destination of each port, -1: dark
}

func sample(v *kernel.View) *sampler {
	planes := len(v.State().Planes)
	s := &sampler{view: v, quit: make(chan struct{}), carried: make([][]carriedAt, planes), maps: make([][]mapAt, planes)}
	s.done.Go(func() {
		tick := time.NewTicker(samplePeriod)
		defer tick.Stop()
		for {
			s.look()
			select {
			case <-s.quit:
				return
			case <-tick.C:
			}
		}
	})
	return s
}

func (s *sampler) stop() {
	s.once.Do(func() { close(s.quit) })
	s.done.Wait()
}

func (s *sampler) look() {
	now := monotonic.Now()
	for plane := range s.carried {
		bytes := 0.0
		for port := range s.view.State().Ranks {
			c, err := s.view.Counters(plane, port)
			if err != nil {
				return // impossible: both are in range
			}
			st := c.Stats()
			bytes += payloadOf(&st)
		}
		if n := len(s.carried[plane]); n == 0 || s.carried[plane][n-1].bytes != bytes {
			s.carried[plane] = append(s.carried[plane], carriedAt{now, bytes})
		}
		m, err := s.view.Map(plane)
		if err != nil {
			return
		}
		if n := len(s.maps[plane]); n == 0 || !m.Equal(s.maps[plane][n-1].to) {
			s.maps[plane] = append(s.maps[plane], mapAt{now, m})
		}
	}
}

// moves lists the reconfigurations of a plane that began in a window. Each lasts from the first dark circuit to the
// next map without a dark circuit.
func (s *sampler) moves(plane int, w window) []Interval {
	var out []Interval
	list := s.maps[plane]
	for i := 1; i < len(list); i++ {
		from := list[i].at
		if from < w.start || from > w.end || darkPorts(list[i].to) <= darkPorts(list[i-1].to) {
			continue
		}
		for i+1 < len(list) && darkPorts(list[i].to) > 0 {
			i++
		}
		out = append(out, Interval{
			Step: -1, StartUS: float64(from-w.start) / 1e3, EndUS: float64(list[i].at-w.start) / 1e3, To: list[i].to,
		})
	}
	return out
}

func darkPorts(to []int) int {
	n := 0
	for _, s := range to {
		if s < 0 {
			n++
		}
	}
	return n
}

// switches counts the reconfigurations of an iteration up to its last byte on any plane.
func (s *sampler) switches(w window) int {
	last := w.start
	for _, list := range s.carried {
		for _, c := range list {
			if c.at <= w.end {
				last = max(last, c.at)
			}
		}
	}
	n := 0
	for plane := range s.maps {
		n += len(s.moves(plane, window{w.start, last}))
	}
	return n
}

// intervals returns the transmissions and reconfigurations of one iteration, by plane. Entries of the plan follow each
// other on a plane. So an entry ends when the plane has carried its bytes and those of the entries before it.
func (s *sampler) intervals(a *auditor, w window) [][]Interval {
	out := make([][]Interval, len(s.carried))
	for plane := range out {
		out[plane] = append(s.transmits(a, plane, w), s.moves(plane, w)...)
		sortByStart(out[plane])
	}
	return out
}

func (s *sampler) transmits(a *auditor, plane int, w window) []Interval {
	var out []Interval
	list := s.carried[plane]
	i := 0
	for i+1 < len(list) && list[i+1].at <= w.start {
		i++
	}
	if len(list) == 0 {
		return nil
	}
	for list[len(list)-1].at > w.end && len(list) > i+1 {
		list = list[:len(list)-1]
	}
	base, before, slack := list[i].bytes, 0.0, a.slack*float64(s.view.State().Ranks)
	// the audit has walked the plan without an error
	_ = a.walk(plane, func(e *plans.Entry, crosses map[circuitKey]float64) {
		after := before
		for _, bytes := range crosses {
			after += bytes
		}
		for i+1 < len(list) && list[i].bytes <= base+before+slack {
			i++ // to the first sample with bytes of this entry
		}
		in := Interval{Step: e.Step, StartUS: float64(max(list[i].at-int64(samplePeriod), w.start)-w.start) / 1e3}
		for i+1 < len(list) && list[i].bytes < base+after-slack {
			i++
		}
		in.EndUS = float64(list[i].at-w.start) / 1e3
		out, before = append(out, in), after
	})
	return out
}
