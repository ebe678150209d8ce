package peer

import (
	"unsafe"

	"lightpath/shim/calls"
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

// onto makes the following operations go to a stream, whose line has this index.
func (x *Path) onto(s device.Stream, line int) { x.on, x.line = s, line }

// wait makes the stream wait until a word is 1.
func (x *Path) wait(at device.Address) {
	x.launch()
	x.words = append(x.words, word{Store: device.Store{At: at, Value: 1}, wait: true})
}

// write makes the stream write a word of the page.
func (x *Path) write(at *uint32, value uint32) { x.store(x.page.wordOf(at), uint64(value), false) }

// store makes the stream write a word, of 8 bytes if wide is set.
func (x *Path) store(at device.Address, value uint64, wide bool) {
	x.put(word{Store: device.Store{At: at, Value: value, Wide: wide}})
}

func (x *Path) put(w word) {
	if x.building && len(x.kernel.Before)+len(x.kernel.After) == device.MaxStores {
		x.launch()
	}
	if x.building {
		x.kernel.After = append(x.kernel.After, w.Store)
		return
	}
	x.words = append(x.words, w)
}

// begin opens a kernel of a type for jobs, unless one is open. Writes since the last wait come before it.
func (x *Path) begin(call *calls.Call) {
	if x.building && len(x.kernel.After) == 0 {
		return
	}
	x.launch()
	first := len(x.words)
	for first > 0 && !x.words[first-1].wait && !x.words[first-1].gives && len(x.words)-first < device.MaxStores/2 {
		first--
	}
	x.issue(x.words[:first])
	x.clear(call)
	for _, w := range x.words[first:] {
		x.kernel.Before = append(x.kernel.Before, w.Store)
	}
	x.words = x.words[:0]
	x.building = true
}

// clear makes x.kernel one that does nothing.
func (x *Path) clear(call *calls.Call) {
	x.kernel = device.Reduction{Before: x.before[:0], After: x.after[:0], Copies: x.copies[:0]}
	if x.n > 1 {
		x.kernel.Blocks = x.countersAt(x.me, saidBytes+(tokenWords*numSlots+x.line)*tokenSize)
	}
	if call != nil {
		x.kernel.Type = call.Type
	}
}

// job adds a copy of bytes to the open kernel.
func (x *Path) job(call *calls.Call, c device.Copy, bytes int64) {
	if c.Count = bytes / int64(call.Type.Size()); c.Count == 0 || c.Dst == c.Src && c.Found == nil && !c.Scaled {
		return
	}
	if x.building && len(x.kernel.Copies) == device.MaxCopies {
		x.launch()
	}
	x.begin(call)
	x.kernel.Copies = append(x.kernel.Copies, c)
}

// launch puts the open kernel on the stream. After an error of the driver it does nothing, like all functions that
// enqueue: flush returns the error.
func (x *Path) launch() {
	if !x.building {
		return
	}
	x.building = false
	if x.kernel.Count > 0 || len(x.kernel.Copies) > 0 {
		x.run(&x.kernel)
		return
	}
	for _, w := range x.kernel.Before { // there are no jobs: these are writes like others
		x.words = append(x.words, word{Store: w})
	}
	for _, w := range x.kernel.After {
		x.words = append(x.words, word{Store: w, gives: true})
	}
}

// run puts a kernel on the stream.
func (x *Path) run(k *device.Reduction) {
	if x.err != nil {
		return
	}
	x.make(1)
	if l := &x.lines[x.line]; x.paced() && l.due() && len(k.Before)+len(k.After) < device.MaxStores {
		k.After = append(k.After, x.mark(x.line).Store)
	}
	x.err = device.Active().Reduce(k, x.on)
}

// issue puts operations on words on the stream, in their order. No kernel is open.
func (x *Path) issue(words []word) {
	for len(words) > 0 && x.err == nil {
		n, cost := 0, 0
		for n < len(words) && n < device.MaxStores && !words[n].wait {
			cost += words[n].length()
			n++
		}
		counts := n > 0 && words[0].Counter != 0
		if counts || cost > kernelWrites {
			x.issueWrites(words[:n])
			words = words[n:]
			continue
		}
		x.batch, n = x.batch[:0], 0
		for ; n < len(words) && len(x.batch) < device.MaxWords-2; n++ {
			if n > 0 && (words[n].Counter != 0 || !words[n].wait && manyWrites(words[n:])) {
				break
			}
			ops := words[n].operations()
			x.batch = append(x.batch, ops[:words[n].length()]...)
		}
		words = words[n:]
		x.make(uint32(len(x.batch)))
		if x.paced() && x.lines[x.line].due() {
			mark := x.mark(x.line)
			x.batch = append(x.batch, mark.operations()[0])
		}
		x.err = x.driver.Words(x.on, x.batch)
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
func (x *Path) issueWrites(words []word) {
	x.clear(nil)
	for _, w := range words {
		if w.gives || len(x.kernel.After) > 0 {
			x.kernel.After = append(x.kernel.After, w.Store)
		} else {
			x.kernel.Before = append(x.kernel.Before, w.Store)
		}
	}
	x.run(&x.kernel)
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
func (x *Path) flush() error {
	x.launch()
	words := x.words
	x.words = x.words[:0]
	x.issue(words)
	return x.err
}

// flushWords puts writes on the stream that must be seen before later ones.
func (x *Path) flushWords() { _ = x.flush() }

// copy makes the driver copy size bytes.
func (x *Path) copy(dst, src unsafe.Pointer, size int64) {
	if size == 0 || dst == src || x.flush() != nil {
		return
	}
	x.make(1)
	x.err = device.Active().Copy(dst, src, int(size), x.on)
}

// make waits until the stream has room for so many operations, and counts them. Streams of lanes have room: messages
// looks for it.
func (x *Path) make(operations uint32) {
	if !x.paced() {
		return
	}
	if x.line == 0 && !x.turning && x.full(0) {
		x.awaitRoom(func() bool { return x.full(0) })
	}
	x.lines[x.line].put += operations
}
