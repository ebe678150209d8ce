package dag

import (
	"fmt"

	"lightpath/internal/decode"
)

// Decode reads a job file. It is strict. It refuses unknown or repeated fields, values of another type, and everything
// that [Graph.Validate] refuses. The error wraps [ErrGraph] and names the field or the line.
func Decode(data []byte) (*Graph, error) {
	d := &decoder{Reader: decode.NewReader(data)}
	g := &Graph{}
	err := d.graph(g)
	if err == nil {
		err = d.End()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrGraph, err)
	}
	if err := g.Validate(); err != nil {
		return nil, err
	}
	return g, nil
}

type decoder struct {
	*decode.Reader
	task       Task // that is being read
	taskFields decode.Fields
}

func (d *decoder) graph(g *Graph) error {
	t, version := &d.task, 0
	d.taskFields = decode.Fields{
		"name": &t.Name, "kind": &t.Kind, "duration_us": &t.Duration, "bytes": &t.Bytes,
		"pod": func() (err error) {
			t.From, err = d.Integer(0, maxPods-1)
			t.To = t.From
			return err
		},
		"from":  decode.Into(&t.From, d.Between(0, maxPods-1)),
		"to":    decode.Into(&t.To, d.Between(0, maxPods-1)),
		"flows": decode.Into(&t.Flows, d.Between(1, MaxPorts)),
		"src":   decode.ListInto(d.Reader, &t.Src, MaxPorts, d.Between(0, 1<<30)),
		"dst":   decode.ListInto(d.Reader, &t.Dst, MaxPorts, d.Between(0, 1<<30)),
	}
	have, err := d.Fields(decode.Fields{
		"version":        decode.Into(&version, d.Between(Version, Version)),
		"name":           &g.Name,
		"bandwidth_gbps": &g.Gbps,
		"pods":           decode.ListInto(d.Reader, &g.Pods, maxPods, d.pod),
		"links":          decode.ListInto(d.Reader, &g.Links, maxPods*maxPods, d.link),
		"tasks":          decode.ListInto(d.Reader, &g.Tasks, maxTasks, d.readTask),
		"deps":           decode.ListInto(d.Reader, &g.Deps, maxDeps, d.dep),
	})
	if err != nil {
		return err
	}
	return d.Need(have, "version", "bandwidth_gbps", "pods", "links", "tasks", "deps")
}

func (d *decoder) pod() (p Pod, err error) {
	have, err := d.Fields(decode.Fields{
		"name": &p.Name, "ports": decode.Into(&p.Ports, d.Between(0, MaxPorts)),
		"copies": decode.ListInto(d.Reader, &p.Copies, maxPods, d.Text), "image": &p.Image,
	})
	if err == nil && !p.Image {
		err = d.Need(have, "ports")
	}
	return p, err
}

func (d *decoder) link() (l Link, err error) {
	l.Ports = [2]int{1, 1}
	pair := func(high int) func() ([2]int, error) {
		return func() ([2]int, error) { return decode.Pair(d.Reader, d.Between(0, high)) }
	}
	names := func() ([2]string, error) { return decode.Pair(d.Reader, d.Text) }
	have, err := d.Fields(decode.Fields{
		"pods": decode.Into(&l.Pods, pair(maxPods-1)), "ports": decode.Into(&l.Ports, pair(2)),
		"copies": decode.ListInto(d.Reader, &l.Copies, maxPods, names),
	})
	if err == nil {
		err = d.Need(have, "pods")
	}
	return l, err
}

// readTask reads work, {"pod": p, "duration_us": t}, or a transfer, {"from": p, "to": q, "flows": n,
// "bytes": b}.
func (d *decoder) readTask() (Task, error) {
	d.task = Task{}
	have, err := d.Fields(d.taskFields)
	t := d.task
	if err != nil {
		return t, err
	}
	need, other := []string{"pod", "duration_us"}, []string{"from", "to", "flows", "bytes", "src", "dst"}
	if have["flows"] || have["from"] || have["bytes"] {
		need, other = other[:4], need
	}
	for _, key := range need {
		if !have[key] {
			return t, d.Errorf("%s: missing: work has a pod and duration_us, a transfer from, to, flows and bytes", key)
		}
	}
	for _, key := range other {
		if have[key] {
			return t, d.Errorf("%s: a task is work or a transfer, not both", key)
		}
	}
	return t, nil
}

// dep reads [from, to] or [from, to, delay in microseconds].
func (d *decoder) dep() (dep Dep, err error) {
	n := 0
	err = d.List(3, func(i int) (err error) {
		n++
		switch i {
		case 0:
			dep.From, err = d.Integer(0, maxTasks-1)
		case 1:
			dep.To, err = d.Integer(0, maxTasks-1)
		case 2:
			dep.Delay, err = d.Number()
		}
		return err
	})
	if err == nil && n < 2 {
		err = d.Errorf("want [from, to] or [from, to, delay]")
	}
	return dep, err
}
