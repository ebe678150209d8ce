package milp

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"lightpath/plans/delta/dag"
	"lightpath/plans/mip"
)

// ErrModel says that a model cannot be made of a job or that values are no solution of it.
var ErrModel = errors.New("milp")

// Kind is which of the paper's models.
type Kind int

// The models.
const (
	Topo  Kind = iota // circuits, with fair sharing of every link (equation 17)
	Joint             // circuits and rates
)

func (k Kind) String() string { return [...]string{"topo", "joint"}[k] }

// Exact as a margin leaves the anchors out: the program then has every schedule of that many
// intervals.
const Exact = -1

// Options of a model. Start is required.
type Options struct {
	Kind Kind
	// Start is a schedule with its circuits and segments: the source of the number of intervals,
	// of the anchors, of the bound on the makespan, and of the values that a solver starts with.
	Start *dag.Schedule
	// Extra intervals beyond those of Start.
	Extra int
	// Margin is the number of intervals by which a task with successors may leave its intervals in Start.
	// [Exact] is any number.
	Margin int
	// Upper bounds the circuits of every link; nil: what ports and flows allow.
	Upper dag.Circuits
}

// Model is a program for one graph. Its variables have the names of the paper. Times are in thousandths of
// the start's makespan, volumes in what one circuit carries in that time:
//
//   - x_l: circuits of link l; b_l_i: their bits; r_l_i_k: bits times intervals
//   - t_k: boundaries of intervals; d_k: their lengths
//   - w_m_k: volumes; y_m_k: activity of task m in interval k; s_m_k: start of the activity
//   - u_j_k: the fair share of a directed link
//   - S_m, C_m: start and end of a task; C: the makespan
type Model struct {
	g       *dag.Graph
	o       Options
	order   []int
	linkOf  []int
	windows *windows
	unit    float64 // us
	program *mip.Program

	makespan mip.Var
	x        []mip.Var // by link
	bits     [][]mip.Var
	t, d     []mip.Var
	ends     []taskVars
	rho      map[[3]int]mip.Var // by link, bit, interval
	share    map[[2]int]mip.Var // by directed link, interval
	volume   []float64          // by task, in units
	ports    []mip.Term         // those of the whole job, as a sum over x
}

// taskVars are the variables of a task; w, y and s by interval from first.
type taskVars struct {
	start, end mip.Var
	w, y, s    []mip.Var
}

// New states the model of a valid graph. The error says what of the options does not fit it.
func New(g *dag.Graph, o Options) (*Model, error) {
	order, err := g.Order()
	if err != nil {
		return nil, err
	}
	switch {
	case o.Start == nil || len(o.Start.Spans) != len(g.Tasks):
		return nil, fmt.Errorf("%w: the start has no span for every task", ErrModel)
	case !(o.Start.Makespan > 0):
		return nil, fmt.Errorf("%w: the start takes %v us", ErrModel, o.Start.Makespan)
	case o.Upper != nil && len(o.Upper) != len(g.Links):
		return nil, fmt.Errorf("%w: %d bounds for %d links", ErrModel, len(o.Upper), len(g.Links))
	}
	if c := o.Start.Circuits; c != nil {
		if err := g.CheckCircuits(c); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrModel, err)
		}
	}
	m := &Model{g: g, o: o, order: order, linkOf: g.LinkOf(), unit: o.Start.Makespan / 1000, program: &mip.Program{}}
	m.windows = newWindows(g, order, o.Start, 1e-9*o.Start.Makespan, max(0, o.Extra), o.Margin)
	m.volume = make([]float64, len(g.Tasks))
	for i := range g.Tasks {
		t := &g.Tasks[i]
		if w := m.windows; moves(t) && w.first[i] > w.last[i] {
			return nil, fmt.Errorf("%w: no interval is left for tasks[%d] %q with margin %d", ErrModel, i, t.Name, o.Margin)
		}
		m.volume[i] = t.Bytes / (g.Gbps * dag.BytesPerUSPerGbps) / m.unit
	}
	m.topology()
	m.boundaries()
	m.tasks()
	m.dependencies()
	m.links()
	m.nics()
	m.program.Minimize(mip.Term{Coef: 1, Var: m.makespan})
	return m, nil
}

// Size counts the program.
func (m *Model) Size() mip.Size { return m.program.Size() }

// Intervals returns how many there are.
func (m *Model) Intervals() int { return m.windows.count }

// WriteLP writes the program in the CPLEX LP format, WriteMPS in the free MPS format.
func (m *Model) WriteLP(w io.Writer) error {
	return m.program.WriteLP(w, fmt.Sprintf("DELTA-%v, %d tasks, %d intervals; times in units of %g us", m.o.Kind,
		len(m.g.Tasks), m.windows.count, m.unit))
}

// WriteMPS is described at [Model.WriteLP].
func (m *Model) WriteMPS(w io.Writer) error { return m.program.WriteMPS(w, "delta_"+m.o.Kind.String()) }

// topology adds circuits and their bits: equations 5 and 7. One variable stands for both
// directions, which is equation 6.
func (m *Model) topology() {
	g, p := m.g, m.program
	upper := m.upperBounds()
	rows := make([][]mip.Term, len(g.Pods))
	m.bits = make([][]mip.Var, len(g.Links))
	for l, k := range g.Links {
		x := p.AddInteger(fmt.Sprintf("x_%d", l), 1, float64(upper[l]))
		m.x = append(m.x, x)
		sum := []mip.Term{{Coef: -1, Var: x}}
		for i := 0; 1<<i <= upper[l]; i++ {
			b := p.AddInteger(fmt.Sprintf("b_%d_%d", l, i), 0, 1)
			m.bits[l] = append(m.bits[l], b)
			sum = append(sum, mip.Term{Coef: float64(int(1) << i), Var: b})
		}
		p.Row(fmt.Sprintf("c7_%d", l), mip.Equal, 0, sum...)
		total := 0.0
		for side, pod := range k.Pods {
			rows[pod] = append(rows[pod], mip.Term{Coef: float64(k.Ports[side]), Var: x})
			total += float64(k.Ports[side] * max(1, len(g.Pods[pod].Copies)))
		}
		m.ports = append(m.ports, mip.Term{Coef: total, Var: x})
	}
	for pod, terms := range rows {
		if !g.Pods[pod].Image && len(terms) > 0 {
			p.Row(fmt.Sprintf("c5_%d", pod), mip.AtMost, float64(g.Pods[pod].Ports), terms...)
		}
	}
}

// upperBounds returns the most circuits that each link can have beside one on every other link. It is no more than the
// flows of all its transfers in one direction use.
func (m *Model) upperBounds() []int {
	g := m.g
	one := slices.Repeat(dag.Circuits{1}, len(g.Links))
	used := g.PortsUsed(one)
	flows := make([]int, 2*len(g.Links))
	for i := range g.Tasks {
		if moves(&g.Tasks[i]) {
			flows[m.linkOf[i]] += g.Tasks[i].Flows
		}
	}
	upper := make([]int, len(g.Links))
	for l, k := range g.Links {
		upper[l] = max(1, flows[2*l], flows[2*l+1])
		for side, pod := range k.Pods {
			if each := k.Ports[side]; each > 0 && !g.Pods[pod].Image {
				upper[l] = min(upper[l], 1+(g.Pods[pod].Ports-used[pod])/each)
			}
		}
		if m.o.Upper != nil {
			upper[l] = max(1, min(upper[l], m.o.Upper[l]))
		}
		if c := m.o.Start.Circuits; c != nil { // bits must be able to say it
			upper[l] = max(upper[l], c[l])
		}
	}
	return upper
}

// boundaries adds times and intervals (equation 14) and the makespan.
func (m *Model) boundaries() {
	p, w := m.program, m.windows
	m.makespan = p.Add("C", 0, m.o.Start.Makespan/m.unit*(1+1e-7))
	for b := range w.count + 1 {
		m.t = append(m.t, p.Add(fmt.Sprintf("t_%d", b), 0, math.Inf(1)))
	}
	for k := range w.count {
		d := p.Add(fmt.Sprintf("d_%d", k), 0, w.longest(k)/m.unit)
		m.d = append(m.d, d)
		p.Row(fmt.Sprintf("c14_%d", k), mip.Equal, 0, mip.Term{Coef: 1, Var: d}, mip.Term{Coef: -1, Var: m.t[k+1]},
			mip.Term{Coef: 1, Var: m.t[k]})
	}
}

// tasks adds start, end and activity: equations 11, 12, 13, 15 and 18.
func (m *Model) tasks() {
	p, g, w := m.program, m.g, m.windows
	m.ends = make([]taskVars, len(g.Tasks))
	for _, i := range m.order {
		t, v := &g.Tasks[i], &m.ends[i]
		least := g.LeastTime(t)
		v.start = p.Add(fmt.Sprintf("S_%d", i), w.est[i]/m.unit, (w.lct[i]-least)/m.unit*(1+1e-7)+1e-7)
		v.end = p.Add(fmt.Sprintf("C_%d", i), 0, w.lct[i]/m.unit*(1+1e-7)+1e-7)
		sense := mip.Equal
		if moves(t) {
			sense = mip.AtLeast
		}
		// For work this is its time; for transfers it follows from 9 to 15 once they are integer.
		p.Row(fmt.Sprintf("c1_%d", i), sense, least/m.unit, mip.Term{Coef: 1, Var: v.end}, mip.Term{Coef: -1, Var: v.start})
		p.Row(fmt.Sprintf("c18_%d", i), mip.AtLeast, 0, mip.Term{Coef: 1, Var: m.makespan}, mip.Term{Coef: -1, Var: v.end})
		if moves(t) {
			m.activity(i)
		}
	}
}

func (m *Model) activity(i int) {
	p, w, v := m.program, m.windows, &m.ends[i]
	var all, begins []mip.Term
	for k := w.first[i]; k <= w.last[i]; k++ {
		at := fmt.Sprintf("_%d_%d", i, k)
		most := min(m.volume[i], float64(m.g.Tasks[i].Flows)*w.longest(k)/m.unit)
		volume, y := p.Add("w"+at, 0, most), p.AddInteger("y"+at, 0, 1)
		s := p.Add("s"+at, 0, 1) // an integer where it must be: rows 13 leave nothing else
		v.w, v.y, v.s = append(v.w, volume), append(v.y, y), append(v.s, s)
		all, begins = append(all, mip.Term{Coef: 1, Var: volume}), append(begins, mip.Term{Coef: 1, Var: s})
		p.Row("c12"+at, mip.AtMost, 0, mip.Term{Coef: 1, Var: volume}, mip.Term{Coef: -most, Var: y})
		rising := []mip.Term{{Coef: 1, Var: s}, {Coef: -1, Var: y}}
		if k > w.first[i] {
			rising = append(rising, mip.Term{Coef: 1, Var: v.y[k-1-w.first[i]]})
		}
		p.Row("c13"+at, mip.AtLeast, 0, rising...)
		if late := (w.lct[i]-m.g.LeastTime(&m.g.Tasks[i])-w.lo[k])/m.unit + 1e-4; late > 0 {
			p.Row("c15a"+at, mip.AtMost, late, mip.Term{Coef: 1, Var: v.start}, mip.Term{Coef: -1, Var: m.t[k]},
				mip.Term{Coef: late, Var: y})
		}
		if early := (w.hi[k+1]-w.est[i])/m.unit + 1e-4; early > 0 {
			p.Row("c15b"+at, mip.AtLeast, -early, mip.Term{Coef: 1, Var: v.end}, mip.Term{Coef: -1, Var: m.t[k+1]},
				mip.Term{Coef: -early, Var: y})
		}
	}
	p.Row(fmt.Sprintf("c11_%d", i), mip.Equal, m.volume[i], all...)
	p.Row(fmt.Sprintf("c13_%d", i), mip.Equal, 1, begins...)
}

// dependencies is equation 16.
func (m *Model) dependencies() {
	for k, d := range m.g.Deps {
		m.program.Row(fmt.Sprintf("c16_%d", k), mip.AtLeast, d.Delay/m.unit,
			mip.Term{Coef: 1, Var: m.ends[d.To].start}, mip.Term{Coef: -1, Var: m.ends[d.From].end})
	}
}

// links is equations 8, 9 and 17. Of the three rows of 8, the last keeps bits times intervals
// from being too small, which no solution gains from: it is left out.
func (m *Model) links() {
	p, w := m.program, m.windows
	m.rho, m.share = make(map[[3]int]mip.Var), make(map[[2]int]mip.Var)
	users := make([][]int, 2*len(m.g.Links))
	for i := range m.g.Tasks {
		if moves(&m.g.Tasks[i]) {
			users[m.linkOf[i]] = append(users[m.linkOf[i]], i)
		}
	}
	for j, tasks := range users {
		for k := range w.count {
			here := slices.DeleteFunc(slices.Clone(tasks), func(i int) bool { return !w.active(i, k) })
			if len(here) == 0 {
				continue
			}
			sum := m.capacity(j/2, k)
			for _, i := range here {
				sum = append(sum, mip.Term{Coef: 1, Var: m.ends[i].w[k-w.first[i]]})
			}
			p.Row(fmt.Sprintf("c9_%d_%d", j, k), mip.AtMost, 0, sum...)
			if m.o.Kind == Topo && len(here) > 1 {
				m.fair(j, k, here)
			}
		}
	}
}

// capacity returns minus what a link carries in interval k.
func (m *Model) capacity(l, k int) []mip.Term {
	p := m.program
	var sum []mip.Term
	for i, b := range m.bits[l] {
		key := [3]int{l, i, k}
		r, ok := m.rho[key]
		if !ok {
			most := m.windows.longest(k) / m.unit
			at := fmt.Sprintf("_%d_%d_%d", l, i, k)
			r = p.Add("r"+at, 0, most)
			m.rho[key] = r
			p.Row("c8a"+at, mip.AtMost, 0, mip.Term{Coef: 1, Var: r}, mip.Term{Coef: -most, Var: b})
			p.Row("c8b"+at, mip.AtMost, 0, mip.Term{Coef: 1, Var: r}, mip.Term{Coef: -1, Var: m.d[k]})
		}
		sum = append(sum, mip.Term{Coef: -float64(int(1) << i), Var: r})
	}
	return sum
}

// fair is equation 17 for the tasks that may be active on directed link j in interval k.
func (m *Model) fair(j, k int, tasks []int) {
	p, most := m.program, m.windows.longest(k)/m.unit
	u := p.Add(fmt.Sprintf("u_%d_%d", j, k), 0, most)
	m.share[[2]int{j, k}] = u
	for _, i := range tasks {
		v, at := &m.ends[i], k-m.windows.first[i]
		each := 1 / float64(m.g.Tasks[i].Flows)
		name := fmt.Sprintf("_%d_%d", i, k)
		p.Row("c17a"+name, mip.AtMost, most, mip.Term{Coef: each, Var: v.w[at]}, mip.Term{Coef: -1, Var: u},
			mip.Term{Coef: most, Var: v.y[at]})
		p.Row("c17b"+name, mip.AtMost, most, mip.Term{Coef: 1, Var: u}, mip.Term{Coef: -each, Var: v.w[at]},
			mip.Term{Coef: most, Var: v.y[at]})
	}
}

// nics is equation 10, once for every set of transfers that share a GPU; for a transfer whose
// GPUs are unknown, its flows' own limit.
func (m *Model) nics() {
	p, w := m.program, m.windows
	for n, tasks := range m.sharers() {
		for k := range w.count {
			sum := []mip.Term{{Coef: -1, Var: m.d[k]}}
			for _, i := range tasks {
				if w.active(i, k) {
					sum = append(sum, mip.Term{Coef: 1 / float64(m.g.Tasks[i].Flows), Var: m.ends[i].w[k-w.first[i]]})
				}
			}
			if len(sum) > 1 {
				p.Row(fmt.Sprintf("c10_%d_%d", n, k), mip.AtMost, 0, sum...)
			}
		}
	}
}

// sharers returns the different sets of transfers that have a GPU's NIC in common, by
// direction.
func (m *Model) sharers() [][]int {
	var sets [][]int
	known := make(map[string]bool)
	add := func(tasks []int) {
		if key := fmt.Sprint(tasks); !known[key] {
			known[key] = true
			sets = append(sets, tasks)
		}
	}
	for _, side := range []func(*dag.Task) []int{func(t *dag.Task) []int { return t.Src },
		func(t *dag.Task) []int { return t.Dst }} {
		byGPU := make(map[int][]int)
		var gpus []int
		for i := range m.g.Tasks {
			t := &m.g.Tasks[i]
			if !moves(t) {
				continue
			}
			if side(t) == nil {
				add([]int{i})
			}
			for _, gpu := range side(t) {
				if byGPU[gpu] == nil {
					gpus = append(gpus, gpu)
				}
				byGPU[gpu] = append(byGPU[gpu], i)
			}
		}
		slices.Sort(gpus)
		for _, gpu := range gpus {
			add(byGPU[gpu])
		}
	}
	return sets
}
