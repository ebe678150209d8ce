package peer

import (
	"sync/atomic"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/shim/memory"
	"lightpath/shim/recorder"
	"lightpath/shim/stream"
)

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
