package planning

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"lightpath/plans"
)

// formFlag is the form in which problem and plan files are written.
type formFlag string

// compactFrom is the size of the expanded form, in bytes, from which a file is written in the compact one
// unless --form says otherwise.
const compactFrom = 16 << 20

func (f *formFlag) register(fl *pflag.FlagSet) {
	*f = "auto"
	fl.Var(f, "form", "form of the file: expanded, compact, or auto (compact if the expanded form is large)")
}

// Set implements pflag.Value.
func (f *formFlag) Set(text string) error {
	if text != "auto" && text != "expanded" && text != "compact" {
		return errors.New("want auto, expanded or compact")
	}
	*f = formFlag(text)
	return nil
}

func (f *formFlag) String() string { return string(*f) }

func (f *formFlag) Type() string { return "form" }

// compact reports whether a file is to be written in the compact form that states ports ports of maps in
// the expanded one.
func (f *formFlag) compact(ports int) bool {
	const portBytes = 5 // a number of up to four digits, and a comma
	if *f == "auto" && ports*portBytes >= compactFrom {
		fmt.Fprintf(os.Stderr, "written in the compact form; with --form expanded it takes about %d MB\n",
			ports*portBytes>>20)
		return true
	}
	return *f == "compact"
}

// encodePlan returns the text of a plan file.
func (f *formFlag) encodePlan(p *plans.Plan) ([]byte, error) {
	ports := 0
	for _, entries := range p.Planes {
		for i := range entries {
			ports += len(entries[i].To) + len(entries[i].Flows)
		}
	}
	if f.compact(ports) {
		return plans.EncodeCompactPlan(p)
	}
	return plans.EncodePlan(p)
}

// encodeProblem returns the text of a problem file.
func (f *formFlag) encodeProblem(p *plans.Problem) ([]byte, error) {
	ports := 0
	for i := range p.Steps {
		ports += len(p.Steps[i].To)
	}
	if f.compact(ports) {
		return plans.EncodeCompactProblem(p)
	}
	return plans.EncodeProblem(p)
}
