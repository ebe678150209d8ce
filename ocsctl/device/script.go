package device

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"lightpath/internal/decode"
)

// Limits of a fault script. They keep the recursive YAML parser far from the end of its stack.
const (
	maxScript     = 64 << 10
	maxScriptRows = 1024
)

// Timed is a fault of a script.
type Timed struct {
	After time.Duration // since the script was started
	Fault Fault
}

// scriptRow is a row of the file. in and out are ports from 0; a missing port means any.
type scriptRow struct {
	AfterMS float64   `yaml:"after_ms"`
	Fault   FaultKind `yaml:"fault"`
	In      *int      `yaml:"in"`
	Out     *int      `yaml:"out"`
	Count   int       `yaml:"count"`
	Silent  bool      `yaml:"silent"`
	DelayMS float64   `yaml:"delay_ms"`
	LossDB  float64   `yaml:"loss_db"`
}

// maxScriptMS is a day in milliseconds. A later time is a mistake.
const maxScriptMS = 24 * 3600 * 1000

// ParseScript reads a fault script: a YAML or JSON list of rows like
//
//   - {after_ms: 500, fault: stuck-mirror, in: 3, silent: true}
//
// and returns them in order of time. Run checks whether the ports exist.
func ParseScript(data []byte) ([]Timed, error) {
	if len(data) > maxScript {
		return nil, fmt.Errorf("device: fault script has more than %d bytes", maxScript)
	}
	rows, err := scriptRows(data)
	if err != nil {
		return nil, fmt.Errorf("device: fault script: %w", err)
	}
	if len(rows) > maxScriptRows {
		return nil, fmt.Errorf("device: fault script has %d rows, at most %d", len(rows), maxScriptRows)
	}
	script := make([]Timed, len(rows))
	for i, r := range rows {
		for _, ms := range []float64{r.AfterMS, r.DelayMS} {
			if !(ms >= 0 && ms <= maxScriptMS) {
				return nil, fmt.Errorf("device: fault script[%d]: %v ms is outside 0..%d", i, ms, maxScriptMS)
			}
		}
		f := Fault{Kind: r.Fault, In: -1, Out: -1, Count: r.Count, Silent: r.Silent, Delay: milliseconds(r.DelayMS),
			LossDB: r.LossDB}
		if r.In != nil {
			f.In = *r.In
		}
		if r.Out != nil {
			f.Out = *r.Out
		}
		script[i] = Timed{milliseconds(r.AfterMS), f}
	}
	slices.SortStableFunc(script, func(a, b Timed) int { return int(a.After - b.After) })
	return script, nil
}

// scriptRows decodes the file. The YAML library panics on some malformed tags.
func scriptRows(data []byte) (rows []scriptRow, err error) {
	defer func() {
		if recover() != nil {
			rows, err = nil, errors.New("not YAML")
		}
	}()
	if deep(data) {
		return nil, errors.New("nested too deeply")
	}
	return rows, explain(yaml.UnmarshalWithOptions(data, &rows, yaml.Strict()))
}

// explain returns the first line of an error of the YAML library, without names of Go types.
func explain(err error) error {
	wrong, ok := errors.AsType[yaml.Error](err)
	if err == nil || !ok || wrong.GetToken() == nil {
		return err
	}
	what, _, _ := strings.Cut(wrong.GetMessage(), "\n")
	var want reflect.Type
	switch wrong := wrong.(type) {
	case *yaml.TypeError:
		want = wrong.DstType
	case *yaml.OverflowError:
		want = wrong.DstType
	}
	token := wrong.GetToken()
	if want != nil {
		what = fmt.Sprintf("%q: want %s", token.Value, decode.Want(want))
	}
	return fmt.Errorf("line %d column %d: %s", token.Position.Line, token.Position.Column, what)
}

// deep reports nesting that is deeper than a list of rows needs. The YAML library takes time quadratic in the depth.
func deep(data []byte) bool {
	const most = 8
	brackets := 0
	for line := range bytes.Lines(data) {
		markers, prefix := 0, true // "- - - " and "? ? ? " at the start of a line
		for _, c := range line {
			switch c {
			case '[', '{':
				brackets++
			case ']', '}':
				brackets = max(brackets-1, 0)
			}
			if prefix && (c == '-' || c == '?') {
				markers++
			}
			prefix = prefix && (c == '-' || c == '?' || c == ' ' || c == '\t')
			if brackets > most || markers > most {
				return true
			}
		}
	}
	return false
}

// Run injects the faults of a script at their times, relative to now. If one of them is impossible at this switch, it
// returns an error and starts nothing. Close ends the script.
func (d *Device) Run(script []Timed) error {
	d.lock()
	defer d.unlock()
	if d.manual {
		return fmt.Errorf("device: %w: a switch on the clock of a simulation runs no script", ErrFault)
	}
	for i, t := range script {
		if err := d.possible(t.Fault); err != nil {
			return fmt.Errorf("fault script[%d]: %w", i, err)
		}
	}
	for _, t := range script {
		d.faults.script = append(d.faults.script, time.AfterFunc(t.After, func() {
			d.lock()
			defer d.unlock()
			// It cannot fail: Run has checked it, and ports do not change.
			if err := d.inject(d.cfg.Now(), t.Fault); err != nil {
				d.emit(d.cfg.Now(), Event{Kind: Refused, In: t.Fault.In, Out: t.Fault.Out, Note: err.Error()})
			}
		}))
	}
	return nil
}

func milliseconds(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }
