package workload

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// ErrMatrix reports that a text is no matrix. Errors that wrap it name the line and the reason.
var ErrMatrix = errors.New("workload: not a demand matrix")

// maxPorts bounds a matrix that is read.
const maxPorts = 4096

// Read reads a square matrix of numbers that are not negative. Each line is a row, with blanks or commas between
// entries. Read skips empty lines and lines that begin with #. The matrices published with studies of reconfigurable
// networks have this form. An error wraps [ErrMatrix] and names the line, or is that of r.
func Read(r io.Reader) ([][]float64, error) {
	in := bufio.NewScanner(r)
	in.Buffer(make([]byte, 0, 64<<10), 64*maxPorts)
	var d [][]float64
	line := 0
	for in.Scan() {
		line++
		text := strings.TrimSpace(in.Text())
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		row, err := parseRow(text)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%w: line %d: %w", ErrMatrix, line, err)
		case len(d) > 0 && len(row) != len(d[0]):
			return nil, fmt.Errorf("%w: line %d: %d entries where the first row has %d", ErrMatrix, line, len(row), len(d[0]))
		case len(row) > maxPorts:
			return nil, fmt.Errorf("%w: line %d: more than %d entries", ErrMatrix, line, maxPorts)
		case len(d) == len(row):
			return nil, fmt.Errorf("%w: line %d: row %d of a matrix with %d columns", ErrMatrix, line, len(d)+1, len(row))
		}
		d = append(d, row)
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("%w: line %d: %w", ErrMatrix, line+1, err)
	}
	if len(d) == 0 {
		return nil, fmt.Errorf("%w: empty", ErrMatrix)
	}
	if len(d) != len(d[0]) {
		return nil, fmt.Errorf("%w: line %d: %d rows of %d columns", ErrMatrix, line, len(d), len(d[0]))
	}
	return d, nil
}

func parseRow(text string) ([]float64, error) {
	fields := strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == '\t' || r == ',' })
	row := make([]float64, len(fields))
	for i, f := range fields {
		v, err := strconv.ParseFloat(f, 64)
		switch {
		case err != nil:
			return nil, fmt.Errorf("entry %d: %q is not a number", i+1, f)
		case math.IsNaN(v) || math.IsInf(v, 0):
			return nil, fmt.Errorf("entry %d: %s is not finite", i+1, f)
		case v < 0:
			return nil, fmt.Errorf("entry %d: %s is negative", i+1, f)
		}
		row[i] = v
	}
	return row, nil
}
