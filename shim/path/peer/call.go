package peer

import (
	"errors"
	"slices"
	"sync/atomic"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/shim/calls"
	"lightpath/shim/device"
	"lightpath/shim/memory"
	"lightpath/shim/recorder"
	"lightpath/shim/stream"
)

// Put enqueues the calls of x's communicator in a group: first its collectives in order, then its sends and receives,
// which run side by side. If here is set, the calls have no stream. Device.Mu must be held.
//
// Hot path: no allocation after the first launch of a size, no logging.
func (x *Path) Put(group []calls.Call, here bool) error {
	x.putting.Lock()
	defer x.putting.Unlock()
	x.gather(group, here)
	if err := x.check(group); err != nil {
		return err
	}
	others, err := x.otherStreams()
	if err != nil {
		return err
	}
	on, err := stream.Enter(x.c, x.stream)
	if err != nil {
		return err
	}
	defer device.Active().Leave()
	if err := x.firstStream(on, others); err != nil {
		return err
	}
	if err := x.dev.Prepare(); err != nil {
		return err
	}
	if err := x.announce(group); err != nil {
		return err
	}
	if len(x.ops)+len(x.msgs) == 0 {
		return nil
	}
	if err := x.enqueue(); err != nil {
		// Part of the launch is on streams and cannot be removed from them.
		x.c.Spread(err)
		x.breakOff()
		return err
	}
	if due := calls.DeadlineOf(group); !due.IsZero() && x.n > 1 && x.capture.ID == 0 {
		x.watcher.expect(x.number, due)
	}
	x.watcher.wake()
	return nil
}

// gather collects the streams of the communicator's calls. The first is the launch's stream.
func (x *Path) gather(calls []calls.Call, here bool) {
	x.streams, x.ops, x.msgs, x.words, x.inFlight = x.streams[:0], x.ops[:0], x.msgs[:0], x.words[:0], x.inFlight[:0]
	if here {
		x.streams = append(x.streams, x.own)
	}
	for i := range calls {
		if call := &calls[i]; !here && call.Comm == x.c && !slices.Contains(x.streams, call.Stream) {
			x.streams = append(x.streams, call.Stream)
		}
	}
	x.stream = x.streams[0]
}

// check adds the calls to the launch. It refuses wrong calls before any call has an effect.
func (x *Path) check(calls []calls.Call) error {
	for i := range calls {
		call := &calls[i]
		if call.Comm != x.c {
			continue
		}
		if call.Kind.P2P() {
			if err := x.addMessage(call); err != nil {
				return err
			}
		} else if err := x.addOp(call); err != nil {
			return err
		}
	}
	return x.matchOwn()
}

// addOp adds a collective to the launch.
func (x *Path) addOp(call *calls.Call) error {
	if call.Count == 0 {
		return nil
	}
	op := operation{call: call, send: call.Send, recv: call.Recv, inPlace: call.InPlace()}
	send, recv := call.Extents()
	place, err := stream.Locate(call, "sendbuff", call.Send, send)
	if err != nil {
		return err
	}
	op.plain, op.sendID = place.Kind == device.Host, place.ID
	place, err = stream.Locate(call, "recvbuff", call.Recv, recv)
	op.bounce, op.recvID = place.Kind == device.Host, place.ID
	x.ops = append(x.ops, op)
	return err
}

// otherStreams checks all streams except the first, which Put enters later. It returns the graph that captures them.
func (x *Path) otherStreams() (first device.Capture, err error) {
	return stream.Capturing(x.c, x.streams[1:])
}

// firstStream checks the first stream, which Put has entered and which is on device on. The graph that captures it
// must be that of the other streams.
func (x *Path) firstStream(on int, others device.Capture) (err error) {
	if x.capture, err = stream.CapturingOn(x.c, on, x.stream); err != nil {
		return err
	}
	if len(x.streams) > 1 {
		return stream.SameCapture(others, x.capture)
	}
	return nil
}

// announce records the calls in the page and in the flight recorder. If another rank has made different calls, it
// fails the communicator.
func (x *Path) announce(group []calls.Call) error {
	for i := range group {
		call := &group[i]
		if call.Comm != x.c || call.Kind.P2P() {
			continue
		}
		sh := calls.ShapeOf(call)
		x.calls++
		n := recorder.Of(x.c).Add(x.calls, &sh, &x.entry)
		if call.Count == 0 {
			recorder.Of(x.c).End(n, recorder.Completed)
		} else {
			x.ops[len(x.inFlight)].number = x.calls
			x.inFlight = append(x.inFlight, n)
		}
		if err := x.compare(&sh); err != nil {
			return x.c.Fail(err)
		}
	}
	x.moves = recorder.MessageCount{}
	for i := range x.msgs {
		m := &x.msgs[i]
		x.moves.Bytes += m.bytes
		if m.send {
			x.moves.Sends++
		} else {
			x.moves.Recvs++
		}
		if err := x.compareMessage(m); err != nil {
			return x.c.Fail(err)
		}
	}
	if len(x.msgs) > 0 && x.capture.ID == 0 {
		x.inFlight = append(x.inFlight, recorder.Of(x.c).AddMessages(x.moves))
	}
	return nil
}

// enqueue puts the launch on its streams.
func (x *Path) enqueue() error {
	d := x.dev
	x.number++
	if x.number == 0 {
		x.number = 1
	}
	if err := d.Follow(x.stream, x.capture); err != nil {
		return err
	}
	if err := d.Join(x.stream, x.streams[1:]); err != nil {
		return err
	}
	recorder.Of(x.c).Launched(x.inFlight, x.number, x.capture.ID != 0 || x.n == 1)
	if x.n > 1 {
		own := x.page.rank(x.me)
		x.write(&own.current, x.number)
		x.write(&own.waited, 0)
	}
	if err := x.count(); err != nil {
		return err
	}
	if x.capture.ID != 0 {
		recorder.Of(x.c).Captured(x.graph, x.inFlight, x.number, x.moves)
	}
	for i := range x.ops {
		if err := x.collective(&x.ops[i]); err != nil {
			return err
		}
	}
	if err := x.messages(); err != nil {
		return err
	}
	if x.n > 1 {
		own := x.page.rank(x.me)
		x.write(&own.current, 0)
		if x.capture.ID == 0 {
			x.write(&own.ended, x.number)
		}
	}
	if err := x.flush(); err != nil {
		return err
	}
	err := d.End(x.stream, x.streams[1:], x.capture)
	if x.capture.ID != 0 {
		x.captured.Store(true)
	} else {
		x.watcher.last.Store(x.number)
	}
	return err
}

// breakOff makes the streams leave a launch that was enqueued only in part. If the driver refuses, it sets x.torn, and
// the watcher tries again.
func (x *Path) breakOff() {
	err := x.join()
	x.words = x.words[:0]
	if x.n > 1 {
		if x.lent.Load() {
			atomic.StoreUint32(&x.page.rank(x.me).gateIn, 0) // this launch has not waited for its tokens
			x.unsay(1<<numSlots - 1)
			x.passGates()
		}
		x.write(&x.page.rank(x.me).current, 0)
	}
	err = errors.Join(err, x.flush())
	if x.capture.ID == 0 {
		err = errors.Join(err, x.driver.Record(x.dev.Last(x.capture), x.stream))
	}
	x.torn = err != nil
}

// write adds a write of a word of the page to the operations that flush puts on the stream.
func (x *Path) write(word *uint32, value uint32) { x.word(x.page.wordOf(word), value, 0) }

// word adds an operation to the batch that flush puts on the stream. The stream waits for value if wait is not 0.
// Otherwise it writes value.
func (x *Path) word(at device.Address, value, wait uint32) {
	x.words = append(x.words, device.Word{At: at, Value: value, Wait: wait})
}

// flush puts the pending operations on words on the stream.
func (x *Path) flush() error { return x.flushTo(x.stream) }

// flushTo puts the pending operations on words on stream s. It waits until the launch's stream has room for them.
func (x *Path) flushTo(s device.Stream) error {
	if x.paced() {
		i := x.lineOf(s)
		if i == 0 && !x.turning && x.full(0) {
			x.awaitRoom(func() bool { return x.full(0) })
		}
		x.add(i)
	}
	for words := x.words; len(words) > 0; {
		n := min(len(words), device.MaxWords)
		if err := x.driver.Words(s, words[:n]); err != nil {
			return err
		}
		words = words[n:]
	}
	x.words = x.words[:0]
	return nil
}

// copy puts a copy of size bytes on the stream, after the pending operations.
func (x *Path) copy(dst, src unsafe.Pointer, size int64) error {
	if size == 0 || dst == src {
		return nil
	}
	if err := x.flush(); err != nil {
		return err
	}
	return device.Active().Copy(dst, src, int(size), x.stream)
}

// copyRows puts a copy of rows on the stream. A pitch is the distance in bytes between the starts of two rows.
func (x *Path) copyRows(dst unsafe.Pointer, dstPitch int64, src unsafe.Pointer, srcPitch, width int64, rows int) error {
	if err := x.flush(); err != nil {
		return err
	}
	return device.Active().CopyRows(dst, int(dstPitch), src, int(srcPitch), int(width), rows, x.stream)
}

// Tokens pass a slot between its owner and its readers. The owner claims the slot, writes it and gives the tokens. The
// readers take the tokens, read the slot and give the tokens back.

// claim waits until all readers have given back the tokens of the slot. Then it takes the tokens of its next readers:
// in for stageIn, part for stagePart.
func (x *Path) claim(slot int, in, part rankSet) {
	x.everyone().without(x.me).each(func(r int) {
		x.word(x.page.token(stageIn, slot, x.me, r, tokenFree), 1, 1)
		x.word(x.page.token(stagePart, slot, x.me, r, tokenFree), 1, 1)
	})
	in.without(x.me).each(func(r int) { x.word(x.page.token(stageIn, slot, x.me, r, tokenFree), 0, 0) })
	part.without(x.me).each(func(r int) { x.word(x.page.token(stagePart, slot, x.me, r, tokenFree), 0, 0) })
}

// give passes the tokens of the slot to its readers.
func (x *Path) give(stage, slot int, to rankSet) {
	to.without(x.me).each(func(r int) { x.word(x.page.token(stage, slot, x.me, r, tokenReady), 1, 0) })
}

// take waits until the owners give the tokens of their slots, and takes these tokens.
func (x *Path) take(stage, slot int, from rankSet) {
	from.without(x.me).each(func(r int) { x.word(x.page.token(stage, slot, r, x.me, tokenReady), 1, 1) })
	from.without(x.me).each(func(r int) { x.word(x.page.token(stage, slot, r, x.me, tokenReady), 0, 0) })
}

// giveBack returns the tokens to the owners: this rank has read their slots.
func (x *Path) giveBack(stage, slot int, from rankSet) {
	from.without(x.me).each(func(r int) { x.word(x.page.token(stage, slot, r, x.me, tokenFree), 1, 0) })
}

// scaling returns the factor by which this rank multiplies its contribution. It is set only for OpPreMulSum. Each rank
// may have a different factor.
func (x *Path) scaling(call *calls.Call) (s device.Scale, err error) {
	if !calls.Kinds[call.Kind].Reduces || call.Op != calls.OpPreMulSum {
		return s, nil
	}
	s.Set = true
	place, err := device.Active().Locate(call.Scalar)
	if err != nil {
		return s, err
	}
	if place.Kind == device.Host { // else the kernel reads it when it runs
		copy(s.Factor[:], memory.Bytes(call.Scalar, int64(call.Type.Size())))
		return s, nil
	}
	s.At = call.Scalar
	return s, nil
}

// combine enqueues the kernel that x.kernel describes.
func (x *Path) combine() error {
	if x.kernel.Count == 0 {
		return nil
	}
	if err := x.flush(); err != nil {
		return err
	}
	return device.Active().Reduce(&x.kernel, x.stream)
}

// sum prepares the kernel that combines the contributions of all ranks in rank order. The kernel reads a contribution
// from the rank's slot at byte inSlot. With lent, it reads a lent send buffer at byte inSend instead.
func (x *Path) sum(
	op *operation, dst unsafe.Pointer, slot int, inSlot, inSend, count int64, lent bool,
) *device.Reduction {
	k, call := &x.kernel, op.call
	*k = device.Reduction{Dst: dst, N: x.n, Count: count, Type: call.Type, Op: call.Op, Tag: op.tag(), Offset: inSend}
	switch call.Op {
	case calls.OpPreMulSum:
		k.Op = datatype.Sum
	case datatype.Avg:
		k.Scale, k.Divisor = device.Average(call.Type, x.n)
	}
	for r := range x.n {
		k.Sources[r] = unsafe.Add(x.slotAt(r, slot), inSlot)
		if lent && op.look.has(r) {
			k.Found[r] = x.said(r, slot, x.me, wordSend)
		}
	}
	if lent && op.lentSend != nil {
		k.Sources[x.me] = unsafe.Add(op.send, inSend)
	}
	return k
}

// lay copies a contribution. It multiplies the contribution by this rank's factor if the operator is OpPreMulSum.
func (x *Path) lay(call *calls.Call, dst, src unsafe.Pointer, bytes int64) error {
	if !calls.Kinds[call.Kind].Reduces || call.Op != calls.OpPreMulSum {
		return x.copy(dst, src, bytes)
	}
	scale, err := x.scaling(call)
	if err != nil {
		return err
	}
	x.kernel = device.Reduction{
		Dst: dst, N: 1, Count: bytes / int64(call.Type.Size()), Type: call.Type, Op: datatype.Sum, Scale: scale,
	}
	x.kernel.Sources[0] = src
	return x.combine()
}

// ended returns the number of the last launch that has ended, not counting launches in graphs.
func (x *Path) ended() uint32 { return atomic.LoadUint32(&x.page.rank(x.me).ended) }

// Parts returns an upper bound on the number of a call's chunks.
func (x *Path) Parts(call *calls.Call) int64 {
	if x.n == 1 {
		return 1
	}
	chunk := x.slotBytes / int64(x.n)
	if call.Kind.P2P() {
		chunk = x.pairBytes
	}
	send, recv := call.Extents()
	return 1 + max(send, recv)/chunk
}
