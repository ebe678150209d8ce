package demo

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"

	"lightpath/internal/files"
	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/render"
)

//go:embed report.html
var reportText string

var reportTemplate = template.Must(template.New("report").
	Funcs(template.FuncMap{"zoomScript": render.ZoomScript}).Parse(reportText))

// reportRow is one trial as the page shows it.
type reportRow struct {
	Planner, Infeasible        string
	Predicted, Expected        string // ms
	Measured, Error            string // ms, percent
	Against, Reconfigs, Frames string
	Wrong                      int64
	Timeline                   template.HTML
}

type reportSection struct {
	Key, Title, Facts string
	Rows              []reportRow
}

// writeReport writes the page. Each experiment has a table, and each plan a timeline, predicted over measured.
func writeReport(path string, trials []*Trial) error {
	var sections []reportSection
	var last *Experiment
	for _, t := range trials {
		if t.Experiment != last {
			last = t.Experiment
			sections = append(sections, reportSection{Key: last.Key, Title: last.Title,
				Facts: fmt.Sprintf("%d ranks, %s", ranks, last.facts())})
		}
		row, err := t.row(trials)
		if err != nil {
			return err
		}
		s := &sections[len(sections)-1]
		s.Rows = append(s.Rows, row)
	}
	var page bytes.Buffer
	if err := reportTemplate.Execute(&page, sections); err != nil {
		return err
	}
	return files.Write(path, page.Bytes(), 0o644)
}

func (t *Trial) row(trials []*Trial) (reportRow, error) {
	row := reportRow{Planner: t.Planner, Wrong: t.Wrong}
	if t.Infeasible != nil {
		row.Infeasible = reason(t.Infeasible)
		return row, nil
	}
	row.Predicted = fmt.Sprintf("%.2f", t.Plan.CCTUS/1e3)
	row.Expected = fmt.Sprintf("%.2f", t.expected()/1e3)
	row.Measured = fmt.Sprintf("%.2f", t.MeasuredCCT/1e3)
	row.Error = fmt.Sprintf("%+.2f", 100*t.Error())
	row.Against = overPerstep(t, trials)
	row.Reconfigs = fmt.Sprintf("%.1f", t.reconfigurations())
	row.Frames = fmt.Sprint(t.Audit.Frames)
	var svg bytes.Buffer
	o := render.Options{
		Title:   fmt.Sprintf("(%s) %s: predicted over measured", t.Experiment.Key, t.Planner),
		Problem: t.Problem, Measured: t.entries(), MeasuredCCTUS: t.MeasuredCCT, Zoom: true,
	}
	if t.Independent {
		o.WithoutBarrierUS = t.expected()
	}
	err := render.Timeline(&svg, t.Plan, o)
	row.Timeline = template.HTML(svg.String()) // its text is numbers and the names of experiments
	return row, err
}

// entries returns the measured intervals as plan entries, which the renderer draws.
func (t *Trial) entries() [][]plans.Entry {
	out := make([][]plans.Entry, len(t.Measured))
	for plane, list := range t.Measured {
		for _, in := range list {
			e := plans.Entry{Kind: plans.Transmit, Step: in.Step, StartUS: in.StartUS, EndUS: in.EndUS}
			if in.Step < 0 {
				e.Kind, e.Step, e.To = plans.Reconfigure, 0, circuit.Permutation(in.To)
			}
			out[plane] = append(out[plane], e)
		}
	}
	return out
}
