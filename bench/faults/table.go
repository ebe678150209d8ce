package faults

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Write prints results for people.
func Write(w io.Writer, results []Result) error {
	var b strings.Builder
	for i := range results {
		r := &results[i]
		fmt.Fprintf(&b, "%s: %s\n  %s; %s\n", r.Name, r.Fault, r.verdict(), r.losses())
		for _, seen := range [][2]string{{"injected", r.Injected}, {"ranks", r.Ranks}, {"operator", r.Operator},
			{"PROBLEM", r.Problem}} {
			if seen[1] != "" {
				fmt.Fprintf(&b, "  %s: %s\n", seen[0], seen[1])
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteMarkdown prints results as a table of a document.
func WriteMarkdown(w io.Writer, results []Result) error {
	var b strings.Builder
	b.WriteString("| fault | what ranks see | what an operator sees | outcome | frames lost | of these silently | " +
		"wrong elements |\n|---|---|---|---|---|---|---|\n")
	for i := range results {
		r := &results[i]
		outcome := r.verdict()
		if r.Problem != "" {
			outcome = "**" + r.Problem + "**"
		}
		fmt.Fprintf(&b, "| %s: %s | %s | %s | %s | %d | %d | %d |\n",
			r.Name, cell(r.Fault), cell(r.Ranks), cell(r.Operator), cell(outcome), r.Lost, r.Silent, r.Wrong)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// verdict returns how and when the job ended.
func (r *Result) verdict() string {
	what := "error on every rank"
	if r.GoesOn {
		what = "results again"
	}
	return fmt.Sprintf("%s after %v (at most %v)", what, round(r.Took), r.Bound)
}

func (r *Result) losses() string {
	return fmt.Sprintf("%d operations done, %d frames lost, %d of them silently, %d wrong elements", r.Operations, r.Lost,
		r.Silent, r.Wrong)
}

// round keeps what a machine can measure.
func round(d time.Duration) time.Duration {
	switch {
	case d > 10*time.Second:
		return d.Round(time.Second)
	case d > 100*time.Millisecond:
		return d.Round(10 * time.Millisecond)
	default:
		return d.Round(100 * time.Microsecond)
	}
}

// cell makes text fit for a cell of a Markdown table.
func cell(text string) string {
	if text == "" {
		return "-"
	}
	return strings.NewReplacer("|", `\|`, "\n", " ", "<", "&lt;").Replace(text)
}
