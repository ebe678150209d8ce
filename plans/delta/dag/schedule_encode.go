package dag

import "strconv"

// Encode writes a run of g: a line per task, with the segments of transfers as [start, end, bytes].
func (s *Schedule) Encode(g *Graph) []byte {
	b := []byte(`{"version": ` + strconv.Itoa(Version) + `, "job": `)
	b = appendJSON(b, g.Name)
	b = append(b, `, "makespan_us": `...)
	b = appendJSON(b, s.Makespan)
	b = append(b, `, "circuits": `...)
	b = appendJSON(b, s.Circuits)
	b = appendLines(b, "tasks", len(s.Spans), func(b []byte, i int) []byte {
		span := &s.Spans[i]
		line := struct {
			Name     string       `json:"name"`
			Start    float64      `json:"start_us"`
			End      float64      `json:"end_us"`
			Segments [][3]float64 `json:"segments,omitempty"`
		}{Name: g.Tasks[i].Name, Start: span.Start, End: span.End}
		for _, seg := range span.Segments {
			line.Segments = append(line.Segments, [3]float64{seg.Start, seg.End, seg.Bytes})
		}
		return appendJSON(b, line)
	})
	return append(b, "\n}\n"...)
}
