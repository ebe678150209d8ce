package recorder

import "sync/atomic"

// deviceOps is the record of launches that no CPU ends. Streams write the number of the last launch that has ended, and
// a reader of the recorder first ends the operations of these launches. The watcher reads the recorder while launches
// are pending, so times are late by its pause at most.
type deviceOps struct {
	ended *uint32
	first uint64 // all earlier operations have ended

	graphs []*Graph // whose replays the device counts
}

// OnDevice sets the word with the last launch that has ended; nil: there is none any more.
func (f *Recorder) OnDevice(ended *uint32) {
	f.mu.Lock()
	f.catchUp()
	f.device.ended, f.device.graphs = ended, nil
	f.mu.Unlock()
}

// Launched records that operations are pending as a launch. If graph is set, they are part of a graph.
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
			f.end(op, Completed, op.Ended)
		}
	}
}

// catchUp ends the operations whose launches have ended, and enters replays of graphs. The caller holds f.mu.
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
			f.end(op, Completed, f.clock())
		}
	}
}

// Notice ends the operations whose launches have ended.
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
