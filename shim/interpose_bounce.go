package shim

import (
	"unsafe"

	"lightpath/collectives/schedule"
	"lightpath/shim/calls"
	"lightpath/shim/device"
)

// buffers finds out where the script's input and output are.
func (p *issuing) buffers() error {
	call := p.call
	send, recv := call.Extents()
	for _, b := range [...]struct {
		name string
		at   unsafe.Pointer
		size int64
		host *bool
	}{{"sendbuff", call.Send, send, &p.bounced.send}, {"recvbuff", call.Recv, recv, &p.bounced.recv}} {
		if p.in.gdr == nil {
			if err := mustReach(call, b.name, b.at, b.size); err != nil {
				return err
			}
			continue
		}
		place, err := locate(call, b.name, b.at, b.size)
		if err != nil {
			return err
		}
		*b.host = b.size > 0 && place.Kind == device.Host
	}
	p.bases[schedule.Input], p.bases[schedule.Output] = call.Send, call.Recv
	p.bounced.measure(call, send, recv)
	return nil
}

// bounced is memory of a device in the place of buffers that no device reaches: it is copied out of them before a script, and
// into them behind it, as a driver does that.
type bounced struct {
	send, recv, together bool
	size, recvAt         int64
	in, out              bouncedCopy
}

type bouncedCopy struct {
	to, from unsafe.Pointer
	bytes    int64
}

func (b bouncedCopy) put(s device.Stream) error {
	if b.bytes == 0 {
		return nil
	}
	return device.Active().Copy(b.to, b.from, int(b.bytes), s)
}

// measure finds out how much memory that takes.
func (b *bounced) measure(call *calls.Call, send, recv int64) {
	b.together, _ = call.Overlap(send, recv)
	switch {
	case !b.send && !b.recv:
	case b.together:
		b.size = max(send, recv)
	default:
		if b.send {
			b.size = (send + 255) &^ 255
		}
		b.recvAt = b.size
		if b.recv {
			b.size += recv
		}
	}
}

// bounce has the script work in the memory at a place.
func (p *issuing) bounce(at unsafe.Pointer) {
	b, call := &p.bounced, p.call
	send, recv := call.Extents()
	if b.send {
		to := at
		if b.together && uintptr(call.Send) > uintptr(call.Recv) {
			to = unsafe.Add(at, uintptr(call.Send)-uintptr(call.Recv))
		}
		b.in, p.bases[schedule.Input] = bouncedCopy{to, call.Send, send}, to
	}
	if b.recv {
		from := unsafe.Add(at, b.recvAt)
		if b.together && uintptr(call.Recv) > uintptr(call.Send) {
			from = unsafe.Add(at, uintptr(call.Recv)-uintptr(call.Send))
		}
		b.out, p.bases[schedule.Output] = bouncedCopy{call.Recv, from, recv}, from
	}
}
