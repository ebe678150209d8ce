package dag

import (
	"errors"
	"fmt"
	"slices"
)

// ErrGraph is wrapped by every error about a graph. The message names field and position, as
// in "tasks[3].bytes: -5 is negative".
var ErrGraph = errors.New("bad job")

// ErrCircuits is wrapped by errors about a topology of a graph.
var ErrCircuits = errors.New("bad topology")

// Validate reports the first rule that g breaks: counts and indices in range, finite
// non-negative numbers, transfers between pods that a link joins, ports that suffice for one
// circuit on every link, and no cycle.
func (g *Graph) Validate() error {
	for _, rule := range []func() error{g.checkPods, g.checkLinks, g.checkTasks, g.checkDeps, g.checkPorts} {
		if err := rule(); err != nil {
			return fmt.Errorf("%w: %w", ErrGraph, err)
		}
	}
	if _, err := g.Order(); err != nil {
		return err
	}
	return nil
}

func (g *Graph) checkPods() error {
	switch {
	case !(g.Gbps >= 1e-9 && g.Gbps <= largest):
		return fmt.Errorf("bandwidth_gbps: %v is outside 1e-9..1e18", g.Gbps)
	case len(g.Pods) == 0:
		return errors.New("pods: there are none")
	case len(g.Pods) > maxPods:
		return fmt.Errorf("pods: %d, more than %d", len(g.Pods), maxPods)
	}
	names := make(map[string]int, len(g.Pods))
	for p := range g.Pods {
		pod := &g.Pods[p]
		if first, twice := names[pod.Name]; twice {
			return fmt.Errorf("pods[%d].name: %q is pods[%d]'s, too", p, pod.Name, first)
		}
		names[pod.Name] = p
		switch {
		case pod.Ports < 0 || pod.Ports > MaxPorts:
			return fmt.Errorf("pods[%d].ports: %d is outside 0..%d", p, pod.Ports, MaxPorts)
		case pod.Ports%2 != 0:
			return fmt.Errorf("pods[%d].ports: %d is odd, and ports come in pairs", p, pod.Ports)
		case pod.Image && pod.Ports != 0:
			return fmt.Errorf("pods[%d].ports: %d, but an image's ports are those of the pod that it is a copy of", p, pod.Ports)
		}
	}
	return nil
}

func (g *Graph) checkLinks() error {
	seen := make(map[[2]int]int, len(g.Links))
	for l, k := range g.Links {
		for side, p := range k.Pods {
			switch {
			case p < 0 || p >= len(g.Pods):
				return fmt.Errorf("links[%d].pods[%d]: there is no pod %d", l, side, p)
			case k.Ports[side] < 0 || k.Ports[side] > 2:
				return fmt.Errorf("links[%d].ports[%d]: %d is not 0, 1 or 2", l, side, k.Ports[side])
			case k.Ports[side] == 0 && !g.Pods[p].Image:
				return fmt.Errorf("links[%d].ports[%d]: 0, but pod %q is no image", l, side, g.Pods[p].Name)
			}
		}
		if k.Pods[0] == k.Pods[1] {
			return fmt.Errorf("links[%d].pods: pod %q twice", l, g.Pods[k.Pods[0]].Name)
		}
		pair := [2]int{min(k.Pods[0], k.Pods[1]), max(k.Pods[0], k.Pods[1])}
		if first, twice := seen[pair]; twice {
			return fmt.Errorf("links[%d].pods: links[%d] joins them already", l, first)
		}
		seen[pair] = l
	}
	return nil
}

func (g *Graph) checkTasks() error {
	if len(g.Tasks) > maxTasks {
		return fmt.Errorf("tasks: %d, more than %d", len(g.Tasks), maxTasks)
	}
	joined := make(map[[2]int]bool, 2*len(g.Links))
	for _, k := range g.Links {
		joined[k.Pods], joined[[2]int{k.Pods[1], k.Pods[0]}] = true, true
	}
	for i := range g.Tasks {
		if err := g.checkTask(&g.Tasks[i], joined); err != nil {
			return fmt.Errorf("tasks[%d]%w", i, err)
		}
	}
	return nil
}

// checkTask returns an error that begins with the field.
func (g *Graph) checkTask(t *Task, joined map[[2]int]bool) error {
	field := func(name, format string, args ...any) error {
		return fmt.Errorf(".%s: %s", name, fmt.Sprintf(format, args...))
	}
	switch {
	case !inRange(t.Duration):
		return field("duration_us", "%v is outside 0..1e18", t.Duration)
	case !inRange(t.Bytes):
		return field("bytes", "%v is outside 0..1e18", t.Bytes)
	case t.Flows < 0 || t.Flows > MaxPorts:
		return field("flows", "%d is outside 0..%d", t.Flows, MaxPorts)
	case t.From < 0 || t.From >= len(g.Pods):
		return field("from", "there is no pod %d", t.From)
	case t.To < 0 || t.To >= len(g.Pods):
		return field("to", "there is no pod %d", t.To)
	}
	if !t.Transfer() {
		switch {
		case t.Bytes != 0:
			return field("bytes", "%v without flows", t.Bytes)
		case t.From != t.To:
			return field("to", "work is done in one pod")
		case t.Src != nil || t.Dst != nil:
			return field("src", "work sends nothing")
		}
		return nil
	}
	switch {
	case t.Duration != 0:
		return field("duration_us", "%v, but a transfer takes what its circuits need", t.Duration)
	case t.From == t.To:
		return field("to", "a transfer within pod %q is work: its time does not depend on circuits", g.Pods[t.From].Name)
	case !joined[[2]int{t.From, t.To}]:
		return field("to", "no link joins pods %q and %q", g.Pods[t.From].Name, g.Pods[t.To].Name)
	}
	for _, side := range []struct {
		name string
		gpus []int
	}{{"src", t.Src}, {"dst", t.Dst}} {
		if side.gpus == nil {
			continue
		}
		if len(side.gpus) != t.Flows {
			return field(side.name, "%d GPUs for %d flows", len(side.gpus), t.Flows)
		}
		if twice, ok := repeated(side.gpus); ok {
			return field(side.name, "GPU %d appears twice", twice)
		}
		for k, gpu := range side.gpus {
			if gpu < 0 {
				return field(fmt.Sprintf("%s[%d]", side.name, k), "%d is negative", gpu)
			}
		}
	}
	return nil
}

func repeated(list []int) (int, bool) {
	if len(list) <= 16 {
		for i, v := range list {
			if slices.Contains(list[:i], v) {
				return v, true
			}
		}
		return 0, false
	}
	seen := make(map[int]bool, len(list))
	for _, v := range list {
		if seen[v] {
			return v, true
		}
		seen[v] = true
	}
	return 0, false
}

func (g *Graph) checkDeps() error {
	if len(g.Deps) > maxDeps {
		return fmt.Errorf("deps: %d, more than %d", len(g.Deps), maxDeps)
	}
	for i, d := range g.Deps {
		for _, end := range []int{d.From, d.To} {
			if end < 0 || end >= len(g.Tasks) {
				return fmt.Errorf("deps[%d]: there is no task %d", i, end)
			}
		}
		switch {
		case d.From == d.To:
			return fmt.Errorf("deps[%d]: task %d waits for itself", i, d.From)
		case !inRange(d.Delay):
			return fmt.Errorf("deps[%d].delay_us: %v is outside 0..1e18", i, d.Delay)
		}
	}
	return nil
}

// checkPorts refuses pods with more links than ports: every link needs a circuit.
func (g *Graph) checkPorts() error {
	one := slices.Repeat(Circuits{1}, len(g.Links))
	for p, need := range g.PortsUsed(one) {
		if pod := &g.Pods[p]; need > pod.Ports && !pod.Image {
			return fmt.Errorf("pods[%d].ports: pod %q has %d ports, and one circuit on each of its links takes %d", p, pod.Name,
				pod.Ports, need)
		}
	}
	return nil
}

// CheckCircuits reports why the graph cannot have the topology: circuits missing on a link, or
// a pod with more than its ports.
func (g *Graph) CheckCircuits(c Circuits) error {
	if len(c) != len(g.Links) {
		return fmt.Errorf("%w: %d circuit counts for %d links", ErrCircuits, len(c), len(g.Links))
	}
	for l, n := range c {
		if n < 1 || n > MaxPorts {
			k := g.Links[l].Pods
			return fmt.Errorf("%w: circuits[%d]: %d between pods %q and %q, which need one at least", ErrCircuits, l, n,
				g.Pods[k[0]].Name, g.Pods[k[1]].Name)
		}
	}
	for p, used := range g.PortsUsed(c) {
		if pod := &g.Pods[p]; used > pod.Ports && !pod.Image {
			return fmt.Errorf("%w: pod %q is over-subscribed: circuits take %d ports, it has %d", ErrCircuits, pod.Name, used,
				pod.Ports)
		}
	}
	return nil
}

// largest bounds every number of a file, so that sums of them stay finite.
const largest = 1e18

func inRange(v float64) bool { return v >= 0 && v <= largest }
