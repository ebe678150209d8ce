package aicb

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"lightpath/plans/delta/train"
)

// row is an operation of a stage.
type row struct {
	line             int
	collective       string // without CommType.
	group            string // without CommGroup.
	size             int
	bytes            float64
	stage, direction string
	elapsedUS        float64 // 0: not measured
}

// csvColumns are the columns that are read; there are more.
var csvColumns = []string{"comm_type", "comm_group", "comm_group_size", "msg_size", "stage", "additional",
	"_elapsed_time"}

// CSV reads the table form: for each stage of the pipeline a line that begins with [, and then rows. The
// first epoch_end ends the setup. Rows up to the second one are the first iteration, which CSV uses. The
// numbers of sends and receives between stages must agree.
func CSV(text string, o Options) (*train.Config, error) {
	stages, err := csvStages(text)
	if err != nil {
		return nil, err
	}
	tp, dp, ep := 1, 0, 1
	for _, rows := range stages {
		for _, r := range rows {
			switch r.group {
			case "tp_group":
				tp = max(tp, r.size)
			case "dp_group":
				dp = max(dp, r.size)
			case "ep_group":
				ep = max(ep, r.size)
			}
		}
	}
	gpus, err := o.gpus(tp * dp * len(stages))
	if err != nil {
		return nil, fmt.Errorf("groups of tp %d, dp %d, %d stages: %w", tp, dp, len(stages), err)
	}
	if gpus == 0 {
		gpus = tp * len(stages)
	}
	batches, boundary, err := csvPipeline(stages)
	if err != nil {
		return nil, err
	}
	c, err := o.config(tp, len(stages), ep, gpus, batches)
	if err != nil {
		return nil, err
	}
	c.BoundaryBytes = boundary * float64(c.TP) * float64(c.Lanes())
	for s, rows := range stages {
		if c.Stages[s], err = csvCosts(rows, c, o); err != nil {
			return nil, fmt.Errorf("%w: stage %d: %w", ErrWorkload, s, err)
		}
	}
	return o.finish(c)
}

// csvStages returns the rows of the first iteration of every stage.
func csvStages(text string) ([][]row, error) {
	var stages [][]row
	var columns map[string]int
	epochs, sections, number := 0, false, 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		switch {
		case line == "":
			continue
		case line[0] == '[':
			if sections && epochs < 2 {
				return nil, fmt.Errorf("%w: line %d: stage %d is cut short: %d of 2 ends of epochs", ErrWorkload, number,
					len(stages)-1, epochs)
			}
			stages, columns, epochs, sections = append(stages, nil), nil, 0, true
			continue
		case columns == nil:
			var err error
			if columns, err = csvHeader(line); err != nil {
				return nil, fmt.Errorf("%w: line %d: %w", ErrWorkload, number, err)
			}
			if !sections { // a file of one stage has no line for it
				stages, sections = append(stages, nil), true
			}
			continue
		}
		r, err := csvRow(line, columns)
		if err != nil {
			return nil, fmt.Errorf("%w: line %d: %w", ErrWorkload, number, err)
		}
		if r.line = number; r.collective == "epoch_end" {
			epochs++
		} else if epochs < 2 {
			stages[len(stages)-1] = append(stages[len(stages)-1], r)
		}
	}
	if !sections || epochs < 2 {
		return nil, fmt.Errorf("%w: line %d: cut short: %d of 2 ends of epochs", ErrWorkload, number+1, epochs)
	}
	return stages, nil
}

func csvHeader(line string) (map[string]int, error) {
	columns := make(map[string]int)
	for i, name := range strings.Split(line, ",") {
		columns[name] = i
	}
	for _, name := range csvColumns {
		if _, ok := columns[name]; !ok {
			return nil, fmt.Errorf("column %s is missing", name)
		}
	}
	return columns, nil
}

// csvRow reads one row. A computation's size is a list of shapes with commas in it, so its columns count
// from the end.
func csvRow(line string, columns map[string]int) (row, error) {
	f := strings.Split(line, ",")
	if more := len(f) - len(columns); more > 0 && strings.HasPrefix(f[0], "CommType.computation") {
		at := columns["msg_size"]
		f = slices.Concat(f[:at], []string{"0"}, f[at+1+more:])
	}
	if len(f) != len(columns) {
		return row{}, fmt.Errorf("%d fields, want %d", len(f), len(columns))
	}
	get := func(name string) string { return strings.TrimSpace(f[columns[name]]) }
	number := func(name string) (float64, error) {
		text := get(name)
		if text == "" || text == "None" {
			return 0, nil
		}
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || !(v >= 0 && v < maxNumber) {
			return 0, fmt.Errorf("%s: %q is no number, negative or too large", name, text)
		}
		return v, nil
	}
	r := row{stage: get("stage"), direction: get("additional")}
	var ok bool
	if r.collective, ok = strings.CutPrefix(get("comm_type"), "CommType."); !ok {
		return row{}, fmt.Errorf("comm_type: %q is none", get("comm_type"))
	}
	r.group, _ = strings.CutPrefix(get("comm_group"), "CommGroup.")
	var size float64
	var err error
	for _, x := range []struct {
		name string
		to   *float64
	}{{"comm_group_size", &size}, {"msg_size", &r.bytes}, {"_elapsed_time", &r.elapsedUS}} {
		if x.name == "msg_size" && r.collective == "computation" {
			continue
		}
		if *x.to, err = number(x.name); err != nil {
			return row{}, err
		}
	}
	r.elapsedUS *= 1000
	if r.size = int(size); size > 1<<20 {
		return row{}, fmt.Errorf("comm_group_size: %v is too large", size)
	}
	return r, nil
}

// csvPipeline counts the sends between stages. It returns the number of micro-batches and the bytes that a GPU sends.
// It refuses stages whose numbers differ.
func csvPipeline(stages [][]row) (batches int, bytes float64, err error) {
	counts := make([]map[string]int, len(stages))
	for s, rows := range stages {
		counts[s] = make(map[string]int)
		for _, r := range rows {
			if r.collective != "isend" && r.collective != "irecv" {
				continue
			}
			counts[s][r.direction]++
			if bytes == 0 {
				bytes = r.bytes
			}
			if r.bytes != bytes {
				return 0, 0, fmt.Errorf("%w: line %d: msg_size: %g, others have %g", ErrWorkload, r.line, r.bytes, bytes)
			}
		}
	}
	if len(stages) == 1 {
		return 1, 0, nil
	}
	batches = counts[0]["send_next"]
	for s := range len(stages) - 1 {
		for _, pair := range []struct {
			from, to int
			a, b     string
		}{{s, s + 1, "send_next", "recv_prev"}, {s + 1, s, "send_prev", "recv_next"}} {
			sent, received := counts[pair.from][pair.a], counts[pair.to][pair.b]
			if sent != batches || received != batches {
				return 0, 0, fmt.Errorf("%w: stage %d has %d rows %s, stage %d has %d %s, and stage 0 sends %d micro-batches",
					ErrWorkload,
					pair.from, sent, pair.a, pair.to, received, pair.b, batches)
			}
		}
	}
	return batches, bytes, nil
}

// csvCosts adds up the rows of a stage.
func csvCosts(rows []row, c *train.Config, o Options) (train.Costs, error) {
	var k train.Costs
	computed := 0.0
	for _, r := range rows {
		us := r.elapsedUS
		switch {
		case strings.HasPrefix(r.stage, "init"), r.collective == "isend", r.collective == "irecv":
			continue
		case r.collective == "computation":
			computed += us
		case r.group == "tp_group", r.group == "ep_group":
			part, ok := ring(r.collective, r.size)
			if !ok {
				return k, fmt.Errorf("line %d: comm_type: %q is no collective", r.line, r.collective)
			}
			if us == 0 {
				us = part * r.bytes / (c.ScaleUpGBs * 1e3)
			}
		case r.group == "dp_group", r.group == "ep_dp_group":
			if !gradients(&k, c, r.collective, r.bytes, r.group == "dp_group") {
				return k, fmt.Errorf("line %d: comm_type: %q is no collective", r.line, r.collective)
			}
			continue
		default:
			continue
		}
		switch each := us / float64(c.MicroBatches); {
		case strings.HasPrefix(r.stage, "forward"):
			k.Forward += each
		case strings.HasPrefix(r.stage, "backward"):
			k.Backward += each
		default:
			k.Gather += us
		}
	}
	if computed > 0 {
		return k, nil
	}
	if !(o.ForwardUS > 0) || !(o.BackwardUS > 0) {
		return k, errors.New("no row has a computation's time, and no times are given")
	}
	k.Forward, k.Backward = k.Forward+o.ForwardUS, k.Backward+o.BackwardUS
	return k, nil
}
