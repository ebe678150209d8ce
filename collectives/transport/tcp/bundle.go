package tcp

import (
	"golang.org/x/sys/unix"

	"lightpath/collectives/wire"
)

// bundle is the state of a sender that lets the kernel join short frames. A packet for each short frame costs both
// hosts more than all else. So after many short frames, the kernel holds further ones until the peer's host has
// acknowledged the last small packet (Nagle's algorithm), and sends them together. The sender does not wait. This
// happens only in streams: this rank has waited for no peer since the first of these frames, or all are on the way.
//
// Frames on the way are prompt then (wire.Prompt): the peer's host acknowledges them as soon as the peer has read them.
// Held frames arrive one round trip later. If the peer does not read, its kernel acknowledges within 200 ms.
//
//	apart -- many short frames in a stream, the last one prompt --> prompt
//	prompt -- the next frame is short --> held
//	prompt, held -- few bytes are on the way, or the next frame is longer --> apart
type bundle struct {
	count, bytes int    // short frames since a longer one, or since the kernel was asked what is on the way
	idle         uint32 // endpoint.idle before the first of these frames
	heard        uint64 // receiver.rxTotal when the kernel was asked
	prompt       bool
	held         bool // the kernel holds short frames
}

const (
	// many is the number of short frames. Exchanges, in which ranks wait for each other, never have so many on the way,
	// and a shorter burst is not worth a round trip.
	many = 64
	// few is the number of frames on the way below which each one is sent at once again.
	few = 2
	// again is the number of prompt frames after which the sender asks again what is on the way, unless it hears from
	// the peer before.
	again = 8
)

// join prepares the connection for a frame of n bytes of payload, and returns the flags of the frame.
// Hot path: no allocation, no logging.
func (c *conn) join(n int) uint16 {
	b := &c.bundle
	switch {
	case n > joint:
		c.separate()
		return 0
	case !b.prompt:
		if b.count == 0 {
			b.idle = *c.idle
		}
		if b.count++; b.count < many {
			b.bytes += wire.HeaderSize + n
			return 0
		}
		b.prompt = b.idle == *c.idle || c.onTheWay(b.bytes) // the last bytes on the way are those of the frames counted
		b.count, b.bytes, b.heard = 0, 0, c.rxTotal
	case !c.stillMany(n):
		c.separate()
	case !b.held:
		b.held = true
		c.nagle(true)
	}
	if b.prompt {
		return wire.Prompt
	}
	return 0
}

// stillMany reports whether the sender should go on joining frames of n bytes of payload.
func (c *conn) stillMany(n int) bool {
	b := &c.bundle
	if b.count++; b.count < again && b.heard == c.rxTotal {
		return true
	}
	b.count, b.heard = 0, c.rxTotal
	return c.onTheWay(few * (wire.HeaderSize + n))
}

// onTheWay reports whether so many bytes are on the way to the peer's host.
func (c *conn) onTheWay(bytes int) bool {
	n, err := c.unacknowledged()
	return err == nil && n >= bytes
}

// separate makes the kernel send the frames that it holds, and from then on each frame at once.
func (c *conn) separate() {
	if c.bundle.held {
		c.nagle(false)
	}
	c.bundle = bundle{}
}

// nagle turns Nagle's algorithm on or off.
func (c *conn) nagle(on bool) {
	noDelay := int32(1)
	if on {
		noDelay = 0
	}
	c.setOption(unix.IPPROTO_TCP, unix.TCP_NODELAY, noDelay)
}
