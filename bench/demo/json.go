package demo

import "encoding/json"

// MarshalJSON returns a row of the demo's table: times in us, their names with the unit at the end.
// A trial without a plan has the reason and no times.
func (t *Trial) MarshalJSON() ([]byte, error) {
	e := t.Experiment
	row := struct {
		Experiment string    `json:"experiment"`
		Title      string    `json:"title"`
		Collective string    `json:"collective"`
		Algorithm  string    `json:"algorithm"`
		Bytes      int64     `json:"bytes"`
		Ranks      int       `json:"ranks"`
		Planes     int       `json:"planes"`
		RateGbps   float64   `json:"rate_gbps"`
		ReconfigUS float64   `json:"reconfig_us"`
		Planner    string    `json:"planner"`
		Infeasible string    `json:"infeasible,omitempty"`
		CCTUS      float64   `json:"cct_us,omitempty"`
		BoundUS    float64   `json:"lower_bound_us,omitempty"`
		ExpectedUS float64   `json:"expected_us,omitempty"`
		MeasuredUS float64   `json:"measured_us,omitempty"`
		TimesUS    []float64 `json:"times_us,omitempty"`
		Wrong      int64     `json:"wrong"`
	}{
		Experiment: e.Key, Title: e.Title, Collective: e.Collective.String(), Algorithm: e.Algorithm, Bytes: e.Bytes,
		Ranks: ranks, Planes: e.Scale.Planes, RateGbps: e.Scale.RateGbps, ReconfigUS: float64(e.Reconfig.Nanoseconds()) / 1e3,
		Planner: t.Planner, Wrong: t.Wrong,
	}
	if t.Infeasible != nil {
		row.Infeasible = reason(t.Infeasible)
		return json.Marshal(row)
	}
	row.CCTUS, row.BoundUS = t.Plan.CCTUS, t.Plan.LowerBoundUS
	row.ExpectedUS, row.MeasuredUS, row.TimesUS = t.expected(), t.MeasuredCCT, t.Times
	return json.Marshal(row)
}
