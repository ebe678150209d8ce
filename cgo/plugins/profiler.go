package plugins

// #include <stdlib.h>
// #include "profiler_calls.h"
import "C"

import (
	"fmt"
	"sync"
	"sync/atomic"

	"lightpath/collectives/datatype"
	"lightpath/internal/monotonic"
	"lightpath/shim/recorder"
)

// Versions of the interface that Profilers can load.
const (
	oldestProfiler = C.PROFILER_OLDEST
	newestProfiler = C.PROFILER_NEWEST
)

// Profilers is [recorder.ProfilerLoader] over dlopen. A library stays loaded.
type Profilers struct{}

var _ recorder.ProfilerLoader = Profilers{}

// Open implements [recorder.ProfilerLoader].
func (Profilers) Open(files []string, o recorder.ProfilerOptions) (recorder.Profiler, error) {
	found, file, err := find(files, "ncclProfiler_v", oldestProfiler, newestProfiler)
	if err != nil {
		return nil, err
	}
	p := &profiler{
		p: C.struct_lpp{plugin: (*C.struct_profiler_plugin)(found.at), version: found.version, rank: C.int(o.Rank),
			comm: C.uint64_t(o.Comm), name: intern(o.Name)},
		operations: map[uint64]*operation{},
	}
	p.mask = maskOf(p.p.plugin)
	p.log = listen(o.Log)
	r := C.lpp_init(p.p, p.mask, C.int(o.Nodes), C.int(o.Ranks))
	if r.rc != 0 {
		p.log.end()
		return nil, fmt.Errorf("%w: %s: init returned %d", ErrLoad, file, int(r.rc))
	}
	p.p.context = r.context
	return p, nil
}

// profiler is a [recorder.Profiler].
type profiler struct {
	p          C.struct_lpp
	mask       *C.int
	log        *sink
	operations map[uint64]*operation // by number
}

// operation has the events of an operation under way, with the mask of its begin.
type operation struct {
	p      C.struct_lpp
	group  C.struct_lpp_group
	calls  []C.struct_lpp_events
	planes planeEvents
}

func (p *profiler) Name() string {
	return fmt.Sprintf("%s (v%d)", C.GoString(p.p.plugin.name), int(p.p.version))
}

func (p *profiler) Begin(number uint64, all []recorder.Profiled) {
	op := &operation{p: p.p}
	op.p.mask = C.int(atomic.LoadInt32((*int32)(p.mask)))
	op.group = C.lpp_open(op.p)
	now := C.uint64_t(monotonic.Now())
	for i := range all {
		c := &all[i]
		call := C.struct_lpp_call{
			message: C._Bool(c.Message), root: C.int(c.Root),
			seq: C.uint64_t(c.Seq), count: C.uint64_t(c.Count), bytes: C.uint64_t(c.Bytes),
			function: intern(c.Function), _type: intern(typeNames[c.Type]), algorithm: intern(c.Algorithm),
			function_number: functionNumber(c.Function), type_number: C.int(c.Type), op: C.int(c.Op),
		}
		op.calls = append(op.calls, C.lpp_begin(op.p, op.group, call, now))
	}
	p.operations[number] = op
}

func (p *profiler) End(number uint64) {
	op := p.operations[number]
	if op == nil {
		return
	}
	delete(p.operations, number)
	op.planes.end(op.p)
	now := C.uint64_t(monotonic.Now())
	for _, events := range op.calls {
		C.lpp_end(op.p, events, now)
	}
	C.lpp_close(op.p, op.group)
}

func (p *profiler) Close() {
	for number := range p.operations {
		p.End(number)
	}
	C.lpp_finalize(p.p)
	p.log.end()
}

// typeNames are NCCL's names of the types.
var typeNames = [datatype.NumTypes]string{"ncclInt8", "ncclUint8", "ncclInt32", "ncclUint32", "ncclInt64", "ncclUint64",
	"ncclFloat16", "ncclFloat32", "ncclFloat64", "ncclBfloat16", "ncclFloat8e4m3", "ncclFloat8e5m2"}

// functionNumbers are those of version 1. Other functions are exchanges there.
var functionNumbers = map[string]C.int{
	"Broadcast": 0, "Reduce": 1, "AllGather": 2, "ReduceScatter": 3, "AllReduce": 4, "Send": 6, "Recv": 7,
}

func functionNumber(name string) C.int {
	if n, ok := functionNumbers[name]; ok {
		return n
	}
	return 5 // SendRecv
}

// masks are the masks of plugins. A plugin has one for all communicators, as in NCCL, and may write to it at any time,
// so they stay.
var masks struct {
	sync.Mutex
	of map[*C.struct_profiler_plugin]*C.int
}

// maskOf returns the mask of a plugin, 0 at first.
func maskOf(plugin *C.struct_profiler_plugin) *C.int {
	masks.Lock()
	defer masks.Unlock()
	at := masks.of[plugin]
	if at == nil {
		if masks.of == nil {
			masks.of = map[*C.struct_profiler_plugin]*C.int{}
		}
		at = (*C.int)(C.calloc(1, C.sizeof_int))
		masks.of[plugin] = at
	}
	return at
}

// interned are C's copies of strings. Plugins keep pointers to them, so they stay.
var interned struct {
	sync.Mutex
	strings map[string]*C.char
}

// intern returns C's copy of s.
func intern(s string) *C.char {
	interned.Lock()
	defer interned.Unlock()
	at := interned.strings[s]
	if at == nil {
		if interned.strings == nil {
			interned.strings = map[string]*C.char{}
		}
		at = C.CString(s)
		interned.strings[s] = at
	}
	return at
}
