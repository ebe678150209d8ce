package dispatch

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"lightpath/collectives/datatype"
	"lightpath/collectives/program"
	"lightpath/plans"
	"lightpath/shim/calls"
	"lightpath/shim/comm"
	"lightpath/shim/log"
)

// traceProgram is a line of LIGHTPATH_TRACE: a program that was made. The last line of a shape is in force.
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

// Trace appends the program of a collective to LIGHTPATH_TRACE.
func (t *Table) Trace(c *comm.Core, s *calls.Shape, e *Entry) {
	line := traceProgram{
		Collective: calls.Kinds[s.Kind].Collective.String(), Type: s.Type.String(), Count: s.Count, InPlace: s.InPlace,
		Algorithm: e.Algorithm,
	}
	if e.Prog != nil {
		line.Operations = e.Prog.Instructions()
	}
	if e.Plan != nil {
		line.Planner, line.PredictedUS = e.Plan.Planner, e.Plan.CCTUS
	}
	t.traceLine(c, &line)
}

// TraceExchange appends the program of a round of sends and receives. Its collective is "alltoallv"; Count is the bytes
// that this rank sends and receives.
func (t *Table) TraceExchange(c *comm.Core, plan *plans.Plan, prog *program.Program) {
	line := traceProgram{
		Collective: "alltoallv", Type: datatype.Uint8.String(), Algorithm: "exchange",
		Planner: plan.Planner, PredictedUS: plan.CCTUS, Operations: prog.Instructions(),
	}
	for _, n := range prog.MsgBytes {
		line.Count += uint64(n)
	}
	t.traceLine(c, &line)
}

// traceLine appends a line. The first failure is logged and ends the trace.
func (t *Table) traceLine(c *comm.Core, line *traceProgram) {
	if c.Cfg.Trace == "" || t.traceFailed {
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
		t.traceFailed = true
		c.Log.Warn("LIGHTPATH_TRACE: %v", err)
	}
}
