package delta

import (
	"encoding/json"
	"errors"
	"fmt"

	"lightpath/plans/delta/dag"
	"lightpath/plans/internal/jsonread"
)

// Result is a topology of a job as a file says it.
type Result struct {
	Version   int     `json:"version"`
	Job       string  `json:"job"`
	Algorithm string  `json:"algorithm"`
	Sharing   Sharing `json:"sharing"`
	Seed      uint64  `json:"seed"`

	MakespanUS      float64 `json:"makespan_us"`
	IdealUS         float64 `json:"ideal_us"`         // on the non-blocking network
	CommunicationUS float64 `json:"communication_us"` // of that, on its critical path
	LowerBoundUS    float64 `json:"lower_bound_us"`
	NCT             float64 `json:"nct"`
	PortsUsed       int     `json:"ports_used"`
	Ports           int     `json:"ports"`

	Circuits dag.Circuits `json:"circuits"` // by link of the job file
	Pairs    []Pair       `json:"pairs"`    // of the whole job
	Bounds   []int        `json:"bounds,omitempty"`

	Evaluations int     `json:"evaluations,omitempty"`
	Seconds     float64 `json:"seconds,omitempty"`
}

// Result states a plan.
func (p *Planner) Result(algorithm string, plan *Plan) *Result {
	r := &Result{
		Version: dag.Version, Job: p.g.Name, Algorithm: algorithm, Sharing: plan.Sharing,
		MakespanUS: plan.Makespan, LowerBoundUS: p.lower, NCT: p.NCT(plan.Makespan),
		Circuits: plan.Circuits, Pairs: Pairs(p.g, plan.Circuits),
	}
	r.IdealUS, r.CommunicationUS = p.Ideal()
	r.PortsUsed, r.Ports = p.g.TotalPorts(plan.Circuits)
	return r
}

// ErrResult is wrapped by errors about the file of a topology.
var ErrResult = errors.New("bad topology file")

// DecodeCircuits reads what a topology file says of the job: its circuits, which g must be able to have.
func DecodeCircuits(data []byte, g *dag.Graph) (dag.Circuits, error) {
	r := jsonread.New(data)
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
			c = dag.Circuits{}
			err = r.List(len(g.Links), func(int) error {
				n, err := r.Integer(0, dag.MaxPorts)
				c = append(c, n)
				return err
			})
		default:
			err = r.Skip() // what a result says besides follows from these
		}
		return err
	})
	if err == nil {
		err = r.End()
	}
	switch {
	case err != nil:
	case !version:
		err = jsonread.At("version", "missing")
	case c == nil:
		err = jsonread.At("circuits", "missing")
	case job != g.Name:
		err = jsonread.At("job", "%q, and the job is %q", job, g.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrResult, err)
	}
	return c, g.CheckCircuits(c)
}

// Encode writes the file.
func (r *Result) Encode() ([]byte, error) {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil { // an infinite NCT
		return nil, fmt.Errorf("%w: %w", ErrResult, err)
	}
	return append(text, '\n'), nil
}
