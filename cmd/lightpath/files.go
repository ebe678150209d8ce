package main

import (
	"encoding/json"
	"fmt"
	"os"

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

func readProblem(flag, path string) (*plans.Problem, error) {
	data, err := readInput(flag, path)
	if err != nil {
		return nil, err
	}
	p, err := plans.DecodeProblem(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", inputName(path), err)
	}
	return p, nil
}

func readPlan(flag, path string) (*plans.Plan, error) {
	data, err := readInput(flag, path)
	if err != nil {
		return nil, err
	}
	p, err := plans.DecodePlan(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", inputName(path), err)
	}
	return p, nil
}

// inputName is what messages call the input at path.
func inputName(path string) string {
	if path == "-" {
		return "standard input"
	}
	return path
}
