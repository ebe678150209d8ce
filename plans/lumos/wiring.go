package lumos

import (
	"encoding"
	"fmt"
)

// Wiring is a rule that joins ports of spines to OCSes.
type Wiring int

// Interleaved: the egress of port 2k and the ingress of port 2k+1 are on OCS 2k of the spine's group, the
// other two on OCS 2k+1; every symmetric topology fits.
// Uniform: both ends of port k are on OCS k; what fits depends on the topology.
// Doubled: both ends of ports 2k and 2k+1 are on OCS k, so half as many pods fit; every symmetric topology does.
const (
	Interleaved Wiring = iota
	Uniform
	Doubled
)

var wirings = []string{"interleaved", "uniform", "doubled"}

func (w Wiring) String() string {
	if w < 0 || int(w) >= len(wirings) {
		return fmt.Sprintf("Wiring(%d)", int(w))
	}
	return wirings[w]
}

// MarshalText writes the name of a wiring.
func (w Wiring) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (w *Wiring) UnmarshalText(text []byte) error {
	for i, name := range wirings {
		if string(text) == name {
			*w = Wiring(i)
			return nil
		}
	}
	return fmt.Errorf("%w: wiring: %q is not interleaved, uniform or doubled", ErrInput, text)
}

var _ encoding.TextUnmarshaler = (*Wiring)(nil)

// Cable is one fibre between a spine and the core. The spine's port sends into it if Egress is true, else receives from
// it.
type Cable struct {
	Pod, Spine, Port int
	Egress           bool
	// The h-th spines of all pods are on group h, so the group is Spine's number.
	OCS, OCSPort int
}

// Direction returns the name of a cable's direction, as seen from the spine.
func (c Cable) Direction() string {
	if c.Egress {
		return "egress"
	}
	return "ingress"
}

func (c Cable) String() string {
	return fmt.Sprintf("pod %d spine %d port %d %s - group %d OCS %d port %d", c.Pod, c.Spine, c.Port, c.Direction(),
		c.Spine, c.OCS, c.OCSPort)
}

// Cables returns the fibres between spines and core in the order of pod, spine, port and direction, egress first. The
// error says why the fabric cannot have this wiring.
func (f Fabric) Cables(w Wiring) ([]Cable, error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	if w == Doubled && 2*f.Pods > f.KOCS {
		return nil, fmt.Errorf("%w: pods: %d need 2 ports each on every OCS of doubled wiring, and k_ocs is %d", ErrInput,
			f.Pods, f.KOCS)
	}
	all := make([]Cable, 0, 2*f.Pods*f.ocses())
	for pod := range f.Pods {
		for h := range f.Spines() {
			for port := range f.KSpine {
				for _, egress := range []bool{true, false} {
					c := Cable{Pod: pod, Spine: h, Port: port, Egress: egress}
					c.OCS, c.OCSPort = w.end(c)
					all = append(all, c)
				}
			}
		}
	}
	return all, nil
}

// end is the OCS of a cable, and its port there.
func (w Wiring) end(c Cable) (ocs, port int) {
	switch {
	case w == Doubled:
		return c.Port / 2, 2*c.Pod + c.Port%2
	case w == Interleaved && !c.Egress:
		return c.Port ^ 1, c.Pod
	}
	return c.Port, c.Pod
}

// CheckCables returns the first error of a wiring as it was built: a fibre that ends nowhere, or an end that
// is used twice or not at all. For interleaved wiring, a pair of OCSes that is not mirrored is an error, too.
// The ports may differ from those of [Fabric.Cables].
func (f Fabric) CheckCables(w Wiring, cables []Cable) error {
	if err := f.Validate(); err != nil {
		return err
	}
	type end struct {
		egress   bool
		at, k, p int // spine of all pods, or group; port; or OCS and its port
	}
	spines, core := map[end]int{}, map[end]int{} // to the cable, counted from 1
	for n, c := range cables {
		switch {
		case c.Pod < 0 || c.Pod >= f.Pods, c.Spine < 0 || c.Spine >= f.Spines(), c.Port < 0 || c.Port >= f.KSpine:
			return fmt.Errorf("cable %d: no such port of a spine: %v", n+1, c)
		case c.OCS < 0 || c.OCS >= f.KSpine, c.OCSPort < 0 || c.OCSPort >= f.KOCS:
			return fmt.Errorf("cable %d: no such port of an OCS: %v", n+1, c)
		}
		here, there := end{c.Egress, c.Pod*f.Spines() + c.Spine, c.Port, 0}, end{c.Egress, c.Spine, c.OCS, c.OCSPort}
		if other := spines[here]; other > 0 {
			return fmt.Errorf("cable %d: cable %d is at the same end of the same port: %v", n+1, other, c)
		}
		if other := core[there]; other > 0 {
			return fmt.Errorf("cable %d: cable %d is at the same port of the same OCS: %v", n+1, other, c)
		}
		spines[here], core[there] = n+1, n+1
	}
	if want := 2 * f.Pods * f.ocses(); len(cables) != want {
		return fmt.Errorf("%d cables, want %d: two for each port of a spine", len(cables), want)
	}
	return f.checkReach(w, cables)
}

// checkReach checks that topologies fit the cables, whichever ports of the OCSes they use. All cables exist.
func (f Fabric) checkReach(w Wiring, cables []Cable) error {
	ports := make([][2]Cable, f.Pods*f.ocses()) // by port of all spines: egress, ingress
	index := func(pod, h, port int) int { return (pod*f.Spines()+h)*f.KSpine + port }
	for _, c := range cables {
		side := 1
		if c.Egress {
			side = 0
		}
		ports[index(c.Pod, c.Spine, c.Port)][side] = c
	}
	for _, ends := range ports {
		out, in := ends[0], ends[1]
		if want, _ := w.end(out); out.OCS != want {
			return fmt.Errorf("%v: want OCS %d", out, want)
		}
		if want, _ := w.end(in); in.OCS != want {
			return fmt.Errorf("%v: want OCS %d", in, want)
		}
		mate := ports[index(out.Pod, out.Spine, out.Port^1)]
		switch {
		case w == Interleaved && out.OCSPort != mate[1].OCSPort:
			return fmt.Errorf("%v: %v is at another port, so a pod's two ends on the OCS differ", out, mate[1])
		case w == Interleaved && out.OCSPort != in.OCSPort:
			return fmt.Errorf("%v: %v is at another port, so the OCSes of the pair are not mirrored", out, in)
		case w != Interleaved && out.OCSPort != in.OCSPort:
			return fmt.Errorf("%v: %v is at another port, so no circuit can be turned round", out, in)
		}
	}
	return nil
}
