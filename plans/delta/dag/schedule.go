package dag

// Schedule is a run of a graph on a topology: when every task ran, and the rates of transfers over time. The simulator
// and the readers of solvers' solutions write it, and plans/delta/check checks it.
type Schedule struct {
	// Circuits is the topology; nil for the ideal network, where only NICs limit.
	Circuits Circuits
	Makespan float64 // the end of the last task, in microseconds
	Spans    []Span  // by task
}

// Span is when a task ran.
type Span struct {
	Start, End float64
	// Segments are the parts of a transfer with one rate each, in time order, within Start..End and not overlapping.
	// Between them the rate is 0. Nil for work, and if rates were not recorded.
	Segments []Segment
}

// Segment is a part of a transfer at a constant rate.
type Segment struct {
	Start, End float64
	Bytes      float64
}
