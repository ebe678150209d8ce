package check

import (
	"errors"
	"fmt"
	"strings"
)

// ErrInfeasible is wrapped by every error of [Check] about a plan, an [*Infeasible].
var ErrInfeasible = errors.New("plan is infeasible")

// maxViolations bounds the violations that are reported of one plan.
const maxViolations = 20

// Infeasible lists the rules that a plan breaks, in the order of planes and entries.
type Infeasible struct {
	Violations []string // one line each, naming the plane and entry, as in "planes[1][3]: ..."
	More       bool     // there were more than are listed
}

// Error gives one line for each violation.
func (e *Infeasible) Error() string {
	text := ErrInfeasible.Error() + ": " + strings.Join(e.Violations, "\n")
	if e.More {
		text += "\n..."
	}
	return text
}

// Unwrap returns [ErrInfeasible].
func (e *Infeasible) Unwrap() error { return ErrInfeasible }

// Addf adds a violation.
func (e *Infeasible) Addf(format string, args ...any) {
	if len(e.Violations) == maxViolations {
		e.More = true
		return
	}
	e.Violations = append(e.Violations, fmt.Sprintf(format, args...))
}

// Err returns e, or nil if there are no violations.
func (e *Infeasible) Err() error {
	if len(e.Violations) == 0 {
		return nil
	}
	return e
}
