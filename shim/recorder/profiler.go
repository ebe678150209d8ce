package recorder

import (
	"lightpath/collectives/datatype"
	"lightpath/collectives/program"
	"lightpath/shim/comm"
	"lightpath/shim/log"
	"lightpath/shim/settings"
)

// Profiler is told when the operations of a communicator begin and end, by their numbers. Its methods are called one at
// a time, under the recorder's lock.
type Profiler interface {
	// Name returns the profiler's name and the version of its interface.
	Name() string
	// Begin reports a group of calls that begins: a collective, or the messages of a group.
	Begin(number uint64, all []Profiled)
	// Program reports the program that an operation will run, whose messages are the calls of the operation. It returns
	// whether the profiler wants to know what happens on planes.
	Program(number uint64, p *program.Program) bool
	// Transfer and Hold pass on what the [exec.Observer] of the operation is told. They ignore other numbers.
	Transfer(number uint64, id program.ID, in *program.Instruction, ended bool)
	Hold(number uint64, plane int, ended bool)
	// End reports the end of an operation. It ignores other numbers.
	End(number uint64)
	// Close ends the operations under way, and frees the profiler.
	Close()
}

// Profiled is a call in the words of NCCL's profilers.
type Profiled struct {
	Message   bool // else a collective
	Function  string
	Type      datatype.Type
	Op        datatype.Op
	Algorithm string
	Root      int // or peer
	Seq       uint64
	Count     uint64
	Bytes     int64
}

// ProfilerLoader opens profilers.
type ProfilerLoader interface {
	// Open loads the first of the files that exists, and makes the profiler in it ready for a rank.
	Open(files []string, o ProfilerOptions) (Profiler, error)
}

// ProfilerOptions describe a rank to a profiler.
type ProfilerOptions struct {
	Comm               uint64
	Name               string
	Rank, Ranks, Nodes int
	Log                func(warn bool, line string)
}

// profilers opens profilers; nil if the program cannot open any.
var profilers ProfilerLoader

// UseProfilers sets the loader of profilers, and returns the previous one. Call it before the first communicator is
// made.
func UseProfilers(l ProfilerLoader) (before ProfilerLoader) {
	before, profilers = profilers, l
	return before
}

// Profile gives a communicator that has been made the profiler of NCCL_PROFILER_PLUGIN. A profiler that cannot be used
// is a warning.
func Profile(c *comm.Core) {
	all := settings.PluginFiles("profiler", c.Cfg.Plugins.Profiler)
	if c.Cfg.Plugins.Profiler == "" || len(all) == 0 || profilers == nil {
		return
	}
	p, err := profilers.Open(all[0], ProfilerOptions{
		Comm: c.ID, Name: c.Name, Rank: c.Rank, Ranks: c.Ranks, Nodes: len(c.Hosts()), Log: c.Log.Plugin,
	})
	if err != nil {
		c.Log.Warn("NCCL_PROFILER_PLUGIN is not used: %v", err)
		return
	}
	c.Log.Info(log.Init, "profiler plugin %s", p.Name())
	f := Of(c)
	f.mu.Lock()
	f.profiler = p
	f.mu.Unlock()
	f.profiled.Store(true)
	c.AddHooks(comm.Hooks{Detach: f.closeProfiler, Closed: f.closeProfiler})
}

// closeProfiler closes the profiler when the communicator is destroyed, before the program can end: profilers write
// their files then. Idempotent.
func (f *Recorder) closeProfiler() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.profiler != nil {
		f.profiler.Close()
		f.profiler = nil
		f.profiled.Store(false)
	}
}

// Profiled reports whether a profiler must be told of every operation as it begins.
func (f *Recorder) Profiled() bool { return f.profiled.Load() }

// profile tells the profiler of an operation that has begun, with the messages of a group. The caller holds f.mu.
func (f *Recorder) profile(op *Operation, sends, recvs []program.Message) {
	var all []Profiled
	for way, list := range [2][]program.Message{sends, recvs} {
		for i := range list {
			all = append(all, Profiled{Message: true, Function: [2]string{"Send", "Recv"}[way], Root: list[i].Peer,
				Type: datatype.Int8, Count: uint64(list[i].Bytes), Bytes: list[i].Bytes})
		}
	}
	if s := &op.Shape; op.Messages == 0 && s.Type.Valid() {
		one := Profiled{Message: s.Kind.OneSided(), Function: s.Kind.String(), Type: s.Type, Op: s.Op, Root: int(s.Root),
			Seq: f.counts[s.Kind], Count: s.Count, Bytes: int64(s.Count) * int64(s.Type.Size()), Algorithm: "UNKNOWN"}
		if op.Entry != nil {
			one.Algorithm = op.Entry.Algorithm
		}
		all = append(all, one)
	}
	f.profiler.Begin(op.Number, all)
}

// observer passes on what a task does, until the profiler is closed.
type observer struct {
	f      *Recorder
	number uint64
}

func (o observer) Transfer(id program.ID, in *program.Instruction, ended bool) {
	o.f.mu.Lock()
	defer o.f.mu.Unlock()
	if p := o.f.profiler; p != nil {
		p.Transfer(o.number, id, in, ended)
	}
}

func (o observer) Hold(plane int, ended bool) {
	o.f.mu.Lock()
	defer o.f.mu.Unlock()
	if p := o.f.profiler; p != nil {
		p.Hold(o.number, plane, ended)
	}
}
