// Package chrometrace holds traces in the JSON object format of Chrome's trace events, which https://ui.perfetto.dev
// and chrome://tracing read. Source: "Trace Event Format", Google, 2016.
//
// Layer: a leaf that every layer may use. It must not import other packages of Lightpath, and it performs no I/O.
package chrometrace

// File is one trace. Its JSON encoding is the file.
type File struct {
	Unit   string  `json:"displayTimeUnit"`
	Events []Event `json:"traceEvents"`
}

// Event is one trace event. Phase X is a slice, M names a process or a lane. Times are microseconds.
type Event struct {
	Name  string         `json:"name"`
	Cat   string         `json:"cat,omitempty"`
	Phase string         `json:"ph"`
	TS    float64        `json:"ts"`
	Dur   *float64       `json:"dur,omitempty"` // only slices have one
	PID   int            `json:"pid"`
	TID   int            `json:"tid"`
	Args  map[string]any `json:"args,omitempty"`
}

// New returns an empty trace.
func New() *File { return &File{Unit: "ns", Events: []Event{}} }

// NameProcess names a process, which viewers show as a group of lanes.
func (f *File) NameProcess(pid int, name string) { f.name("process_name", pid, 0, name) }

// NameLane names a lane of a process.
func (f *File) NameLane(pid, lane int, name string) { f.name("thread_name", pid, lane, name) }

func (f *File) name(what string, pid, tid int, name string) {
	f.Events = append(f.Events, Event{Name: what, Phase: "M", PID: pid, TID: tid, Args: map[string]any{"name": name}})
}

// Slice adds a complete event to a lane. Start and duration are in microseconds. args may be nil.
func (f *File) Slice(pid, lane int, name, cat string, startUS, durationUS float64, args map[string]any) {
	f.Events = append(f.Events,
		Event{Name: name, Cat: cat, Phase: "X", TS: startUS, Dur: &durationUS, PID: pid, TID: lane, Args: args})
}
