package dag

import (
	"encoding/json"
	"strconv"

	"lightpath/internal/encode"
)

// Encode writes g as a job file, a line per pod, link, task and dependency. [Decode] reads the
// same graph back.
func (g *Graph) Encode() []byte {
	b := []byte(`{"version": ` + strconv.Itoa(Version) + `, "name": `)
	b = appendJSON(b, g.Name)
	b = append(b, `, "bandwidth_gbps": `...)
	b = appendJSON(b, g.Gbps)
	b = appendLines(b, "pods", len(g.Pods), func(b []byte, i int) []byte { return appendJSON(b, podJSON(g.Pods[i])) })
	b = appendLines(b, "links", len(g.Links), func(b []byte, i int) []byte { return appendJSON(b, linkJSON(g.Links[i])) })
	b = appendLines(b, "tasks", len(g.Tasks), func(b []byte, i int) []byte { return appendTask(b, &g.Tasks[i]) })
	b = appendLines(b, "deps", len(g.Deps), func(b []byte, i int) []byte {
		d := g.Deps[i]
		b = append(b, '[')
		b = strconv.AppendInt(b, int64(d.From), 10)
		b = append(b, ", "...)
		b = strconv.AppendInt(b, int64(d.To), 10)
		if d.Delay != 0 {
			b = append(b, ", "...)
			b = appendJSON(b, d.Delay)
		}
		return append(b, ']')
	})
	return append(b, "\n}\n"...)
}

type podJSON struct {
	Name   string   `json:"name"`
	Ports  int      `json:"ports"`
	Copies []string `json:"copies,omitempty"`
	Image  bool     `json:"image,omitempty"`
}

type linkJSON struct {
	Pods   [2]int      `json:"pods"`
	Ports  [2]int      `json:"ports"`
	Copies [][2]string `json:"copies,omitempty"`
}

func appendLines(b []byte, name string, n int, each func([]byte, int) []byte) []byte {
	return encode.List(append(b, ",\n \""+name+"\": "...), "\n  ", n, each)
}

func appendTask(b []byte, t *Task) []byte {
	if t.Transfer() {
		return appendJSON(b, struct {
			Name  string  `json:"name"`
			Kind  string  `json:"kind,omitempty"`
			From  int     `json:"from"`
			To    int     `json:"to"`
			Flows int     `json:"flows"`
			Bytes float64 `json:"bytes"`
			Src   []int   `json:"src,omitempty"`
			Dst   []int   `json:"dst,omitempty"`
		}{t.Name, t.Kind, t.From, t.To, t.Flows, t.Bytes, t.Src, t.Dst})
	}
	return appendJSON(b, struct {
		Name     string  `json:"name"`
		Kind     string  `json:"kind,omitempty"`
		Pod      int     `json:"pod"`
		Duration float64 `json:"duration_us"`
	}{t.Name, t.Kind, t.From, t.Duration})
}

// appendJSON appends v, whose numbers a valid graph keeps finite.
func appendJSON(b []byte, v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // only for a graph that is not valid
	}
	return append(b, text...)
}
