package peer

import (
	"unsafe"

	"lightpath/shim/calls"
)

// This file exports internals to the tests of whole communicators in package peer_test.

type (
	// Region is registered memory.
	Region = region
	// Operation is a collective of a launch.
	Operation = operation
)

// Limits.
const (
	MaxRegions = maxRegions
	SaidBytes  = saidBytes
	SaidWords  = saidWords
	WordSend   = wordSend
)

// Functions of a path.
var (
	Of         = slot.Of
	IsOpen     = (*Path).isOpen
	IsClosed   = (*Path).closedByAll
	Library    = (*Path).libraryAt
	Said       = func(x *Path, owner, reader, word int) unsafe.Pointer { return x.exchange.said(owner, reader, word) }
	Tag        = (*operation).tag
	LendAbove  = (*Path).lendAbove
	ShutGates  = (*Path).shutGates
	PeerFailed = (*Path).peerFailed
)

// OperationOf returns an operation of a call.
func OperationOf(call *calls.Call) *Operation { return &operation{call: call} }

// Regions returns the memory that a rank has registered. The caller holds the lock of the device.
func Regions(x *Path) []*Region { return x.published.regions }

// Replace makes a region one of an earlier allocation at the same address.
func Replace(r *Region) { r.pieces[0].id++ }

// Lendable reports whether a rank would lend a buffer in a collective.
func Lendable(x *Path, at unsafe.Pointer, size int64, call uint64) bool {
	before := func(r *region) bool { return x.openedBefore(r, call) }
	return x.lendable(at, size, x.numberAt(uintptr(at)), before) != nil
}

// LendableTo reports whether a rank would lend a message to a peer.
func LendableTo(x *Path, peer int, at unsafe.Pointer, size int64, number uint64) bool {
	before := func(r *region) bool { return x.openedBy(peer, r, number) }
	return x.lendable(at, size, x.numberAt(uintptr(at)), before) != nil
}

// Since returns the number of the last collective before all peers had opened a region.
func Since(r *Region) uint64 { return r.since }

// SetWanted sets how many messages a peer had received from the owner when it opened a region.
func SetWanted(x *Path, owner, region, peer int, messages uint64) {
	x.recordOf(owner, region).opened[peer].wanted.Store(messages)
}

// SetSerial sets which region a peer has opened.
func SetSerial(x *Path, owner, region, peer int, serial uint64) {
	x.recordOf(owner, region).opened[peer].serial.Store(serial)
}

// MessagesLent returns how many messages of the last launch lend their buffers.
func MessagesLent(x *Path) (n int) {
	for i := range x.launch.msgs {
		if x.launch.msgs[i].lent != nil {
			n++
		}
	}
	return n
}

// OwnSaid returns the words of a path's own rank.
func OwnSaid(x *Path) unsafe.Pointer { return x.exchange.said(x.me, 0, 0) }

// PairBytes returns the size of a slot between two ranks.
func PairBytes(x *Path) int64 { return x.exchange.pairBytes }

// Tried returns the addresses of memory that a path has tried to publish without registration.
func Tried(x *Path) map[uintptr]bool { return x.published.unasked.tried }

// WatcherOver returns a channel that is closed when the watcher of a path has ended.
func WatcherOver(x *Path) <-chan struct{} { return x.watcher.over }
