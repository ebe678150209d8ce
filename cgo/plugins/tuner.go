package plugins

// #include "tuner_calls.h"
import "C"

import (
	"fmt"
	"unsafe"

	"lightpath/collectives/schedule"
	"lightpath/shim/dispatch"
)

// Versions of the interface that Tuners can load.
const (
	oldestTuner = C.TUNER_OLDEST
	newestTuner = C.TUNER_NEWEST
)

// Tuners is [dispatch.TunerLoader] over dlopen. A library stays loaded.
type Tuners struct{}

var _ dispatch.TunerLoader = Tuners{}

// Open implements [dispatch.TunerLoader].
func (Tuners) Open(files []string, o dispatch.TunerOptions) (dispatch.Tuner, error) {
	found, file, err := find(files, "ncclTunerPlugin_v", oldestTuner, newestTuner)
	if err != nil {
		return nil, err
	}
	t := &tuner{t: C.struct_lpt{plugin: (*C.struct_tuner_plugin)(found.at), version: found.version}}
	t.log = listen(o.Log)
	nodes := C.struct_tuner_domains{C.int(o.Nodes), C.int(o.Least), C.int(o.Most)}
	r := C.lpt_init(t.t, C.uint64_t(o.Comm), C.size_t(o.Ranks), nodes)
	if r.rc != 0 {
		t.log.end()
		return nil, fmt.Errorf("%w: %s: init returned %d", ErrLoad, file, int(r.rc))
	}
	t.t.context = r.context
	return t, nil
}

// tuner is a [dispatch.Tuner].
type tuner struct {
	t   C.struct_lpt
	log *sink
}

func (t *tuner) Name() string {
	return fmt.Sprintf("%s (v%d)", C.GoString(t.t.plugin.name), int(t.t.version))
}

// functions are NCCL's numbers of collectives.
var functions = map[schedule.Collective]C.int{
	schedule.Broadcast: 0, schedule.Reduce: 1, schedule.AllGather: 2, schedule.ReduceScatter: 3, schedule.AllReduce: 4,
}

func (t *tuner) Ask(coll schedule.Collective, bytes int64, costs *dispatch.Costs) error {
	rc := C.lpt_ask(t.t, functions[coll], C.size_t(bytes), (*C.tuner_costs)(unsafe.Pointer(costs)))
	if rc != 0 {
		return fmt.Errorf("getCollInfo of %d bytes returned %d", bytes, int(rc))
	}
	return nil
}

func (t *tuner) Close() {
	C.lpt_finalize(t.t)
	t.log.end()
}
