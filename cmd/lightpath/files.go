package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"lightpath/plans"
)

// maxInput bounds what is read from a file or a pipe.
const maxInput = 1 << 30

// readInput reads a file, or standard input for "-".
func readInput(flag, path string) ([]byte, error) {
	if path == "" {
		return nil, fmt.Errorf("--%s is required (- for standard input)", flag)
	}
	r := io.Reader(os.Stdin)
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", flag, err)
		}
		defer f.Close()
		r = f
	}
	data, err := io.ReadAll(io.LimitReader(r, maxInput+1))
	if err == nil && len(data) > maxInput {
		err = fmt.Errorf("larger than %d bytes", maxInput)
	}
	if err != nil {
		return nil, fmt.Errorf("--%s %s: %w", flag, path, err)
	}
	return data, nil
}

// writeOutput writes a file whole or not at all; "" and "-" are standard output.
func writeOutput(flag, path string, data []byte) error {
	if path == "" || path == "-" {
		_, err := os.Stdout.Write(data)
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".lightpath-*")
	if err != nil {
		return fmt.Errorf("--%s: %w", flag, err)
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(data)
	if err = errors.Join(err, tmp.Chmod(0o644), tmp.Close()); err != nil {
		return fmt.Errorf("--%s: %w", flag, err)
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return fmt.Errorf("--%s: %w", flag, err)
	}
	return nil
}

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
