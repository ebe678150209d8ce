package bench

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// traceVar is the variable by which the runtime writes down each program that it makes.
const traceVar = "LIGHTPATH_TRACE"

// traceSizes returns the sizes of the files that a value of the variable names. The runtime replaces %h, %p and %r by
// host, process and rank.
func traceSizes(value string) map[string]int64 {
	sizes, files := map[string]int64{}, []string{value}
	if strings.Contains(value, "%") {
		files, _ = filepath.Glob(strings.NewReplacer("%h", "*", "%p", "*", "%r", "*").Replace(value)) // bad: no files
	}
	for _, file := range files {
		if info, err := os.Stat(file); err == nil {
			sizes[file] = info.Size()
		}
	}
	return sizes
}

// Program is a line of a trace: a program that the runtime made for a shape of calls.
type Program struct {
	Event       string  `json:"event"`
	Rank        int     `json:"rank"`
	Collective  string  `json:"collective"`
	Type        string  `json:"type"`
	Count       int64   `json:"count"` // elements per block, as in the call
	InPlace     bool    `json:"in_place"`
	Algorithm   string  `json:"algorithm"`
	Planner     string  `json:"planner"`
	PredictedUS float64 `json:"predicted_us"`
}

// ReadTrace returns the programs of a trace after its first begin bytes. A file that does not exist has none. Lines
// that are no programs are skipped.
func ReadTrace(path string, begin int64) ([]Program, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := f.Seek(begin, io.SeekStart); err != nil {
		return nil, err
	}
	var all []Program
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var p Program
		if json.Unmarshal(lines.Bytes(), &p) == nil && p.Event == "program" {
			all = append(all, p)
		}
	}
	return all, lines.Err()
}

// describes reports whether r was timed with the program p. An in-place call may share the program of the
// out-of-place call of the same shape.
func (p *Program) describes(r *Result) bool {
	return r.Collective == p.Collective && r.Type == p.Type && r.Count == p.Count &&
		(r.InPlace == p.InPlace || r.Algorithm == "")
}

// annotate adds algorithm, planner and prediction to each result. The timed iterations ran the last program made for
// their shape.
func annotate(results []Result, programs []Program) {
	for i := range programs {
		p := &programs[i]
		for k := range results {
			if r := &results[k]; p.describes(r) {
				r.Algorithm, r.Planner, r.PredictedUS = p.Algorithm, p.Planner, p.PredictedUS
			}
		}
	}
}
