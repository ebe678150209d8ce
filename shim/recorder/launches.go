package recorder

import "sync/atomic"

// deviceOps is the record of launches that no CPU ends. Streams write the number of the last launch that ended, and a
// reader of the recorder ends these first. The watcher looks while launches are pending, so times are late by no more
// than [lookSoon].
type deviceOps struct {
	ended *uint32
	first uint64 // all operations before it have been looked at

	graphs []*Graph // whose replays the device counts
}

// OnDevice has the recorder find in a word which launches are over, until it is nil.
func (f *Recorder) OnDevice(ended *uint32) {
	f.mu.Lock()
	f.catchUp()
	f.device.ended, f.device.graphs = ended, nil
	f.mu.Unlock()
}

// Launched says that operations are pending as a launch. With graph, the CPU does not see them end.
func (f *Recorder) Launched(numbers []uint64, launch uint32, graph bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range numbers {
		op := f.at(n)
		if op.Number != n {
			continue
		}
		op.launch = launch
		if graph {
			op.Outcome = Completed
		}
	}
}

// catchUp ends the operations whose launches are over, and enters replays of graphs. f.mu is held.
func (d *deviceOps) catchUp(f *Recorder) {
	for _, g := range d.graphs {
		g.catchUp(f)
	}
	if d.ended == nil {
		return
	}
	ended := atomic.LoadUint32(d.ended)
	d.first = max(d.first, 1)
	if f.last > f.Size {
		d.first = max(d.first, f.last-f.Size)
	}
	for ; d.first <= f.last; d.first++ {
		op := f.at(d.first)
		if op.Number != d.first || op.launch == 0 && op.Outcome != UnderWay {
			continue
		}
		if op.launch == 0 || int32(ended-op.launch) < 0 {
			return
		}
		if op.Outcome == UnderWay {
			op.Outcome, op.Ended = Completed, f.clock()
		}
	}
}

// Notice ends the operations whose launches are over.
func (f *Recorder) Notice() {
	f.mu.Lock()
	f.catchUp()
	f.mu.Unlock()
}

// OfLaunch returns the operations of a launch, and the replays that are in progress.
func (f *Recorder) OfLaunch(launch uint32) (ops []Operation) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.catchUp()
	for n := f.last; n > 0 && n+f.Size > f.last; n-- {
		if op := f.at(n); op.launch == launch || op.Replay && op.Outcome == UnderWay {
			ops = append([]Operation{*op}, ops...)
		}
	}
	return ops
}
