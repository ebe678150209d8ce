// Package frames recycles the memory of received frames.
//
// It imports wire and nothing else of Lightpath. It knows neither flows nor planes.
package frames

import "lightpath/collectives/wire"

// Frame is a received frame. Its owner sets all fields.
type Frame struct {
	Header wire.Header
	Data   []byte // the payload, in Buf
	Buf    []byte
	Next   *Frame // in a list of the owner
}

// Pool holds the free frames of one plane. It never shrinks, so the steady state does not allocate.
type Pool struct {
	Size  int // of a buffer in bytes
	Limit int // the largest number of frames; 0: none
	made  int // frames allocated so far
	free  *Frame
}

// Get returns a frame with a buffer, or nil at the limit.
func (p *Pool) Get() *Frame {
	if f := p.free; f != nil {
		p.free = f.Next
		return f
	}
	if p.made == p.Limit && p.Limit > 0 {
		return nil
	}
	p.made++
	return &Frame{Buf: make([]byte, p.Size)}
}

// Put returns a frame to the pool.
func (p *Pool) Put(f *Frame) {
	f.Data, f.Next = nil, p.free
	p.free = f
}
