package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"lightpath/internal/files"
	"lightpath/plans"
)

// maxInput bounds what is read from a file or a pipe, in bytes.
var maxInput int64 = 512 << 20

// readInput reads the file that a flag names, or standard input for "-".
func readInput(flag, path string) ([]byte, error) {
	if path == "" {
		return nil, fmt.Errorf("--%s is required (- for standard input)", flag)
	}
	data, err := readArgument(path)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, err)
	}
	return data, nil
}

// readArgument reads the file that an argument names, or standard input for "-".
func readArgument(path string) ([]byte, error) {
	if path == "-" {
		return files.ReadFrom(os.Stdin, maxInput)
	}
	return files.Read(path, maxInput)
}

// writeOutput writes a file as [files.Write] does; "" and "-" are standard output.
func writeOutput(flag, path string, data []byte) (err error) {
	if path == "" || path == "-" {
		_, err = os.Stdout.Write(data)
		return err
	}
	if err := files.Write(path, data, 0o644); err != nil {
		return fmt.Errorf("--%s: %w", flag, err)
	}
	return nil
}

// writeJSON writes v, indented, to path or, for "-", to standard output.
func writeJSON(flag, path string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return writeOutput(flag, path, append(text, '\n'))
}

func printJSON(v any) error { return writeJSON("json", "-", v) }

// show prints v as JSON, or calls text, which prints it for people.
func show(asJSON bool, v any, text func()) error {
	if asJSON {
		return printJSON(v)
	}
	text()
	return nil
}

// decodeInput reads and decodes the file that a flag names, or standard input for "-".
func decodeInput[T any](flag, path string, decode func([]byte) (T, error)) (v T, err error) {
	data, err := readInput(flag, path)
	if err != nil {
		return v, err
	}
	if v, err = decode(data); err != nil {
		return v, fmt.Errorf("%s: %w", inputName(path), err)
	}
	return v, nil
}

// inputName is what messages call the input at path.
func inputName(path string) string {
	if path == "-" {
		return "standard input"
	}
	return path
}

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
		return fmt.Errorf("%q is none of auto, expanded, compact", text)
	}
	*f = formFlag(text)
	return nil
}

func (f *formFlag) String() string { return string(*f) }
func (f *formFlag) Type() string   { return "form" }

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
