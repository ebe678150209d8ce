package stream

import (
	"sync"

	"lightpath/shim/device"
)

// Place is something on a stream that wants to know when the stream has come to it.
type Place interface {
	// Come is called when a stream has come to the place, with the number of [Token.Part]. It runs on a thread of the driver:
	// it must not wait and not call the driver.
	Come(part int)
}

// Token is a number that a driver can carry. It stands for a place. The token of a place that is gone means nothing.
type Token uintptr

// A token has the part in its lowest bits, then the place's index, then how often the index has been given.
const (
	partBits  = 8
	indexBits = 28
)

// Part returns the token for a part of the place.
func (t Token) Part(part int) uintptr { return uintptr(t) | uintptr(part) }

func (t Token) index() int { return int(t >> partBits & (1<<indexBits - 1)) }

// places are the places of this process. Safe for concurrent use.
type places struct {
	mu    sync.Mutex
	all   []numbered
	spare []int // indexes
}

type numbered struct {
	place Place
	token Token // of the place, or of the next one
}

var table places

// Places is what a [device.Driver] tells how far streams have come.
func Places() device.Handler { return &table }

// AddPlace returns the token of a new place.
func AddPlace(p Place) Token {
	table.mu.Lock()
	defer table.mu.Unlock()
	n := len(table.spare)
	if n == 0 {
		table.all = append(table.all, numbered{token: 1<<(partBits+indexBits) | Token(len(table.all))<<partBits})
		table.spare = append(table.spare, len(table.all)-1)
		n = 1
	}
	at := &table.all[table.spare[n-1]]
	table.spare = table.spare[:n-1]
	at.place = p
	return at.token
}

// DropPlace forgets a place.
func DropPlace(t Token) {
	table.mu.Lock()
	defer table.mu.Unlock()
	if at := table.find(uintptr(t)); at != nil {
		at.place = nil
		at.token += 1 << (partBits + indexBits)
		table.spare = append(table.spare, t.index())
	}
}

// find returns the entry of a token, nil for none. mu is held.
func (t *places) find(token uintptr) *numbered {
	of := Token(token &^ (1<<partBits - 1))
	if i := of.index(); i < len(t.all) && t.all[i].place != nil && t.all[i].token == of {
		return &t.all[i]
	}
	return nil
}

// Ready implements [device.Handler]. Hot path: no allocation.
func (t *places) Ready(token uintptr) {
	t.mu.Lock()
	var p Place
	if at := t.find(token); at != nil {
		p = at.place
	}
	t.mu.Unlock()
	if p != nil {
		p.Come(int(token & (1<<partBits - 1)))
	}
}

// Forget implements [device.Handler]: a graph is gone.
func (t *places) Forget(token uintptr) { t.Ready(token) }

// graphResource is what a graph keeps.
type graphResource struct {
	token   Token
	release func()
}

// Come implements [Place].
func (r *graphResource) Come(int) {
	DropPlace(r.token)
	r.release()
}

// OnGraphGone has release called once a graph and all copies of it are gone, on a thread of the driver: release must not
// call the driver. With an error release is not called.
func OnGraphGone(capture device.Capture, release func()) error {
	r := &graphResource{release: release}
	r.token = AddPlace(r)
	err := device.Active().Retain(capture, uintptr(r.token))
	if err != nil {
		DropPlace(r.token)
	}
	return err
}
