package peer

import (
	"unsafe"

	"lightpath/shim/calls"
	"lightpath/shim/comm"
	"lightpath/shim/device"
)

// A launch is a sequence of waits for words, writes of words, jobs of kernels and copies by the driver. This file puts
// them on the stream with few operations: writes before a kernel and after it become part of the kernel.
//
// Writes that follow each other may be seen in any order. A write that gives something is seen after all that comes
// before it in the sequence.

// word is an operation on a word that is not on the stream yet.
type word struct {
	device.Store
	wait  bool // until the word is Value
	gives bool // it is seen after all earlier work: it gives a token, or says that something is over
}

// kernelWrites is the number of writes above which a kernel for them alone is cheaper than operations of the stream.
const kernelWrites = 6

// queue puts the operations of a launch on its streams. Put uses it, and the watcher once Put has failed.
type queue struct {
	c      *comm.Core
	driver device.Peers
	page   *tokenPage     // nil for one rank
	me     int            // this rank
	blocks device.Address // of this rank's counters of blocks, by line; 0 for one rank

	on       device.Stream // where operations go
	line     int           // of that stream
	err      error         // the first error of the driver in the launch
	words    []word        // pending operations, not on the stream yet
	building bool          // kernel takes jobs; then words is empty
	call     *calls.Call   // whose jobs they are
	kernel   device.Reduction
	copies   [device.MaxCopies]device.Copy
	before   [device.MaxStores]device.Store
	after    [device.MaxStores]device.Store
	batch    []device.Word

	pace
}

// reset drops what is pending, and makes the following operations go to the launch's stream.
func (q *queue) reset(s device.Stream) {
	q.words, q.err, q.building = q.words[:0], nil, false
	q.onto(s, 0)
}

// onto makes the following operations go to a stream, whose line has this index.
func (q *queue) onto(s device.Stream, line int) { q.on, q.line = s, line }

// wait makes the stream wait until a word is 1.
func (q *queue) wait(at device.Address) {
	q.launch()
	q.words = append(q.words, word{Store: device.Store{At: at, Value: 1}, wait: true})
}

// write makes the stream write a word of the page.
func (q *queue) write(at *uint32, value uint32) { q.store(q.page.wordOf(at), uint64(value), false) }

// store makes the stream write a word, of 8 bytes if wide is set.
func (q *queue) store(at device.Address, value uint64, wide bool) {
	q.put(word{Store: device.Store{At: at, Value: value, Wide: wide}})
}

func (q *queue) put(w word) {
	if q.building && len(q.kernel.Before)+len(q.kernel.After) == device.MaxStores {
		q.launch()
	}
	if q.building {
		q.kernel.After = append(q.kernel.After, w.Store)
		return
	}
	q.words = append(q.words, w)
}

// begin opens a kernel for jobs of a call, unless one is open. The last call may have left one open, of another type or
// factor. Writes since the last wait come before the kernel.
func (q *queue) begin(call *calls.Call) {
	if q.building && q.call == call && len(q.kernel.After) == 0 {
		return
	}
	q.launch()
	first := len(q.words)
	for first > 0 && !q.words[first-1].wait && !q.words[first-1].gives && len(q.words)-first < device.MaxStores/2 {
		first--
	}
	q.issue(q.words[:first])
	q.clear(call)
	for _, w := range q.words[first:] {
		q.kernel.Before = append(q.kernel.Before, w.Store)
	}
	q.words = q.words[:0]
	q.building, q.call = true, call
}

// clear makes x.queue.kernel one that does nothing.
func (q *queue) clear(call *calls.Call) {
	q.kernel = device.Reduction{Before: q.before[:0], After: q.after[:0], Copies: q.copies[:0]}
	if q.blocks != 0 {
		q.kernel.Blocks = q.blocks + device.Address(q.line*tokenSize)
	}
	if call != nil {
		q.kernel.Type = call.Type
	}
}

// job adds a copy of bytes to the open kernel.
func (q *queue) job(call *calls.Call, c device.Copy, bytes int64) {
	if c.Count = bytes / int64(call.Type.Size()); c.Count == 0 || c.Dst == c.Src && c.Found == nil && !c.Scaled {
		return
	}
	if q.building && len(q.kernel.Copies) == device.MaxCopies {
		q.launch()
	}
	q.begin(call)
	q.kernel.Copies = append(q.kernel.Copies, c)
}

// launch puts the open kernel on the stream. After an error of the driver it does nothing, like all functions that
// enqueue: flush returns the error.
func (q *queue) launch() {
	if !q.building {
		return
	}
	q.building = false
	if q.kernel.Count > 0 || len(q.kernel.Copies) > 0 {
		q.run(&q.kernel)
		return
	}
	for _, w := range q.kernel.Before { // there are no jobs: these are writes like others
		q.words = append(q.words, word{Store: w})
	}
	for _, w := range q.kernel.After {
		q.words = append(q.words, word{Store: w, gives: true})
	}
}

// run puts a kernel on the stream.
func (q *queue) run(k *device.Reduction) {
	if q.err != nil {
		return
	}
	q.reserve(1)
	if l := &q.lines[q.line]; q.paced && l.due() && len(k.Before)+len(k.After) < device.MaxStores {
		k.After = append(k.After, q.mark(q.line).Store)
	}
	q.err = device.Active().Reduce(k, q.on)
}

// issue puts operations on words on the stream, in their order. No kernel is open.
func (q *queue) issue(words []word) {
	for len(words) > 0 && q.err == nil {
		n, cost := 0, 0
		for n < len(words) && n < device.MaxStores && !words[n].wait {
			cost += words[n].length()
			n++
		}
		counts := n > 0 && words[0].Counter != 0
		if counts || cost > kernelWrites {
			q.issueWrites(words[:n])
			words = words[n:]
			continue
		}
		q.batch, n = q.batch[:0], 0
		for ; n < len(words) && len(q.batch) < device.MaxWords-2; n++ {
			if n > 0 && (words[n].Counter != 0 || !words[n].wait && manyWrites(words[n:])) {
				break
			}
			ops := words[n].operations()
			q.batch = append(q.batch, ops[:words[n].length()]...)
		}
		words = words[n:]
		q.reserve(uint32(len(q.batch)))
		if q.paced && q.lines[q.line].due() {
			mark := q.mark(q.line)
			q.batch = append(q.batch, mark.operations()[0])
		}
		q.err = q.driver.Words(q.on, q.batch)
	}
}

// manyWrites reports whether words begin with so many writes that a kernel is cheaper.
func manyWrites(words []word) bool {
	cost := 0
	for n := 0; n < len(words) && !words[n].wait && cost <= kernelWrites; n++ {
		cost += words[n].length()
	}
	return cost > kernelWrites
}

// issueWrites puts writes on the stream as a kernel.
func (q *queue) issueWrites(words []word) {
	q.clear(nil)
	for _, w := range words {
		if w.gives || len(q.kernel.After) > 0 {
			q.kernel.After = append(q.kernel.After, w.Store)
		} else {
			q.kernel.Before = append(q.kernel.Before, w.Store)
		}
	}
	q.run(&q.kernel)
}

// operations returns the operations of a stream for a word, and length their number: a wide word is written in halves,
// the upper one last.
func (w *word) operations() [2]device.Word {
	at := device.Word{At: w.At, Value: uint32(w.Value)}
	if w.wait {
		at.Wait = 1
	}
	return [2]device.Word{at, {At: w.At + 4, Value: uint32(w.Value >> 32)}}
}

func (w *word) length() int {
	if w.Wide {
		return 2
	}
	return 1
}

// flush puts everything on the stream. It returns the first error of the driver in the launch.
func (q *queue) flush() error {
	q.launch()
	words := q.words
	q.words = q.words[:0]
	q.issue(words)
	return q.err
}

// copy makes the driver copy size bytes.
func (q *queue) copy(dst, src unsafe.Pointer, size int64) {
	if size == 0 || dst == src || q.flush() != nil {
		return
	}
	q.reserve(1)
	q.err = device.Active().Copy(dst, src, int(size), q.on)
	if q.paced && q.lines[q.line].due() { // copies may follow each other, and each waits for room
		q.put(q.mark(q.line))
	}
}

// reserve waits until the stream has room for so many operations, and counts them. Streams of lanes have room: messages
// looks for it.
func (q *queue) reserve(operations uint32) {
	if !q.paced {
		return
	}
	if q.line == 0 && !q.turning && q.full(0) {
		q.awaitRoom(func() bool { return q.full(0) })
	}
	q.lines[q.line].put += operations
}
