package shim

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"lightpath/collectives/datatype"
	"lightpath/collectives/program"
	"lightpath/plans"
	"lightpath/shim/log"
)

// traceProgram is a line of LIGHTPATH_TRACE: one program made. The last one of a shape is
// the one in force.
type traceProgram struct {
	Event       string  `json:"event"` // "program"
	Comm        string  `json:"comm"`
	Rank        int     `json:"rank"`
	Collective  string  `json:"collective"`
	Type        string  `json:"type"`
	Count       uint64  `json:"count"` // elements per block, as in the call
	InPlace     bool    `json:"in_place"`
	Algorithm   string  `json:"algorithm"`
	Planner     string  `json:"planner"` // "" on packet planes
	PredictedUS float64 `json:"predicted_us"`
	Operations  int     `json:"operations"` // 0 through shared memory, where there is no program
}

// traceEntry records a program of a collective.
func traceEntry(c *Comm, s *shape, e *entry) {
	line := traceProgram{
		Collective: kinds[s.kind].collective.String(), Type: s.typ.String(), Count: s.count, InPlace: s.inPlace,
		Algorithm: e.algorithm,
	}
	if e.prog != nil {
		line.Operations = len(e.prog.Ops)
	}
	if e.plan != nil {
		line.Planner, line.PredictedUS = e.plan.Planner, e.plan.CCTUS
	}
	traceLine(c, &line)
}

// traceExchange records one of grouped sends and receives on circuits, under the name of the
// matrix that they are; Count is what this rank sends and receives.
func traceExchange(c *Comm, plan *plans.Plan, p *program.Program) {
	line := traceProgram{
		Collective: "alltoallv", Type: datatype.Uint8.String(), Algorithm: "exchange",
		Planner: plan.Planner, PredictedUS: plan.CCTUS, Operations: len(p.Ops),
	}
	for _, n := range p.MsgBytes {
		line.Count += uint64(n)
	}
	traceLine(c, &line)
}

// traceLine appends a line. Tracing that fails is reported once and ends.
func traceLine(c *Comm, line *traceProgram) {
	if c.Cfg.Trace == "" || hostOf(c).traceFailed {
		return
	}
	line.Event, line.Comm, line.Rank = "program", fmt.Sprintf("%x", c.ID), c.Rank
	text, err := json.Marshal(line)
	if err == nil {
		// One write of a whole line: ranks of several processes may share the file.
		path := strings.ReplaceAll(log.ExpandPath(c.Cfg.Trace, c.Log.Host, c.Log.PID), "%r", fmt.Sprint(c.Rank))
		var f *os.File
		if f, err = os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err == nil {
			_, err = f.Write(append(text, '\n'))
			_ = f.Close()
		}
	}
	if err != nil {
		hostOf(c).traceFailed = true
		c.Log.Warn("LIGHTPATH_TRACE: %v", err)
	}
}
