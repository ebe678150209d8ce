package peer

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"
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
	x.queue.putting.Lock()
	defer x.queue.putting.Unlock()
	x.gather(group, here)
	if err := x.check(group); err != nil {
		return err
	}
	others, err := stream.Capturing(x.c, x.launch.streams[1:]) // Put has entered none yet
	if err != nil {
		return err
	}
	if err := stream.Enter(x.c, x.launch.stream); err != nil {
		return err
	}
	defer device.Active().Leave()
	if err := x.findCapture(others); err != nil {
		return err
	}
	if err := x.dev.Prepare(); err != nil {
		return err
	}
	if err := x.announce(group); err != nil {
		return err
	}
	if len(x.launch.ops)+len(x.launch.msgs) == 0 {
		return nil
	}
	x.begin(calls.DeadlineOf(group))
	if err := x.enqueue(); err != nil {
		// Part of the launch is on streams and cannot be removed from them.
		x.c.Spread(err)
		x.breakOff()
		return err
	}
	return nil
}

// begin numbers the launch and tells the watcher of it, which must see whether peers come while Put waits for room.
func (x *Path) begin(due time.Time) {
	x.launch.number++
	if x.launch.number == 0 {
		x.launch.number = 1
	}
	if x.launch.capture.ID != 0 {
		x.captured.Store(true)
	} else {
		x.watcher.last.Store(x.launch.number)
		if !due.IsZero() && x.n > 1 {
			x.watcher.expect(x.launch.number, due)
		}
	}
	x.watcher.wake()
}

// gather collects the streams of the communicator's calls. The first is the launch's stream.
func (x *Path) gather(calls []calls.Call, here bool) {
	l := &x.launch
	l.streams, l.ops, l.msgs, l.inFlight = l.streams[:0], l.ops[:0], l.msgs[:0], l.inFlight[:0]
	if here {
		l.streams = append(l.streams, x.own)
	}
	for i := range calls {
		if call := &calls[i]; !here && call.Comm == x.c && !slices.Contains(l.streams, call.Stream) {
			l.streams = append(l.streams, call.Stream)
		}
	}
	l.stream = l.streams[0]
	x.queue.reset(l.stream)
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
	send, recv, err := stream.LocateBuffers(call)
	if err != nil {
		return err
	}
	x.launch.ops = append(x.launch.ops, operation{
		call: call, plain: send.Kind == device.Host, sendID: send.ID, bounce: recv.Kind == device.Host, recvID: recv.ID,
	})
	return nil
}

// findCapture finds the graph that captures the first stream, which Put has entered. It must be that of the other
// streams. A program may begin and end a capture between two calls, so Put asks each time.
func (x *Path) findCapture(others device.Capture) (err error) {
	if x.launch.capture, err = device.Active().Capturing(x.launch.stream); err != nil {
		return err
	}
	x.queue.paced = x.n > 1 && x.launch.capture.ID == 0
	if len(x.launch.streams) > 1 {
		return stream.SameCapture(others, x.launch.capture)
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
		x.counts.calls++
		n := recorder.Of(x.c).Add(x.counts.calls, &sh, &x.entry)
		if call.Count == 0 {
			recorder.Of(x.c).End(n, recorder.Completed)
		} else {
			x.launch.ops[len(x.launch.inFlight)].number = x.counts.calls
			x.launch.inFlight = append(x.launch.inFlight, n)
		}
		if err := x.compare(&sh); err != nil {
			return x.c.Fail(err)
		}
	}
	x.launch.moves = recorder.MessageCount{}
	for i := range x.launch.msgs {
		m := &x.launch.msgs[i]
		x.launch.moves.Bytes += m.bytes
		if m.send {
			x.launch.moves.Sends++
		} else {
			x.launch.moves.Recvs++
		}
		if err := x.compareMessage(m); err != nil {
			return x.c.Fail(err)
		}
	}
	if len(x.launch.msgs) > 0 && x.launch.capture.ID == 0 {
		x.launch.inFlight = append(x.launch.inFlight, recorder.Of(x.c).AddMessages(x.launch.moves))
	}
	return nil
}

// enqueue puts the launch on its streams.
func (x *Path) enqueue() error {
	d := x.dev
	if err := d.Follow(x.launch.stream, x.launch.capture); err != nil {
		return err
	}
	if err := d.Join(x.launch.stream, x.launch.streams[1:]); err != nil {
		return err
	}
	recorder.Of(x.c).Launched(x.launch.inFlight, x.launch.number, x.launch.capture.ID != 0 || x.n == 1)
	if x.n > 1 {
		own := x.page.rank(x.me)
		x.queue.write(&own.current, x.launch.number)
		x.queue.write(&own.waited, 0)
	}
	x.forget()
	if err := x.count(); err != nil {
		return err
	}
	if x.launch.capture.ID != 0 {
		recorder.Of(x.c).Captured(x.graph, x.launch.inFlight, x.launch.number, x.launch.moves)
	}
	for i := range x.launch.ops {
		if err := x.collective(&x.launch.ops[i]); err != nil {
			return err
		}
	}
	if err := x.messages(); err != nil {
		return err
	}
	if x.n > 1 {
		own := x.page.rank(x.me)
		x.queue.write(&own.current, 0)
		if x.launch.capture.ID == 0 {
			x.queue.write(&own.ended, x.launch.number)
		}
	}
	if err := x.queue.flush(); err != nil {
		return err
	}
	return d.End(x.launch.stream, x.launch.streams[1:], x.launch.capture)
}

// breakOff makes the streams leave a launch that was enqueued only in part. If the driver refuses, it sets x.torn, and
// the watcher tries again.
func (x *Path) breakOff() {
	x.queue.reset(x.launch.stream)
	err := x.sides.Join(x.launch.stream)
	if x.n > 1 {
		if x.published.lent.Load() {
			atomic.StoreUint32(&x.page.rank(x.me).gateIn, 0) // this launch has not waited for its tokens
			x.unsay(saidWords)
			x.passGates()
		}
		x.queue.write(&x.page.rank(x.me).current, 0)
	}
	err = errors.Join(err, x.queue.flush())
	if x.launch.capture.ID == 0 {
		err = errors.Join(err, x.driver.Record(x.dev.Last(x.launch.capture), x.launch.stream))
	}
	x.torn = err != nil
}

// ended returns the number of the last launch that has ended, not counting launches in graphs.
func (x *Path) ended() uint32 { return atomic.LoadUint32(&x.page.rank(x.me).ended) }

// Parts returns an upper bound on the number of a call's chunks.
func (x *Path) Parts(call *calls.Call) int64 {
	if x.n == 1 {
		return 1
	}
	chunk := x.exchange.slotBytes / int64(x.n)
	if call.Kind.P2P() {
		chunk = x.exchange.pairBytes
	}
	send, recv := call.Extents()
	return 1 + max(send, recv)/chunk
}

// count enqueues the kernel that counts a graph's replays, before the first launch in that graph.
func (x *Path) count() error {
	if x.launch.capture.ID == 0 || x.graph != nil && x.graph.Capture == x.launch.capture.ID {
		return nil
	}
	d, f := x.dev, recorder.Of(x.c)
	r, err := d.Lock(2 * memory.WordSize)
	if err != nil {
		return err
	}
	var current *uint32
	if x.page != nil {
		current = &x.page.rank(x.me).current
	}
	g := recorder.NewGraph(x.launch.capture.ID, r.Word(), current, x.c.Failed)
	one := unsafe.Add(r.At, memory.WordSize)
	atomic.StoreUint32(r.Word(), 0)
	*(*uint32)(one) = 1
	release := func() {
		f.ForgetGraph(g)
		d.Unlock(r)
	}
	if err := stream.OnGraphGone(x.launch.capture, release); err != nil {
		release()
		return err
	}
	x.graph = g
	f.AddGraph(g)
	if x.queue.flush() != nil {
		return x.queue.err
	}
	x.queue.clear(nil)
	x.queue.kernel.Dst, x.queue.kernel.N, x.queue.kernel.Count = r.At, 2, 1
	x.queue.kernel.Type, x.queue.kernel.Op = datatype.Uint32, datatype.Sum
	x.queue.kernel.Sources[0], x.queue.kernel.Sources[1] = r.At, one
	x.queue.run(&x.queue.kernel)
	return x.queue.err
}
