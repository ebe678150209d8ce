package cluster

import (
	"bufio"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ErrTrace is wrapped by every error about a trace; it names the line.
var ErrTrace = errors.New("bad trace")

// Trace is the content of a trace file.
type Trace struct {
	Jobs []Job // by arrival, and of equals in the order of the file
	// Skipped counts lines without a job to simulate: no GPUs, never started, or no time at all.
	Skipped int
}

// The columns that are read of a trace of the Helios data set (SenseTime, SC'21). Other columns are ignored.
const (
	colJob      = "job_id"
	colGPUs     = "gpu_num"
	colState    = "state"
	colSubmit   = "submit_time"
	colDuration = "duration"
)

var (
	columns = []string{colJob, colGPUs, colState, colSubmit, colDuration}
	states  = []string{"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "SUSPENDED"}
)

const timeLayout = "2006-01-02 15:04:05"

// ReadTrace reads a trace in the form of Helios: a header, then a job a line, every line ended by
// a line break. All states are jobs, since all held their GPUs. A job with more than gpus GPUs is an error, and so is
// an invalid value. Errors name the line.
func ReadTrace(from io.Reader, gpus int) (*Trace, error) {
	tail := &tailReader{from: from}
	r := csv.NewReader(bufio.NewReader(tail))
	r.ReuseRecord, r.TrimLeadingSpace = true, true
	header, err := r.Read()
	if err != nil {
		return nil, readError(err, "the header")
	}
	at, err := findColumns(header)
	if err != nil {
		return nil, err
	}
	t := &Trace{}
	var first time.Time
	seen := map[string]int{}
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, readError(err, "a job")
		}
		line, _ := r.FieldPos(0)
		field := func(name string) string { return strings.TrimSpace(row[at[name]]) }
		job, submitted, err := parseJob(field, gpus)
		if err != nil {
			return nil, fmt.Errorf("%w: line %d: %w", ErrTrace, line, err)
		}
		if before, twice := seen[field(colJob)]; twice {
			return nil, fmt.Errorf("%w: line %d: %s %s is on line %d already", ErrTrace, line, colJob, field(colJob), before)
		}
		if len(seen) == maxJobs {
			return nil, fmt.Errorf("%w: line %d: more than %d jobs", ErrTrace, line, maxJobs)
		}
		seen[strings.Clone(field(colJob))] = line
		if job.GPUs == 0 || job.Duration == 0 {
			t.Skipped++
			continue
		}
		if len(t.Jobs) == 0 || submitted.Before(first) {
			first = submitted
		}
		job.Arrival = float64(submitted.Unix())
		t.Jobs = append(t.Jobs, job)
	}
	if tail.last != '\n' {
		return nil, fmt.Errorf("%w: line %d: no line break at the end: the trace is cut short", ErrTrace, tail.lines+1)
	}
	for i := range t.Jobs {
		t.Jobs[i].Arrival -= float64(first.Unix())
	}
	slices.SortStableFunc(t.Jobs, func(a, b Job) int { return cmp.Compare(a.Arrival, b.Arrival) })
	return t, nil
}

func findColumns(header []string) (map[string]int, error) {
	at := map[string]int{}
	for i, name := range header {
		name = strings.TrimSpace(strings.TrimPrefix(name, "\ufeff"))
		if _, twice := at[name]; twice {
			return nil, fmt.Errorf("%w: line 1: column %q is there twice", ErrTrace, name)
		}
		at[name] = i
	}
	for _, name := range columns {
		if _, ok := at[name]; !ok {
			return nil, fmt.Errorf("%w: line 1: no column %q", ErrTrace, name)
		}
	}
	return at, nil
}

// parseJob reads a line. Jobs without GPUs or time are returned as they are.
func parseJob(field func(string) string, gpus int) (j Job, submitted time.Time, err error) {
	if j.Name = strings.Clone(field(colJob)); j.Name == "" {
		return j, submitted, fmt.Errorf("no %s", colJob)
	}
	if j.GPUs, err = strconv.Atoi(field(colGPUs)); err != nil || j.GPUs < 0 {
		return j, submitted, fmt.Errorf("%s: %q is no number of GPUs", colGPUs, field(colGPUs))
	}
	if j.GPUs > gpus {
		return j, submitted, fmt.Errorf("%s: the job has %d GPUs, the cluster %d", colGPUs, j.GPUs, gpus)
	}
	if !slices.Contains(states, field(colState)) {
		return j, submitted, fmt.Errorf("%s: %q is none of %s", colState, field(colState), strings.Join(states, ", "))
	}
	if submitted, err = time.Parse(timeLayout, field(colSubmit)); err != nil {
		return j, submitted, fmt.Errorf("%s: %q is no time such as %q", colSubmit, field(colSubmit), timeLayout)
	}
	switch d := field(colDuration); d {
	case "", "None": // never started
	default:
		seconds, err := strconv.ParseInt(d, 10, 64)
		if err != nil {
			return j, submitted, fmt.Errorf("%s: %q is no number of seconds", colDuration, d)
		}
		if seconds < 0 {
			return j, submitted, fmt.Errorf("%s: %d is negative", colDuration, seconds)
		}
		if seconds > maxSeconds {
			return j, submitted, fmt.Errorf("%s: %d is more than %d", colDuration, seconds, int64(maxSeconds))
		}
		j.Duration = float64(seconds)
	}
	return j, submitted, nil
}

// maxSeconds is a hundred years.
const maxSeconds = 100 * 365 * 86400

// readError returns an error of the CSV reader with its line.
func readError(err error, what string) error {
	var parse *csv.ParseError
	switch {
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%w: line 1: %s is missing", ErrTrace, what)
	case !errors.As(err, &parse):
		return fmt.Errorf("%w: %w", ErrTrace, err)
	case errors.Is(err, csv.ErrFieldCount):
		return fmt.Errorf("%w: line %d: not as many fields as the header has; is the trace cut short?", ErrTrace,
			parse.StartLine)
	}
	return fmt.Errorf("%w: line %d: %w", ErrTrace, parse.Line, parse.Err)
}

// tailReader counts lines, and remembers whether the last one is complete.
type tailReader struct {
	from  io.Reader
	last  byte
	lines int
}

func (t *tailReader) Read(p []byte) (int, error) {
	n, err := t.from.Read(p)
	if n > 0 {
		t.last = p[n-1]
		t.lines += strings.Count(string(p[:n]), "\n")
	}
	return n, err
}
