package stream

import (
	"unsafe"

	"lightpath/collectives/schedule"
	"lightpath/collectives/transport/messages"
	"lightpath/shim/calls"
	"lightpath/shim/device"
)

// Memory is device memory.
type Memory struct {
	At     unsafe.Pointer
	Size   int64
	Base   unsafe.Pointer  // address from the driver
	Region messages.Region // registration with the RDMA ports; nil: none
}

// Free frees memory that is not registered with any port.
func (m Memory) Free(peers device.Peers, ctx device.Context) {
	if m.Base != nil && peers.EnterContext(ctx) == nil {
		_ = peers.FreeExchange(m.Base)
		device.Active().Leave()
	}
}

// FreeMemory deregisters and frees memory. Any thread may call it.
func (in *Issuer) FreeMemory(m Memory) {
	if m.Region != nil {
		in.Wire.Forget(&m)
	}
	m.Free(in.peers, in.ctx)
}

// Outgrow keeps replaced memory until the issuer ends, since launches may still use it.
func (in *Issuer) Outgrow(m Memory) { in.old = append(in.old, m) }

// memoryFor returns size bytes of device memory for a launch.
func (in *Issuer) memoryFor(capture device.Capture, size int64) (unsafe.Pointer, error) {
	if capture.ID != 0 {
		return in.memoryOfGraph(capture, size)
	}
	if size > in.memory.Size {
		m, err := in.Wire.Alloc(size)
		if err != nil {
			return nil, err
		}
		if in.memory.At != nil {
			in.Outgrow(in.memory)
		}
		in.memory = m
	}
	return in.memory.At, nil
}

// memoryOfGraph returns device memory that lives as long as the captured graph.
func (in *Issuer) memoryOfGraph(capture device.Capture, size int64) (unsafe.Pointer, error) {
	if size == 0 {
		return nil, nil
	}
	m, err := in.Wire.Alloc(size)
	if err != nil {
		return nil, err
	}
	release := func() { go in.FreeMemory(m) } // release runs on a driver's thread, which must not call the driver
	if err := OnGraphGone(capture, release); err != nil {
		release()
		return nil, err
	}
	return m.At, nil
}

// bounced is device memory that replaces buffers that no device can access. The driver copies the input there before a
// script, and copies the output back after it.
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

// alignment is the alignment of the parts of a launch's memory, in bytes.
const alignment = 256

func aligned(size int64) int64 { return (size + alignment - 1) &^ (alignment - 1) }

// findBuffers sets where the launch's input and output are.
func (p *issuing) findBuffers() error {
	call, b := p.Call, &p.bounced
	sendAt, recvAt, err := LocateBuffers(call)
	if err != nil {
		return err
	}
	send, recv := call.Extents()
	b.send, b.recv = send > 0 && sendAt.Kind == device.Host, recv > 0 && recvAt.Kind == device.Host
	if (b.send || b.recv) && !p.in.Alone {
		name, at := "sendbuff", call.Send
		if !b.send {
			name, at = "recvbuff", call.Recv
		}
		return call.Invalid("%s %p is memory that no device reaches: this call takes device memory, managed memory "+
			"and page-locked memory", name, at)
	}
	p.Bases[schedule.Input], p.Bases[schedule.Output] = call.Send, call.Recv
	b.measure(call, send, recv)
	return nil
}

// measure computes how much memory bouncing takes.
func (b *bounced) measure(call *calls.Call, send, recv int64) {
	b.together, _ = call.Overlap(send, recv)
	switch {
	case !b.send && !b.recv:
	case b.together:
		b.size = max(send, recv)
	default:
		if b.send {
			b.size = aligned(send)
		}
		b.recvAt = b.size
		if b.recv {
			b.size += recv
		}
	}
}

// bounce makes the script use bounce memory at an address.
func (p *issuing) bounce(at unsafe.Pointer) {
	b, call := &p.bounced, p.Call
	send, recv := call.Extents()
	if b.send {
		to := at
		if b.together && uintptr(call.Send) > uintptr(call.Recv) {
			to = unsafe.Add(at, uintptr(call.Send)-uintptr(call.Recv))
		}
		b.in, p.Bases[schedule.Input] = bouncedCopy{to, call.Send, send}, to
	}
	if b.recv {
		from := unsafe.Add(at, b.recvAt)
		if b.together && uintptr(call.Recv) > uintptr(call.Send) {
			from = unsafe.Add(at, uintptr(call.Recv)-uintptr(call.Send))
		}
		b.out, p.Bases[schedule.Output] = bouncedCopy{call.Recv, from, recv}, from
	}
}
