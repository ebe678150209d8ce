package dag

import (
	"errors"
	"math"
	"strings"
	"testing"

	"lightpath/internal/assert"
)

// diamond is work, two transfers side by side, and work after both.
func diamond() *Graph {
	return &Graph{
		Name: "diamond", Gbps: 400,
		Pods:  []Pod{{Name: "a", Ports: 4}, {Name: "b", Ports: 2}, {Name: "c", Ports: 2}},
		Links: []Link{{Pods: [2]int{0, 1}, Ports: [2]int{1, 1}}, {Pods: [2]int{0, 2}, Ports: [2]int{1, 1}}},
		Tasks: []Task{
			{Name: "begin", Duration: 10},
			{Name: "ab", From: 0, To: 1, Flows: 2, Bytes: 1e6, Src: []int{0, 1}, Dst: []int{4, 5}},
			{Name: "ca", From: 2, To: 0, Flows: 1, Bytes: 1e6},
			{Name: "end", From: 1, To: 1, Duration: 5},
		},
		Deps: []Dep{{From: 0, To: 1}, {From: 0, To: 2, Delay: 3}, {From: 1, To: 3}, {From: 2, To: 3}},
	}
}

func TestValidate(t *testing.T) {
	if err := diamond().Validate(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		bend func(*Graph)
		says []string
	}{
		{"rate", func(g *Graph) { g.Gbps = 0 }, []string{"bandwidth_gbps", "0"}},
		{"rate not a number", func(g *Graph) { g.Gbps = math.NaN() }, []string{"bandwidth_gbps", "NaN"}},
		{"no pods", func(g *Graph) { g.Pods = nil }, []string{"pods"}},
		{"pod twice", func(g *Graph) { g.Pods[2].Name = "a" }, []string{"pods[2].name", "pods[0]"}},
		{"negative ports", func(g *Graph) { g.Pods[1].Ports = -2 }, []string{"pods[1].ports", "-2"}},
		{"odd ports", func(g *Graph) { g.Pods[1].Ports = 3 }, []string{"pods[1].ports", "odd"}},
		{"image with ports", func(g *Graph) { g.Pods[1].Image = true }, []string{"pods[1].ports", "image"}},
		{"over-subscribed pod", func(g *Graph) { g.Pods[0].Ports = 0 }, []string{"pods[0].ports", "takes 2"}},
		{"link to nowhere", func(g *Graph) { g.Links[1].Pods[1] = 3 }, []string{"links[1].pods[1]", "3"}},
		{"link to itself", func(g *Graph) { g.Links[1].Pods[1] = 0 }, []string{"links[1].pods", "twice"}},
		{"link twice", func(g *Graph) { g.Links[1].Pods = [2]int{1, 0} }, []string{"links[1].pods", "links[0]"}},
		{"circuit without ports", func(g *Graph) { g.Links[0].Ports[0] = 0 }, []string{"links[0].ports[0]", "no image"}},
		{"circuit of three ports", func(g *Graph) { g.Links[0].Ports[0] = 3 }, []string{"links[0].ports[0]", "3"}},
		{"negative duration", func(g *Graph) { g.Tasks[0].Duration = -1 }, []string{"tasks[0].duration_us", "-1"}},
		{"infinite duration", func(g *Graph) { g.Tasks[0].Duration = math.Inf(1) }, []string{"tasks[0].duration_us", "Inf"}},
		{"negative bytes", func(g *Graph) { g.Tasks[1].Bytes = -5 }, []string{"tasks[1].bytes", "-5"}},
		{"bytes of work", func(g *Graph) { g.Tasks[0].Bytes = 5 }, []string{"tasks[0].bytes", "without flows"}},
		{"work of two pods", func(g *Graph) { g.Tasks[0].To = 1 }, []string{"tasks[0].to"}},
		{"work with GPUs", func(g *Graph) { g.Tasks[0].Src = []int{1} }, []string{"tasks[0].src"}},
		{"negative flows", func(g *Graph) { g.Tasks[2].Flows = -1 }, []string{"tasks[2].flows", "-1"}},
		{"transfer with a duration", func(g *Graph) { g.Tasks[2].Duration = 1 }, []string{"tasks[2].duration_us"}},
		{"transfer from nowhere", func(g *Graph) { g.Tasks[2].From = 9 }, []string{"tasks[2].from", "9"}},
		{"transfer within a pod", func(g *Graph) { g.Tasks[2].From = 0 }, []string{"tasks[2].to", `"a"`}},
		{"transfer without a link", func(g *Graph) { g.Tasks[2].To = 1 }, []string{"tasks[2].to", `"c"`, `"b"`}},
		{"GPUs and flows", func(g *Graph) { g.Tasks[1].Src = []int{0} }, []string{"tasks[1].src", "1 GPUs for 2 flows"}},
		{"a GPU twice", func(g *Graph) { g.Tasks[1].Dst = []int{5, 5} }, []string{"tasks[1].dst", "5"}},
		{"negative GPU", func(g *Graph) { g.Tasks[1].Dst = []int{5, -1} }, []string{"tasks[1].dst[1]", "-1"}},
		{"dependency on nothing", func(g *Graph) { g.Deps[1].To = 4 }, []string{"deps[1]", "4"}},
		{"dependency on itself", func(g *Graph) { g.Deps[1].To = 0 }, []string{"deps[1]", "itself"}},
		{"negative delay", func(g *Graph) { g.Deps[1].Delay = -3 }, []string{"deps[1].delay_us", "-3"}},
		{"cycle", func(g *Graph) { g.Deps = append(g.Deps, Dep{From: 3, To: 1}) },
			[]string{"cycle", `tasks[1] "ab"`, `tasks[3] "end"`, "2 tasks"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := diamond()
			c.bend(g)
			err := g.Validate()
			if !errors.Is(err, ErrGraph) {
				t.Fatalf("got %v", err)
			}
			assert.Contains(t, err.Error(), c.says...)
		})
	}
}

func TestCheckCircuits(t *testing.T) {
	g := diamond()
	for _, c := range []struct {
		circuits Circuits
		says     string
	}{
		{Circuits{2, 2}, ""},
		{Circuits{1, 1}, ""},
		{Circuits{1}, "1 circuit counts for 2 links"},
		{Circuits{2, 0}, `circuits[1]: 0 between pods "a" and "c"`},
		{Circuits{3, 1}, `pod "b" is over-subscribed: circuits take 3 ports, it has 2`},
	} {
		err := g.CheckCircuits(c.circuits)
		switch {
		case c.says == "" && err != nil:
			t.Errorf("%v: %v", c.circuits, err)
		case c.says != "" && (!errors.Is(err, ErrCircuits) || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%v: got %v", c.circuits, err)
		}
	}
}

func TestOrder(t *testing.T) {
	g := diamond()
	order, err := g.Order()
	if err != nil || len(order) != len(g.Tasks) {
		t.Fatal(order, err)
	}
	place := make([]int, len(order))
	for i, task := range order {
		place[task] = i
	}
	for _, d := range g.Deps {
		if place[d.From] >= place[d.To] {
			t.Errorf("order %v has task %d before task %d", order, d.To, d.From)
		}
	}
}
