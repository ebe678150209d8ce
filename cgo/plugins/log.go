package plugins

import "C"

import (
	"slices"
	"sync"
)

// sink is the log of a communicator. Plugins do not say for which communicator a line is, so the newest sink gets it.
type sink struct{ line func(warn bool, line string) }

var sinks struct {
	sync.Mutex
	open []*sink
}

// listen makes f the log of plugins until end.
func listen(f func(warn bool, line string)) *sink {
	s := &sink{f}
	sinks.Lock()
	defer sinks.Unlock()
	sinks.open = append(sinks.open, s)
	return s
}

func (s *sink) end() {
	sinks.Lock()
	defer sinks.Unlock()
	sinks.open = slices.DeleteFunc(sinks.open, func(o *sink) bool { return o == s })
}

//export lpPluginLog
func lpPluginLog(warn C.int, line *C.char) {
	sinks.Lock()
	defer sinks.Unlock()
	if n := len(sinks.open); n > 0 && sinks.open[n-1].line != nil {
		sinks.open[n-1].line(warn != 0, C.GoString(line))
	}
}
