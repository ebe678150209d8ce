package check_test

import (
	"errors"
	"fmt"
	"math"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

// referee decides by the cost model whether a plan is feasible, without code of the checker. It looks up a plane's
// circuits by time, walks every flow along the circuits, and adds up in maps. It takes valid problems and is slow.
func referee(p *plans.Problem, q *plans.Plan) error {
	if len(q.Planes) != p.Planes || math.IsNaN(q.CCTUS+q.LowerBoundUS) || math.IsInf(q.CCTUS+q.LowerBoundUS, 0) {
		return errors.New("planes or numbers")
	}
	r := &judge{p: p, q: q, got: map[[3]int]float64{}, stepEnd: map[int]float64{}, held: map[[2]int]float64{},
		joint: map[string][][2]int{}}
	for _, f := range []func() error{r.shape, r.planes, r.joints, r.barrier, r.carried, r.ends} {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

type judge struct {
	p       *plans.Problem
	q       *plans.Plan
	cct     float64
	got     map[[3]int]float64 // step, source, destination
	stepEnd map[int]float64
	held    map[[2]int]float64
	joint   map[string][][2]int // step and id -> plane, entry
}

const small = 1e-6

// less is clearly less.
func less(a, b float64) bool { return a < b-small-1e-9*math.Abs(b) }

func isMap(c circuit.Permutation, n int) bool {
	seen := map[int]bool{}
	for _, s := range c {
		if s < -1 || s >= n || s >= 0 && seen[s] {
			return false
		}
		seen[s] = true
	}
	return len(c) == n
}

func (r *judge) fits(c circuit.Permutation) bool {
	if !isMap(c, r.p.Ranks) {
		return false
	}
	for a, b := range c {
		if r.p.Circuits == plans.Duplex && b >= 0 && c[b] != a {
			return false
		}
	}
	return true
}

func inverseOf(c circuit.Permutation) circuit.Permutation {
	d := circuit.AllDark(len(c))
	for a, b := range c {
		if b >= 0 {
			d[b] = a
		}
	}
	return d
}

// initial is the map that plane j begins with.
func (r *judge) initial(j int) circuit.Permutation {
	if r.p.Demand == nil && r.q.Initial != nil {
		return r.q.Initial[j]
	}
	if r.p.Demand == nil && r.p.Initial != nil {
		return r.p.Initial[j]
	}
	return circuit.AllDark(r.p.Ranks)
}

// shape looks at maps, kinds and numbers on their own.
func (r *judge) shape() error {
	if r.p.Demand == nil && r.q.Initial != nil {
		if len(r.q.Initial) != r.p.Planes {
			return errors.New("initial")
		}
		for j, c := range r.q.Initial {
			if !r.fits(c) || r.p.Initial != nil && fmt.Sprint(c) != fmt.Sprint(r.p.Initial[j]) {
				return fmt.Errorf("initial of plane %d", j)
			}
			if r.p.Circuits == plans.Interleaved && fmt.Sprint(inverseOf(c)) != fmt.Sprint(r.q.Initial[j^1]) {
				return fmt.Errorf("initial of plane %d and its partner", j)
			}
		}
	}
	for j := range r.q.Planes {
		for i, e := range r.q.Planes[j] {
			sum := e.StartUS + e.EndUS + e.Bytes
			if math.IsNaN(sum) || math.IsInf(sum, 0) {
				return fmt.Errorf("plane %d entry %d: numbers", j, i)
			}
			ok := false
			switch e.Kind {
			case plans.Transmit:
				ok = r.p.Demand == nil && e.Step >= 0 && e.Step < len(r.p.Steps) && e.Bytes >= 0
			case plans.Hold:
				ok = r.p.Demand != nil && r.fits(e.To)
			case plans.Reconfigure:
				ok = r.fits(e.To)
			}
			if !ok {
				return fmt.Errorf("plane %d entry %d: form", j, i)
			}
		}
	}
	return nil
}

// circuits is what plane j holds from a time on, looking at the entries before index i.
func (r *judge) circuits(j, i int) circuit.Permutation {
	c := r.initial(j)
	for _, e := range r.q.Planes[j][:i] {
		if e.Kind == plans.Reconfigure {
			c = e.To
		}
	}
	return c
}

// planes checks each plane's entries: one at a time, long enough, on circuits that are there.
func (r *judge) planes() error {
	for j, entries := range r.q.Planes {
		for i, e := range entries {
			if less(e.StartUS, 0) || less(e.EndUS, e.StartUS) {
				return fmt.Errorf("plane %d entry %d: times", j, i)
			}
			for _, f := range entries[:i] {
				if less(e.StartUS, f.EndUS) {
					return fmt.Errorf("plane %d entry %d: two things at once", j, i)
				}
			}
			need, err := r.need(j, i)
			if err != nil {
				return fmt.Errorf("plane %d entry %d: %w", j, i, err)
			}
			if e.EndUS-e.StartUS < need-small-1e-9*math.Max(math.Abs(e.EndUS), need) {
				return fmt.Errorf("plane %d entry %d: %v us of %v", j, i, e.EndUS-e.StartUS, need)
			}
			if e.Kind != plans.Reconfigure {
				r.cct = math.Max(r.cct, e.EndUS)
			}
			if e.Kind == plans.Transmit {
				r.stepEnd[e.Step] = math.Max(r.stepEnd[e.Step], e.EndUS)
			}
		}
		if err := r.pair(j); err != nil {
			return err
		}
		last := fmt.Sprint(r.circuits(j, len(entries)))
		switch {
		case r.p.Demand != nil:
		case r.p.Final.Kind == plans.FinalInitial && last != fmt.Sprint(r.initial(j)),
			r.p.Final.Kind == plans.FinalGiven && last != fmt.Sprint(r.p.Final.Maps[j]):
			return fmt.Errorf("plane %d: final", j)
		}
	}
	return nil
}

// pair checks that interleaved planes switch together.
func (r *judge) pair(j int) error {
	if r.p.Circuits != plans.Interleaved {
		return nil
	}
	switches := func(j int) (out []plans.Entry) {
		for _, e := range r.q.Planes[j] {
			if e.Kind == plans.Reconfigure {
				out = append(out, e)
			}
		}
		return out
	}
	a, b := switches(j), switches(j^1)
	for k := range a {
		if len(a) != len(b) || less(a[k].StartUS, b[k].StartUS) || less(b[k].StartUS, a[k].StartUS) ||
			less(a[k].EndUS, b[k].EndUS) ||
			less(b[k].EndUS, a[k].EndUS) || fmt.Sprint(a[k].To) != fmt.Sprint(inverseOf(b[k].To)) {
			return fmt.Errorf("plane %d: its partner", j)
		}
	}
	return nil
}

// need returns how long an entry must last, and counts what it carries.
func (r *judge) need(j, i int) (float64, error) {
	e := &r.q.Planes[j][i]
	c := r.circuits(j, i)
	switch e.Kind {
	case plans.Reconfigure:
		us := r.p.ReconfigUS
		for a, b := range e.To {
			if b >= 0 && c[a] != b {
				us += r.p.ReconfigPerPort
			}
		}
		return us, nil
	case plans.Hold:
		switched := false
		for _, f := range r.q.Planes[j][:i] {
			switched = switched || f.Kind == plans.Reconfigure
		}
		if !switched || fmt.Sprint(c) != fmt.Sprint(e.To) {
			return 0, errors.New("hold without circuits")
		}
		for a, b := range e.To {
			if b >= 0 {
				r.held[[2]int{a, b}] += math.Max(0, e.EndUS-e.StartUS)
			}
		}
		return 0, nil
	}
	if e.Joint != "" {
		key := fmt.Sprintf("%d %s", e.Step, e.Joint)
		r.joint[key] = append(r.joint[key], [2]int{j, i})
		return 0, nil
	}
	if e.Routes != nil {
		return 0, errors.New("routes")
	}
	flows := r.p.Steps[e.Step].FlowList()
	if e.Flows != nil {
		var listed [][2]int
		seen := map[int]bool{}
		for _, f := range e.Flows {
			if f < 0 || f >= len(flows) || seen[f] {
				return 0, errors.New("flows")
			}
			seen[f] = true
			listed = append(listed, flows[f])
		}
		flows = listed
	}
	load, longest, most := map[int]int{}, 0, 0
	for _, f := range flows {
		r.got[[3]int{e.Step, f[0], f[1]}] += e.Bytes
		if e.Bytes == 0 {
			continue
		}
		hops := 0
		for at := f[0]; at != f[1]; at = c[at] {
			if c[at] < 0 || hops > r.p.Ranks {
				return 0, fmt.Errorf("no way from %d to %d", f[0], f[1])
			}
			hops++
			load[at]++
			most = max(most, load[at])
		}
		longest = max(longest, hops)
	}
	if longest > 1 && !r.p.Forwarding {
		return 0, errors.New("forwards")
	}
	if most == 0 {
		return 0, nil
	}
	return r.p.AlphaUS + r.p.HopUS*float64(longest) + 8e-3*e.Bytes*float64(most)/r.p.BandwidthGbps, nil
}

// joints checks transmissions over several planes.
func (r *judge) joints() error {
	for key, members := range r.joint {
		first := r.q.Planes[members[0][0]][members[0][1]]
		var routes []plans.Route
		lists, maps := 0, map[int]circuit.Permutation{}
		for _, m := range members {
			e := r.q.Planes[m[0]][m[1]]
			if e.Bytes != 0 || e.Flows != nil || math.Abs(e.StartUS-first.StartUS) > small+1e-9*math.Abs(first.StartUS) ||
				math.Abs(e.EndUS-first.EndUS) > small+1e-9*math.Abs(first.EndUS) || maps[m[0]] != nil {
				return fmt.Errorf("joint %s: members", key)
			}
			if maps[m[0]] = r.circuits(m[0], m[1]); e.Routes != nil {
				lists++
				routes = e.Routes
			}
		}
		if lists != 1 || first.Routes == nil || len(members) < 2 {
			return fmt.Errorf("joint %s: routes", key)
		}
		flows := map[[2]int]bool{}
		for _, f := range r.p.Steps[first.Step].FlowList() {
			flows[f] = true
		}
		load, longest, most := map[[2]int]float64{}, 0, 0.0
		for _, route := range routes {
			at := route.Flow[0]
			if !flows[route.Flow] || !(route.Bytes >= 0) || math.IsInf(route.Bytes, 0) {
				return fmt.Errorf("joint %s: flow %v", key, route.Flow)
			}
			for _, hop := range route.Path {
				c := maps[hop[0]]
				if c == nil || hop[1] < 0 || c[at] != hop[1] {
					return fmt.Errorf("joint %s: path %v", key, route.Path)
				}
				load[[2]int{hop[0], at}] += route.Bytes
				most = math.Max(most, load[[2]int{hop[0], at}])
				at = hop[1]
			}
			if at != route.Flow[1] {
				return fmt.Errorf("joint %s: path ends at %d", key, at)
			}
			if r.got[[3]int{first.Step, route.Flow[0], route.Flow[1]}] += route.Bytes; route.Bytes > 0 {
				longest = max(longest, len(route.Path))
			}
		}
		if longest > 1 && !r.p.Forwarding {
			return fmt.Errorf("joint %s: forwards", key)
		}
		need := 0.0
		if most > 0 {
			need = r.p.AlphaUS + r.p.HopUS*float64(longest) + 8e-3*most/r.p.BandwidthGbps
		}
		if first.EndUS-first.StartUS < need-small-1e-9*math.Max(first.EndUS, need) {
			return fmt.Errorf("joint %s: %v us of %v", key, first.EndUS-first.StartUS, need)
		}
	}
	return nil
}

// barrier checks P3.
func (r *judge) barrier() error {
	for j, entries := range r.q.Planes {
		for i, e := range entries {
			for step := range e.Step {
				if e.Kind == plans.Transmit && less(e.StartUS, r.stepEnd[step]) {
					return fmt.Errorf("plane %d entry %d: before step %d has ended", j, i, step)
				}
			}
		}
	}
	return nil
}

// carried checks that everything that is asked for is carried.
func (r *judge) carried() error {
	for i := range r.p.Steps {
		s := &r.p.Steps[i]
		slack := math.Min(small*r.p.BandwidthGbps/8e-3, 1e-6*s.Bytes) + 1e-9*s.Bytes
		for _, f := range s.FlowList() {
			if got := r.got[[3]int{i, f[0], f[1]}]; got < s.Bytes-slack {
				return fmt.Errorf("step %d: flow %v gets %v of %v", i, f, got, s.Bytes)
			}
		}
	}
	for a, row := range r.p.Demand {
		for b, bytes := range row {
			if need := 8e-3 * bytes / r.p.BandwidthGbps; less(r.held[[2]int{a, b}], need) {
				return fmt.Errorf("demand %d -> %d: %v us of %v", a, b, r.held[[2]int{a, b}], need)
			}
		}
	}
	return nil
}

// ends checks what the plan says of itself.
func (r *judge) ends() error {
	if math.Abs(r.cct-r.q.CCTUS) > small+1e-9*math.Max(r.cct, r.q.CCTUS) || less(r.cct, r.q.LowerBoundUS) {
		return fmt.Errorf("takes %v, states %v and %v", r.cct, r.q.CCTUS, r.q.LowerBoundUS)
	}
	return nil
}
