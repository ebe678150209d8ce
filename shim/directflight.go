package shim

import "sync/atomic"

// deviceFlights is what a recorder knows of the launches that no CPU ends: streams leave the number of the last one, and whoever looks
// into the recorder ends them first. The watcher looks while launches are on their way, so the times are late by no more than [lookSoon].
type deviceFlights struct {
	ended *uint32
	first uint64 // all operations before it have been looked at

	graphs []*directGraph // whose replays the device counts
}

// onDevice has the recorder find in a word which launches are over, until it is nil.
func (f *recorder) onDevice(ended *uint32) {
	f.mu.Lock()
	f.catchUp()
	f.device.ended, f.device.graphs = ended, nil
	f.mu.Unlock()
}

// launched says that operations are on their way as a launch, of which, with graph, nobody sees the end.
func (f *recorder) launched(numbers []uint64, launch uint32, graph bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range numbers {
		op := f.at(n)
		if op.number != n {
			continue
		}
		op.launch = launch
		if graph {
			op.outcome = completed
		}
	}
}

// catchUp ends the operations whose launches are over, and enters replays of graphs. f.mu is held.
func (d *deviceFlights) catchUp(f *recorder) {
	for _, g := range d.graphs {
		g.catchUp(f)
	}
	if d.ended == nil {
		return
	}
	ended := atomic.LoadUint32(d.ended)
	d.first = max(d.first, 1)
	if f.last > f.size {
		d.first = max(d.first, f.last-f.size)
	}
	for ; d.first <= f.last; d.first++ {
		op := f.at(d.first)
		if op.number != d.first || op.launch == 0 && op.outcome != underWay {
			continue
		}
		if op.launch == 0 || int32(ended-op.launch) < 0 {
			return
		}
		if op.outcome == underWay {
			op.outcome, op.ended = completed, f.clock()
		}
	}
}

// notice ends the operations whose launches are over.
func (f *recorder) notice() {
	f.mu.Lock()
	f.catchUp()
	f.mu.Unlock()
}

// of returns the operations of a launch, and the replays that are in progress.
func (f *recorder) of(launch uint32) (ops []flown) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.catchUp()
	for n := f.last; n > 0 && n+f.size > f.last; n-- {
		if op := f.at(n); op.launch == launch || op.replay && op.outcome == underWay {
			ops = append([]flown{*op}, ops...)
		}
	}
	return ops
}
