package plugins

// #include <stdlib.h>
// #include "profiler_calls.h"
import "C"

import (
	"fmt"
	"sync"

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
	p.log = listen(o.Log)
	r := C.lpp_init(p.p, C.int(o.Nodes), C.int(o.Ranks))
	if r.rc != 0 {
		p.log.end()
		return nil, fmt.Errorf("%w: %s: init returned %d", ErrLoad, file, int(r.rc))
	}
	if p.p.mask, p.p.context = r.mask, r.context; r.mask == 0 {
		p.Close()
		return nil, fmt.Errorf("%w: %s: it asks for no events", ErrLoad, file)
	}
	return p, nil
}

// profiler is a [recorder.Profiler].
type profiler struct {
	p          C.struct_lpp
	log        *sink
	operations map[uint64]*operation // by number
}

// operation has the events of an operation under way.
type operation struct {
	group C.struct_lpp_group
	calls []C.struct_lpp_events
}

func (p *profiler) Name() string {
	return fmt.Sprintf("%s (v%d)", C.GoString(p.p.plugin.name), int(p.p.version))
}

func (p *profiler) Begin(number uint64, all []recorder.Profiled) {
	op := &operation{group: C.lpp_open(p.p)}
	now := C.uint64_t(monotonic.Now())
	for i := range all {
		c := &all[i]
		call := C.struct_lpp_call{
			root: C.int(c.Root), seq: C.uint64_t(c.Seq), count: C.uint64_t(c.Count), bytes: C.uint64_t(c.Bytes),
			function: intern(c.Function), _type: intern(c.Type), algorithm: intern(c.Algorithm),
		}
		if c.Message {
			call.message = 1
		}
		op.calls = append(op.calls, C.lpp_begin(p.p, op.group, call, now))
	}
	p.operations[number] = op
}

func (p *profiler) End(number uint64) {
	op := p.operations[number]
	if op == nil {
		return
	}
	delete(p.operations, number)
	now := C.uint64_t(monotonic.Now())
	for _, events := range op.calls {
		C.lpp_end(p.p, events, now)
	}
	C.lpp_close(p.p, op.group)
}

func (p *profiler) Close() {
	for number := range p.operations {
		p.End(number)
	}
	C.lpp_finalize(p.p)
	p.log.end()
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
