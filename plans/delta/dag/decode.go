package dag

import (
	"fmt"

	"lightpath/internal/decode"
)

// Decode reads a job file. It is strict: an unknown or repeated field, a value of another type, and everything that
// [Graph.Validate] refuses is an error that wraps [ErrGraph] and names the field or the line.
func Decode(data []byte) (*Graph, error) {
	d := &decoder{decode.NewReader(data)}
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

type decoder struct{ *decode.Reader }

func (d *decoder) graph(g *Graph) error {
	have := make(map[string]bool)
	err := d.Object(func(key string) (err error) {
		have[key] = true
		switch key {
		case "version":
			_, err = d.Integer(Version, Version)
		case "name":
			g.Name, err = d.Text()
		case "bandwidth_gbps":
			g.Gbps, err = d.Number()
		case "pods":
			g.Pods, err = decode.List(d.Reader, MaxPods, d.pod)
		case "links":
			g.Links, err = decode.List(d.Reader, MaxPods*MaxPods, d.link)
		case "tasks":
			g.Tasks, err = decode.List(d.Reader, MaxTasks, d.task)
		case "deps":
			g.Deps, err = decode.List(d.Reader, MaxDeps, d.dep)
		default:
			return d.Errorf("unknown field")
		}
		return err
	})
	if err != nil {
		return err
	}
	return d.Need(have, "version", "bandwidth_gbps", "pods", "links", "tasks", "deps")
}

func (d *decoder) pod() (p Pod, err error) {
	ports := false
	err = d.Object(func(key string) (err error) {
		switch key {
		case "name":
			p.Name, err = d.Text()
		case "ports":
			ports = true
			p.Ports, err = d.Integer(0, MaxPorts)
		case "copies":
			p.Copies, err = decode.List(d.Reader, MaxPods, d.Text)
		case "image":
			p.Image, err = d.Boolean()
		default:
			return d.Errorf("unknown field")
		}
		return err
	})
	if err == nil && !ports && !p.Image {
		err = d.Errorf("ports: missing")
	}
	return p, err
}

func (d *decoder) link() (l Link, err error) {
	l.Ports = [2]int{1, 1}
	pods := false
	err = d.Object(func(key string) (err error) {
		switch key {
		case "pods":
			pods = true
			l.Pods, err = decode.Pair(d.Reader, d.Between(0, MaxPods-1))
		case "ports":
			l.Ports, err = decode.Pair(d.Reader, d.Between(0, 2))
		case "copies":
			l.Copies, err = decode.List(d.Reader, MaxPods, func() ([2]string, error) { return decode.Pair(d.Reader, d.Text) })
		default:
			return d.Errorf("unknown field")
		}
		return err
	})
	if err == nil && !pods {
		err = d.Errorf("pods: missing")
	}
	return l, err
}

// task reads work, {"pod": p, "duration_us": t}, or a transfer, {"from": p, "to": q, "flows": n,
// "bytes": b}.
func (d *decoder) task() (t Task, err error) {
	have := make(map[string]bool)
	err = d.Object(func(key string) (err error) {
		have[key] = true
		switch key {
		case "name":
			t.Name, err = d.Text()
		case "kind":
			t.Kind, err = d.Text()
		case "pod":
			t.From, err = d.Integer(0, MaxPods-1)
			t.To = t.From
		case "duration_us":
			t.Duration, err = d.Number()
		case "from":
			t.From, err = d.Integer(0, MaxPods-1)
		case "to":
			t.To, err = d.Integer(0, MaxPods-1)
		case "flows":
			t.Flows, err = d.Integer(1, MaxPorts)
		case "bytes":
			t.Bytes, err = d.Number()
		case "src":
			t.Src, err = d.gpus()
		case "dst":
			t.Dst, err = d.gpus()
		default:
			return d.Errorf("unknown field")
		}
		return err
	})
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

func (d *decoder) gpus() ([]int, error) { return decode.List(d.Reader, MaxPorts, d.Between(0, 1<<30)) }

// dep reads [from, to] or [from, to, delay in microseconds].
func (d *decoder) dep() (dep Dep, err error) {
	n := 0
	err = d.List(3, func(i int) (err error) {
		n++
		switch i {
		case 0:
			dep.From, err = d.Integer(0, MaxTasks-1)
		case 1:
			dep.To, err = d.Integer(0, MaxTasks-1)
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
