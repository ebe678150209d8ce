package shim

import (
	"unsafe"

	"lightpath/shim/device"
)

// stage is a stretch of device memory that a call has in host memory while it runs.
type stage struct {
	call     *Call
	base     unsafe.Pointer
	size     int64
	out, in  stretch // what of it the call reads and writes
	usesSend bool    // the call's Send lies in it
	usesRecv bool
}

// stretch is some bytes of a buffer.
type stretch struct{ offset, size int64 }

// roomFor is what a stage takes in staging memory, so that the next begins on a cache line.
func (s *stage) roomFor() int { return int(s.size+63) &^ 63 }

// place finds room for what a part moves, and has its calls work there; nothing is on a stream yet. The
// communicator's onDevice is locked.
func (l *launch) place(p *part) error {
	if _, err := devices.Enter(p.streams[0]); err != nil {
		return err
	}
	defer devices.Leave()
	if err := p.comm.dev.prepare(); err != nil {
		return err
	}
	size := 0
	for i := range p.stages {
		size += p.stages[i].roomFor()
	}
	at, err := l.roomFor(p, size)
	if err != nil {
		return err
	}
	for i := range p.stages {
		s := &p.stages[i]
		s.settle(p, at)
		at = unsafe.Add(at, s.roomFor())
	}
	return nil
}

// roomFor gives a part its word and staging memory. A graph may be replayed while other launches are on their
// way: its launches have theirs for as long as it lives.
func (l *launch) roomFor(p *part, size int) (unsafe.Pointer, error) {
	d := p.comm.dev
	if l.graph {
		r, err := pinned.take(wordRoom + size)
		if err != nil {
			return nil, err
		}
		l.staging = append(l.staging, r)
		p.word, p.value = r.word(), 1
		*p.word = 0
		return unsafe.Add(r.at, wordRoom), nil
	}
	if size > d.staging.size {
		r, err := pinned.take(size)
		if err != nil {
			return nil, err
		}
		d.outgrown, d.staging = append(d.outgrown, d.staging), r
	}
	d.seq++
	p.word, p.value = d.control.word(), d.seq
	return d.staging.at, nil
}

// settle has the call work at a place in host memory instead of the device's.
func (s *stage) settle(p *part, at unsafe.Pointer) {
	if s.usesSend {
		s.call.Send = unsafe.Add(at, s.out.offset)
		p.outs = append(p.outs, transfer{unsafe.Add(s.base, s.out.offset), s.call.Send, int(s.out.size)})
	}
	if s.usesRecv {
		s.call.Recv = unsafe.Add(at, s.in.offset)
		p.ins = append(p.ins, transfer{unsafe.Add(s.base, s.in.offset), s.call.Recv, int(s.in.size)})
	}
}

// stages appends the stages of a call: none for host memory, one for both buffers of a call in place.
func (c *Call) stages(to []stage) ([]stage, error) {
	if c.Kind.oneSided() {
		place, err := devices.Locate(c.Send)
		if err == nil && place.Kind >= device.Managed {
			err = c.invalid("localbuff %p is device memory: windows are host memory", c.Send)
		}
		return to, err
	}
	inPlace, err := c.check()
	if err != nil || c.Count == 0 {
		return to, err
	}
	send, recv := c.extents()
	onSend, err := c.needsStage("sendbuff", c.Send, send)
	if err != nil {
		return to, err
	}
	onRecv, err := c.needsStage("recvbuff", c.Recv, recv)
	if err != nil {
		return to, err
	}
	if inPlace && onSend && onRecv {
		base, size := c.Send, send
		if recv > send {
			base, size = c.Recv, recv
		}
		return append(to, stage{
			call: c, base: base, size: size, usesSend: true, usesRecv: true,
			out: stretch{int64(uintptr(c.Send) - uintptr(base)), send}, in: stretch{int64(uintptr(c.Recv) - uintptr(base)), recv},
		}), nil
	}
	if onSend {
		to = append(to, stage{call: c, base: c.Send, size: send, usesSend: true, out: stretch{0, send}})
	}
	if onRecv {
		to = append(to, stage{call: c, base: c.Recv, size: recv, usesRecv: true, in: stretch{0, recv}})
	}
	return to, nil
}

// needsStage tells whether the CPU cannot use a buffer where it is. Managed memory it could, but not while the
// device does.
func (c *Call) needsStage(name string, p unsafe.Pointer, size int64) (bool, error) {
	if size == 0 {
		return false, nil
	}
	at, err := devices.Locate(p)
	if err != nil {
		return false, err
	}
	if at.Kind == device.Host && !mapped(p, size) {
		return false, c.invalid("%s %p of %d bytes is neither device nor host memory: has it been freed?", name, p, size)
	}
	if at.Kind == device.Memory {
		end, err := devices.Locate(unsafe.Add(p, size-1))
		if err != nil {
			return false, err
		}
		if end != at {
			return false, c.invalid("%s %p of %d bytes reaches beyond its memory", name, p, size)
		}
		if at.Device != c.Comm.args.Device {
			return false, c.invalid("%s is memory of device %d, the communicator is of device %d", name, at.Device, c.Comm.args.Device)
		}
	}
	return at.Kind >= device.Managed, nil
}
