package peers

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"

	"lightpath/bench"
	"lightpath/bench/sampling"
	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule"
)

// Options describe a comparison.
type Options struct {
	Transports  []string // shm, tcp
	Collectives []schedule.Collective
	Ranks       []int
	Hosts       Hosts   // of the ranks
	Sizes       []int64 // nccl-tests' S in bytes
	Type        datatype.Type
	Op          datatype.Op
	Contenders  []string // none: all; the subject is always one
	Rounds      int      // samples of a point
	// LibraryMemory makes each library allocate its buffers (ncclMemAlloc, MPI_Alloc_mem). Otherwise buffers are
	// ordinary pages that no library knows. Gloo always uses ordinary pages.
	LibraryMemory bool
	// Busy reports that other programs share the processors. Settings of peers adapt to it.
	Busy     bool
	Programs Programs
	// Timeout bounds one sample, and the start of a contender's ranks.
	Timeout time.Duration
	// Budget, unless 0, is the time after which no further collective begins.
	Budget time.Duration
	// Before, unless nil, has the points of an earlier run, which this run does not repeat.
	Before *Document
	// Save, unless nil, is called after each collective with all points so far.
	Save func(*Document) error
	// Progress gets a line at each step.
	Progress func(format string, args ...any)
}

// Point is one (transport, collective, ranks, size).
type Point struct {
	Transport  string              `json:"transport"`
	Collective string              `json:"collective"`
	Ranks      int                 `json:"ranks"`
	Bytes      int64               `json:"bytes"`
	Count      int64               `json:"count"`
	Type       string              `json:"type"`
	Op         string              `json:"op"`
	Iters      int                 `json:"iters"` // of one sample
	Warmup     int                 `json:"warmup"`
	Contenders map[string]*Samples `json:"contenders"`
	// Best is the fastest peer and Ratio the median over rounds of its time over the subject's; nil without a peer.
	Best  string    `json:"best_peer,omitempty"`
	Ratio *Interval `json:"ratio,omitempty"`
	// LeastRatio compares the least samples instead of the medians. Work of other processes, which disturbs most rounds,
	// changes it less than Ratio.
	LeastRatio float64 `json:"least_sample_ratio,omitempty"`
	// CPURatio compares the processor time of Best's ranks with that of the subject's, by medians.
	CPURatio float64 `json:"cpu_ratio,omitempty"`
}

// Samples are the samples of one contender at a point.
type Samples struct {
	TimesUS  []float64 `json:"times_us"` // by round
	CPUUS    []float64 `json:"cpu_us"`   // processor time of a call, of all ranks together, by round
	MedianUS float64   `json:"median_us"`
	AlgBW    float64   `json:"algbw_gbs"`
	BusBW    float64   `json:"busbw_gbs"`
	Wrong    int64     `json:"wrong"` // elements, over all samples that were checked
	// Lacks is the reason why there are no samples.
	Lacks string `json:"lacks,omitempty"`
	// Iters is set if samples have fewer iterations than the point's.
	Iters int `json:"iters,omitempty"`
}

// Library describes how a contender was started.
type Library struct {
	Name      string `json:"name"`
	Library   string `json:"library"`
	Transport string `json:"transport"`
	Ranks     int    `json:"ranks"`
	Command   string `json:"command"`
}

// Document is the content of the --json file.
type Document struct {
	Cores  int `json:"cores"`
	Rounds int `json:"rounds"`
	// LibraryMemory is the option.
	LibraryMemory bool `json:"library_memory,omitempty"`
	// HostPlanes is the number of planes between the hosts of the ranks; 0: one host.
	HostPlanes int       `json:"host_planes,omitempty"`
	Libraries  []Library `json:"libraries"`
	LeftOut    []string  `json:"left_out,omitempty"`
	Failures   []string  `json:"failures,omitempty"` // contenders that were lost on the way
	Points     []*Point  `json:"points"`
	Summaries  []Summary `json:"summaries"`
	// Left is the number of points for which there was no time.
	Left int `json:"left,omitempty"`
}

// Wrong returns the number of the subject's wrong elements.
func (d *Document) Wrong() (n int64) {
	for _, p := range d.Points {
		n += p.Contenders[Subject].Wrong
	}
	return n
}

// Run compares all contenders. It fails if the subject fails. If a peer fails, Run omits it from then on, and names it
// in the document. With an error the document holds the earlier measurements.
func Run(ctx context.Context, o *Options) (*Document, error) {
	d := &Document{Cores: runtime.NumCPU(), Rounds: o.Rounds, LibraryMemory: o.LibraryMemory}
	if o.Hosts.Tag != "" {
		d.HostPlanes = o.Hosts.Planes
	}
	if err := d.goOn(o.Before); err != nil {
		return d, err
	}
	began := time.Now()
	chosen, why, err := choose(o.Contenders, &o.Programs, o.Hosts.Tag != "")
	if err != nil {
		return d, err
	}
	d.LeftOut = why
	for _, line := range why {
		o.Progress("%s", line)
	}
	defer func() {
		d.sort()
		d.Summaries = summarize(d.Points)
	}()
	for _, transport := range o.Transports {
		for _, n := range o.Ranks {
			m := match{o: o, d: d, setting: setting{
				transport: transport, ranks: n, cores: d.Cores, busy: o.Busy, libraryMemory: o.LibraryMemory,
				reserve: o.reserve(n, len(chosen)), hosts: o.Hosts,
			}}
			if o.Budget > 0 {
				m.until = began.Add(o.Budget)
			}
			err := m.play(ctx, chosen)
			m.end()
			if err != nil {
				return d, err
			}
		}
	}
	return d, nil
}

// match holds all contenders in one setting.
type match struct {
	o *Options
	d *Document
	setting
	sessions []*session
	until    time.Time // no more points are begun then; zero: never
}

// point returns a point without samples.
func (m *match) point(c schedule.Collective, s size) *Point {
	return &Point{
		Transport: m.transport, Collective: c.String(), Ranks: m.ranks, Bytes: s.bytes, Count: s.count,
		Type: m.o.Type.String(), Op: m.o.Op.String(), Contenders: map[string]*Samples{},
	}
}

// due reports whether a point must be measured now. It counts the points for which there is no time.
func (m *match) due(p *Point) bool {
	if m.d.has(p) {
		return false
	}
	if !m.until.IsZero() && time.Now().After(m.until) {
		m.d.Left++
		return false
	}
	return true
}

func (m *match) play(ctx context.Context, chosen []contender) error {
	for _, c := range m.o.Collectives {
		if err := m.collective(ctx, c, chosen); err != nil {
			return err
		}
		if m.o.Save != nil {
			if err := m.o.Save(m.d); err != nil {
				return err
			}
		}
	}
	return nil
}

// collective measures all sizes of one collective. Each round has all sizes, so the samples of a point are far apart in
// time. The state of a host changes in seconds, and would otherwise be the same for all samples of a point.
func (m *match) collective(ctx context.Context, c schedule.Collective, chosen []contender) error {
	var points []*Point
	for _, s := range sizesOf(c, m.o, m.ranks) {
		p := m.point(c, s)
		if !m.due(p) {
			continue
		}
		if m.sessions == nil {
			if err := m.start(ctx, chosen); err != nil {
				return err
			}
		}
		if err := m.calibrate(ctx, c, p); err != nil {
			return err
		}
		points = append(points, p)
	}
	told := time.Now()
	for r := range m.o.Rounds {
		for _, p := range points {
			samples, err := m.round(ctx, p, c, p.Bytes <= checkedAlways, r)
			if err != nil {
				return err
			}
			for name, s := range samples {
				all := p.Contenders[name]
				all.TimesUS, all.CPUUS = append(all.TimesUS, s.us), append(all.CPUUS, s.cpuUS)
			}
		}
		if time.Since(told) > tellEvery {
			told = time.Now()
			m.o.Progress("%s %s %d ranks: round %d of %d", m.transport, c, m.ranks, r+1, m.o.Rounds)
		}
	}
	for _, p := range points {
		p.evaluate(c, m.o.Type)
		m.d.Points = append(m.d.Points, p)
		m.o.Progress("%s", p)
	}
	return nil
}

// tellEvery is the time between two lines of progress.
const tellEvery = 10 * time.Second

// start starts the ranks of all contenders.
func (m *match) start(ctx context.Context, chosen []contender) error {
	for i := range chosen {
		s, err := startSession(ctx, &chosen[i], &m.o.Programs, m.setting, m.o.Timeout)
		if err != nil {
			if err := m.lost(chosen[i].Name, err); err != nil {
				return err
			}
			continue
		}
		m.sessions = append(m.sessions, s)
		l := Library{s.name, s.library, m.transport, m.ranks, s.started.String()}
		if !slices.ContainsFunc(m.d.Libraries, func(o Library) bool { // it may have run before
			return o.Name == l.Name && o.Library == l.Library && o.Transport == l.Transport && o.Ranks == l.Ranks
		}) {
			m.d.Libraries = append(m.d.Libraries, l)
		}
	}
	return nil
}

// size is the size of one call.
type size struct{ bytes, count int64 }

// sizesOf returns the sizes of a collective. A size with less than one element for each rank is raised to that.
func sizesOf(c schedule.Collective, o *Options, ranks int) (all []size) {
	for _, bytes := range o.Sizes {
		s := size{bytes, bench.Count(c, bytes, o.Type, ranks)}
		if s.count == 0 {
			s = size{int64(ranks * o.Type.Size()), 1}
			if bench.Count(c, s.bytes, o.Type, ranks) != 1 {
				s.bytes = int64(o.Type.Size())
			}
		}
		if len(all) == 0 || s.count > all[len(all)-1].count {
			all = append(all, s)
		}
	}
	return all
}

func (m *match) end() {
	for _, s := range m.sessions {
		s.close()
	}
}

// lost notes the failure of a contender. It returns an error if the contender is the subject.
func (m *match) lost(name string, err error) error {
	text := fmt.Sprintf("%s, %d ranks: %v", m.transport, m.ranks, err)
	if name == Subject {
		return fmt.Errorf("peers: %s", text)
	}
	m.d.Failures = append(m.d.Failures, text)
	m.o.Progress("left out from here: %s", text)
	return nil
}

// checkedAlways is the largest size at which every sample is checked. At larger sizes only the samples that choose the
// iterations are checked.
const checkedAlways = 64 << 10

// calibrate chooses the iterations of a point's samples. The first calls of a size take many times as long as later
// calls. So rounds of more and more iterations follow each other, until the last round was long enough to choose.
func (m *match) calibrate(ctx context.Context, c schedule.Collective, p *Point) error {
	for _, s := range m.sessions {
		p.Contenders[s.name] = &Samples{}
	}
	for p.Warmup, p.Iters = 1, 2; ; {
		tried := p.Iters
		samples, err := m.round(ctx, p, c, true, 0)
		if err != nil {
			return err
		}
		if p.chooseIterations(samples); p.Iters <= 4*tried {
			return m.settle(ctx, p, c, samples)
		}
		p.Iters = min(p.Iters, 100*tried)
	}
}

// settle makes calls of a point until each library has adapted to a buffer that is used again. Lightpath gives it large
// pages with the 16th call, and a large buffer in several calls. samples has one of each contender.
func (m *match) settle(ctx context.Context, p *Point, c schedule.Collective, samples map[string]sample) error {
	slowest := 1.0
	for _, s := range samples {
		slowest = max(slowest, s.us)
	}
	once := *p
	once.Warmup, once.Iters = 0, int(max(2, min(settleCalls, settleUS/slowest)))
	_, err := m.round(ctx, &once, c, false, 0)
	return err
}

// round takes one sample of every contender, beginning with another one each time. MPI_Bcast has one buffer, so all
// contenders broadcast in place.
func (m *match) round(ctx context.Context, p *Point, c schedule.Collective, check bool,
	r int) (map[string]sample, error) {
	samples := map[string]sample{}
	spec := bench.Spec{Collective: c, Type: m.o.Type, Op: m.o.Op, Check: check}
	for i := range m.sessions {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s := m.sessions[(i+r)%len(m.sessions)]
		mine := p.Contenders[s.name]
		if s.gone || mine.Lacks != "" {
			continue
		}
		spec.Warmup, spec.Iters = p.Warmup, p.Iters
		if mine.Iters > 0 {
			spec.Warmup, spec.Iters = 1, mine.Iters
		}
		one, err := s.run(spec.RunLine(p.Bytes, p.Count, c == schedule.Broadcast))
		if err != nil {
			mine.Lacks = err.Error()
			if !errors.Is(err, errUnsupported) {
				s.gone = true
				if err := m.lost(s.name, fmt.Errorf("%s of %d bytes: %s: %w", p.Collective, p.Bytes, s.name, err)); err != nil {
					return nil, err
				}
			}
			continue
		}
		mine.Wrong += one.wrong
		samples[s.name] = one
	}
	return samples, nil
}

const (
	sampleUS  = 20e3  // a sample of the fastest contender, in us
	patience  = 500e3 // of a slow contender, at most
	mostIters = 200e3 // sampleUS of 0.1 us each

	settleCalls = 40   // that settle makes,
	settleUS    = 20e6 // unless the slowest contender's would take longer, in us
)

// chooseIterations chooses the iterations of a sample. All contenders have the same number, except those so slow that
// all samples would become too short.
func (p *Point) chooseIterations(samples map[string]sample) {
	fastest := math.Inf(1)
	for _, s := range samples {
		fastest = min(fastest, s.us)
	}
	p.Iters = int(max(2, min(sampleUS/fastest, mostIters)))
	p.Warmup = max(1, p.Iters/5)
	for name, s := range samples {
		p.Contenders[name].Iters = 0
		if few := int(max(2, min(patience/s.us, mostIters))); few < p.Iters {
			p.Contenders[name].Iters = few
		}
	}
}

// evaluate computes medians and the ratio.
func (p *Point) evaluate(c schedule.Collective, t datatype.Type) {
	for _, s := range p.Contenders {
		if s.Lacks != "" || len(s.TimesUS) == 0 {
			s.TimesUS = nil
			continue
		}
		s.MedianUS = sampling.Median(s.TimesUS)
		s.AlgBW, s.BusBW = bench.Bandwidths(c, p.Count, t, p.Ranks, s.MedianUS)
	}
	p.judge()
}

// judge compares the subject with its peers. A contender with a wrong element does not count.
func (p *Point) judge() {
	p.Ratio, p.Best, p.LeastRatio, p.CPURatio = nil, "", 0, 0
	var peers [][]float64
	var names []string
	for _, known := range contenders() {
		s := p.Contenders[known.Name]
		if s != nil && known.Name != Subject && !known.Aside && s.Wrong == 0 && len(s.TimesUS) > 0 {
			peers, names = append(peers, s.TimesUS), append(names, known.Name)
		}
	}
	subject := p.Contenders[Subject]
	if subject == nil || len(subject.TimesUS) == 0 || len(peers) == 0 || subject.Wrong > 0 {
		return
	}
	ratio, best := compare(subject.TimesUS, peers, uint64(p.Bytes))
	p.Ratio, p.Best = &ratio, names[best]
	least := math.Inf(1)
	for _, times := range peers {
		least = min(least, slices.Min(times))
	}
	p.LeastRatio = least / slices.Min(subject.TimesUS)
	if mine := sampling.Median(subject.CPUUS); mine > 0 {
		p.CPURatio = sampling.Median(p.Contenders[p.Best].CPUUS) / mine
	}
}
