package delta

import (
	"encoding/json"
	"errors"
	"fmt"

	"lightpath/internal/decode"
	"lightpath/plans/delta/dag"
)

// Result is a topology of a job as a file says it.
type Result struct {
	Version   int     `json:"version"`
	Job       string  `json:"job"`
	Algorithm string  `json:"algorithm"`
	Sharing   Sharing `json:"sharing"`
	Seed      uint64  `json:"seed"`

	MakespanUS           float64 `json:"makespan_us"`
	IdealUS              float64 `json:"ideal_us"`         // on the non-blocking network
	CommunicationUS      float64 `json:"communication_us"` // of that, see [Ideal]
	LeastCommunicationUS float64 `json:"least_communication_us"`
	LowerBoundUS         float64 `json:"lower_bound_us"`
	NCT                  NCT     `json:"nct"`
	NCTOfLeast           NCT     `json:"nct_of_least"`
	PortsUsed            int     `json:"ports_used"`
	Ports                int     `json:"ports"`

	Circuits dag.Circuits `json:"circuits"` // by link of the job file
	Pairs    []Pair       `json:"pairs"`    // of the whole job
	Bounds   []int        `json:"bounds,omitempty"`

	Evaluations int     `json:"evaluations,omitempty"`
	Seconds     float64 `json:"seconds,omitempty"`
}

// NCTText returns the NCT, and the NCT by the other reference where several paths are critical.
func (r *Result) NCTText() string {
	text := "NCT " + r.NCT.String()
	switch {
	case r.NCT.String() == "none":
		text += " (the ideal iteration waits for no communication)"
	case r.NCTOfLeast.String() != r.NCT.String():
		text += fmt.Sprintf(" (%s by the critical path with the least communication)", r.NCTOfLeast)
	}
	return text
}

// Result states a plan.
func (p *Planner) Result(algorithm string, plan *Plan) *Result {
	r := &Result{
		Version: dag.Version, Job: p.g.Name, Algorithm: algorithm, Sharing: plan.Sharing,
		MakespanUS: plan.Makespan, LowerBoundUS: p.lower,
		IdealUS: p.ideal.Makespan, CommunicationUS: p.ideal.Communication,
		LeastCommunicationUS: p.ideal.LeastCommunication,
		NCT:                  p.ideal.NCT(plan.Makespan), NCTOfLeast: p.ideal.NCTOfLeast(plan.Makespan),
		Circuits: plan.Circuits, Pairs: pairs(p.g, plan.Circuits),
	}
	r.PortsUsed, r.Ports = p.g.TotalPorts(plan.Circuits)
	return r
}

// ErrResult is wrapped by errors about the file of a topology.
var ErrResult = errors.New("bad topology file")

// DecodeCircuits reads what a topology file says of the job: its circuits, which g must be able to have.
func DecodeCircuits(data []byte, g *dag.Graph) (dag.Circuits, error) {
	r := decode.NewReader(data)
	var c dag.Circuits
	job, version := g.Name, false
	err := r.Object(func(key string) (err error) {
		switch key {
		case "version":
			version = true
			_, err = r.Integer(dag.Version, dag.Version)
		case "job":
			job, err = r.Text()
		case "circuits":
			c, err = decode.List(r, len(g.Links), r.Between(0, dag.MaxPorts))
		default:
			err = r.Skip() // the other fields follow from these
		}
		return err
	})
	if err == nil {
		err = r.End()
	}
	switch {
	case err != nil:
	case !version:
		err = decode.At("version", "missing")
	case c == nil:
		err = decode.At("circuits", "missing")
	case job != g.Name:
		err = decode.At("job", "%q, and the job is %q", job, g.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrResult, err)
	}
	return c, g.CheckCircuits(c)
}

// Encode writes the file.
func (r *Result) Encode() []byte {
	text, _ := json.MarshalIndent(r, "", "  ") // its numbers are finite
	return append(text, '\n')
}
