package cli

import (
	"bytes"
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"lightpath/plans"
	"lightpath/plans/render"
)

// Pictures are the flags of commands that show a plan, and draw its timeline. "-" is standard output.
type Pictures struct {
	svg, html, trace string
	asJSON           bool
}

// Register adds the flags.
func (p *Pictures) Register(fl *pflag.FlagSet) {
	fl.StringVar(&p.svg, "svg", "", "write the timeline as SVG")
	fl.StringVar(&p.html, "html", "", "write the timeline and its entries as a page; drag in the timeline to zoom")
	fl.StringVar(&p.trace, "trace", "", "write a trace for https://ui.perfetto.dev or chrome://tracing, a lane per plane")
	fl.BoolVar(&p.asJSON, "json", false, "print the plan as JSON")
}

// Show draws the pictures that the flags ask for. With --json it then prints what encode returns. Otherwise it calls
// text, which prints the plan for people, unless a picture goes to standard output.
func (p *Pictures) Show(timeline *plans.Plan, o render.Options, encode func() ([]byte, error), text func()) error {
	if err := p.draw(timeline, o); err != nil {
		return err
	}
	if p.asJSON {
		encoded, err := encode()
		if err != nil {
			return err
		}
		return WriteOutput("json", "-", encoded)
	}
	if p.svg != "-" && p.html != "-" && p.trace != "-" {
		text()
	}
	return nil
}

// draw writes the pictures.
func (p *Pictures) draw(plan *plans.Plan, o render.Options) error {
	for _, d := range []struct {
		flag, path string
		draw       func(io.Writer, *plans.Plan, render.Options) error
	}{{"svg", p.svg, render.Timeline}, {"html", p.html, render.HTML}} {
		if d.path == "" {
			continue
		}
		var b bytes.Buffer
		if err := d.draw(&b, plan, o); err != nil {
			return fmt.Errorf("--%s: %w", d.flag, err)
		}
		if err := WriteOutput(d.flag, d.path, b.Bytes()); err != nil {
			return err
		}
	}
	if p.trace == "" {
		return nil
	}
	return WriteJSON("trace", p.trace, render.Trace(plan, o))
}
