package demo

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	"lightpath/collectives/transport/ebpf"
	"lightpath/internal/monotonic"
	"lightpath/ocsctl/kernel"
	"lightpath/plans"
	"lightpath/plans/fabric"
)

// kernelGround is planes in the kernel. Its evidence are the counters of the switch's ports, which no
// rank can write: what they have carried over the whole run must be what the plan says, and nothing
// may be lost. When things happened is read from samples of the same counters and circuits.
type kernelGround struct {
	down    func() error
	view    *kernel.View
	sampler *sampler
}

func (g *kernelGround) configure(_ *Experiment, _ string, f *fabric.Fabric, _ *fabric.OCSD) {
	f.Name = fmt.Sprintf("demo%d", os.Getpid())
	for p := range f.Planes {
		f.Planes[p].Interface = f.Planes[p].Name
	}
}

func (g *kernelGround) start(t *Trial, dir string) error {
	f, err := fabric.Load(filepath.Join(dir, "fabric.yaml"))
	if err != nil {
		return err
	}
	state, down, err := kernel.Temporary(f, kernel.Options{
		MTU: frameMTU(t.Experiment.Scale.FrameData), Overhead: ebpf.FrameOverhead,
	})
	if err != nil {
		return err
	}
	g.down = down
	if g.view, err = kernel.Look(state); err != nil {
		return err
	}
	g.sampler = sample(g.view)
	return nil
}

func (g *kernelGround) close() {
	if g.view != nil {
		g.sampler.stop()
		_ = g.view.Close() // of memory that is only read
	}
	if g.down != nil {
		_ = g.down() // a fabric that stays is listed, and removed by the next demo
	}
}

func (g *kernelGround) audit(a *auditor, iters []window, shown int) (finding, [][]Interval, error) {
	g.sampler.stop()
	var f finding
	ports := g.view.State().Ranks
	want, err := a.perPort(ports)
	if err != nil {
		return f, nil, err
	}
	runs := float64(len(iters) + warmup)
	for plane := range want {
		for port, bytes := range want[plane] {
			c, err := g.view.Counters(plane, port)
			if err != nil {
				return f, nil, err
			}
			s := c.Stats()
			lost := s.Dark + s.Misdirected + s.CameBack + s.Other + s.Strayed
			f.Frames += int(s.Forwarded)
			f.Lost += int(lost)
			if lost > 0 {
				return f, nil, fmt.Errorf("%w: plane %d port %d lost frames: %d dark, %d misdirected, %d came back, %d foreign, %d strayed",
					ErrAudit, plane, port, s.Dark, s.Misdirected, s.CameBack, s.Other, s.Strayed)
			}
			payload := payloadOf(&s)
			f.Bytes += int64(payload)
			if math.Abs(payload-runs*bytes) > runs*a.slack {
				return f, nil, fmt.Errorf("%w: plane %d port %d carried %.0f bytes in %.0f runs, the plan says %.0f each", ErrAudit, plane, port, payload, runs, bytes)
			}
		}
	}
	for _, w := range iters {
		f.Switches += g.sampler.switches(w)
	}
	return f, g.sampler.intervals(a, iters[shown]), nil
}

// payloadOf is what a port has carried, in bytes without headers.
func payloadOf(s *kernel.Stats) float64 {
	return float64(s.ForwardedBytes) - float64(s.Forwarded)*ebpf.FrameOverhead
}

// perPort walks the plan: the bytes that leave each port of each plane in one run.
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

// frameMTU is the size of the IP packet that carries so much payload.
func frameMTU(data int) int { return data + ebpf.FrameOverhead - 14 }

// samplePeriod is how often counters and circuits are looked at: loads from memory, no system call.
const samplePeriod = 200 * time.Microsecond

// sampler records when a plane's ports have carried how much, and when circuits changed.
type sampler struct {
	view    *kernel.View
	quit    chan struct{}
	done    sync.WaitGroup
	once    sync.Once
	carried [][]carriedAt // by plane, where it has changed
	dark    [][]darkAt
}

// carriedAt is what all ports of a plane had carried, in bytes of payload.
type carriedAt struct {
	at    int64 // CLOCK_MONOTONIC ns
	bytes float64
}

// darkAt is a change of the circuits: to the map at that moment.
type darkAt struct {
	at  int64
	set []int // to[r], -1 dark
}

func sample(v *kernel.View) *sampler {
	planes := len(v.State().Planes)
	s := &sampler{view: v, quit: make(chan struct{}), carried: make([][]carriedAt, planes), dark: make([][]darkAt, planes)}
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
				return // cannot be: both are in range
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
		if n := len(s.dark[plane]); n == 0 || !m.Equal(s.dark[plane][n-1].set) {
			s.dark[plane] = append(s.dark[plane], darkAt{now, m})
		}
	}
}

// moves lists the reconfigurations of a plane that began in a window: from the first circuit that went
// dark to the next map without change.
func (s *sampler) moves(plane int, w window) []Interval {
	var out []Interval
	list := s.dark[plane]
	for i := 1; i < len(list); i++ {
		from := list[i].at
		if from < w.start || from > w.end || darker(list[i].set) <= darker(list[i-1].set) {
			continue
		}
		for i+1 < len(list) && darker(list[i].set) > 0 {
			i++
		}
		out = append(out, Interval{Step: -1, StartUS: float64(from-w.start) / 1e3, EndUS: float64(list[i].at-w.start) / 1e3, To: list[i].set})
	}
	return out
}

func darker(to []int) int {
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
	for plane := range s.dark {
		n += len(s.moves(plane, window{w.start, last}))
	}
	return n
}

// intervals is what the planes did in one iteration. Entries of the plan follow each other on a plane, so
// each ends when the plane has carried the bytes of it and of those before it.
func (s *sampler) intervals(a *auditor, w window) [][]Interval {
	out := make([][]Interval, len(s.carried))
	for plane := range out {
		out[plane] = append(s.transmits(a, plane, w), s.moves(plane, w)...)
		inOrder(out[plane])
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
	_ = a.walk(plane, func(e *plans.Entry, crosses map[circuitKey]float64) { // the audit has walked it before
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
