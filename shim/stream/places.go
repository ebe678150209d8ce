package stream

import (
	"sync"

	"lightpath/shim/device"
)

// Place is a point on a stream. The driver tells it when the stream reaches it.
type Place interface {
	// Come is called when a stream has reached the place, with the number of [Token.Part]. It runs on a thread of the
	// driver: it must not wait or call the driver.
	Come(part int)
}

// Token is a number that stands for a place and that a driver can carry. After DropPlace it stands for nothing.
type Token uintptr

// A token has three fields from the lowest bit: the part, the place's index, and how often the index has been used.
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
	token Token // of the place, or of the next place with this index
}

var table places

// Places returns the handler to which a [device.Driver] reports how far streams have advanced.
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

// DropPlace removes a place. Its token becomes invalid.
func DropPlace(t Token) {
	table.mu.Lock()
	defer table.mu.Unlock()
	if at := table.find(uintptr(t)); at != nil {
		at.place = nil
		at.token += 1 << (partBits + indexBits)
		table.spare = append(table.spare, t.index())
	}
}

// find returns the entry of a token, nil if the token is invalid. The caller holds mu.
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

// graphResource is a resource that a graph owns.
type graphResource struct {
	token   Token
	release func()
}

// Come implements [Place].
func (r *graphResource) Come(int) {
	DropPlace(r.token)
	r.release()
}

// OnGraphGone calls release once a graph and all its copies have been destroyed. release runs on a thread of the
// driver, so it must not call the driver. If OnGraphGone returns an error, it never calls release.
func OnGraphGone(capture device.Capture, release func()) error {
	r := &graphResource{release: release}
	r.token = AddPlace(r)
	err := device.Active().Retain(capture, uintptr(r.token))
	if err != nil {
		DropPlace(r.token)
	}
	return err
}
