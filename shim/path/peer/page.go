package peer

import (
	"sync/atomic"
	"unsafe"

	"lightpath/shim/device"
	"lightpath/shim/device/pieces"
	"lightpath/shim/memory"
	"lightpath/shim/stream"
)

// The page is host memory that all ranks of a communicator share with the streams of their devices. It holds the
// tokens that ranks pass to each other, and the state of each rank. Streams read and write tokens. After begin the CPU
// writes tokens only to release the streams of a failed communicator.

// maxRanks is the largest number of ranks whose contributions one kernel can combine.
const maxRanks = device.MaxSources

// A stage says what memory a token passes.
const (
	stageRound = iota // the slots of a round of a collective
	stagePair         // a slot between two ranks
	numStages
)

// numSlots is the number of slots for collectives. A rank uses a slot again four rounds later. By then, tokens have
// told it that its readers have ended the round in which they gave the slot back.
const numSlots = 4

// pairSlots is the number of slots between two ranks. The owner fills one while the reader reads the other.
const pairSlots = 2

// An owner of memory passes a token to a reader when there is data to read. The reader passes it back when it has
// read. A token has two words. At most one word is 1, and none while a rank holds the token. Only the rank that waits
// for a word sets it to 0. Only the other rank sets it to 1.
const (
	tokenReady = iota // the reader waits for it
	tokenFree         // the owner waits for it, or knows that it is 1; 1 at the start
	tokenWords
)

// tokenSize is the size of a word in bytes.
const tokenSize = 4

// directRank is a rank's state in the page.
type directRank struct {
	current uint32 // number of the launch that the rank's stream is in, 0 if none; the stream writes it
	waited  uint32 // watchers set it; the stream clears it when it begins a launch
	ended   uint32 // number of the last launch that has ended, not counting graphs; the stream writes it

	// See grace. Watchers write the gates. The rank's stream writes settling.
	settling uint32 // 1: the stream has withdrawn its words and waits
	gateIn   uint32 // entry gate, open at 1
	gateOut  uint32 // exit gate, open at 1

	passed [1 + stream.MaxSides]uint32 // by line: the last mark that the stream has passed

	bytes   int64  // of the exchange memory
	pointer uint64 // to that memory, in the process of the rank
	handle  device.Handle
	server  [pieces.NameBytes]byte // name of the socket that answers for mapped regions, set before the first is published
	calls   [callsKept]callRecord
	sent    [maxRanks][messagesKept]messageRecord // by receiver
	wanted  [maxRanks][messagesKept]messageRecord // by sender
	regions [maxRegions]regionRecord
}

const (
	callsKept    = 64
	messagesKept = 16
)

// tokenPage is a rank's view of the page.
type tokenPage struct {
	n      int
	mem    []byte         // mapped for this rank alone, because a driver registers an address only once
	at     device.Address // of mem, for streams
	shared *memory.Page   // on the leader, until all ranks have mapped it
}

// tokenIndex returns the index of a token's word in the page.
func (p *tokenPage) tokenIndex(stage, slot, owner, reader, word int) int {
	return (((stage*numSlots+slot)*p.n+owner)*p.n+reader)*tokenWords + word
}

// tokensSize returns the size of all tokens of n ranks in bytes, in whole pages of memory.
func tokensSize(n int) int {
	return (numStages*numSlots*n*n*tokenWords*tokenSize + memory.PageSize - 1) / memory.PageSize * memory.PageSize
}

// pageSize returns the size of the page in bytes, in whole pages of memory.
func pageSize(n int) int {
	return (tokensSize(n) + n*int(unsafe.Sizeof(directRank{})) + memory.PageSize - 1) /
		memory.PageSize * memory.PageSize
}

// token returns the address of a token's word for streams.
func (p *tokenPage) token(stage, slot, owner, reader, word int) device.Address {
	return p.at + device.Address(p.tokenIndex(stage, slot, owner, reader, word)*tokenSize)
}

// tokenWord returns the address of a token's word for the CPU.
func (p *tokenPage) tokenWord(stage, slot, owner, reader, word int) *uint32 {
	return (*uint32)(unsafe.Pointer(&p.mem[p.tokenIndex(stage, slot, owner, reader, word)*tokenSize]))
}

// rank returns the state of rank r.
func (p *tokenPage) rank(r int) *directRank {
	return (*directRank)(unsafe.Pointer(&p.mem[tokensSize(p.n)+r*int(unsafe.Sizeof(directRank{}))]))
}

// wordOf returns the address for streams of a word of the page.
func (p *tokenPage) wordOf(word *uint32) device.Address {
	return p.at + device.Address(uintptr(unsafe.Pointer(word))-uintptr(unsafe.Pointer(&p.mem[0])))
}

// begin sets all tokens to free and opens the gates. The leader calls it before the first launch.
func (p *tokenPage) begin() {
	for r := range p.n {
		own := p.rank(r)
		own.gateIn, own.gateOut = 1, 1
	}
	for owner := range p.n {
		p.eachSlot(func(stage, slot, reader int) { *p.tokenWord(stage, slot, owner, reader, tokenFree) = 1 })
	}
}

// eachSlot calls f for all slots of a rank, and each peer.
func (p *tokenPage) eachSlot(f func(stage, slot, peer int)) {
	for stage := range numStages {
		for slot := range numSlots {
			for peer := range p.n {
				f(stage, slot, peer)
			}
		}
	}
}

// letGo sets all token words that a rank's stream may wait for.
func (p *tokenPage) letGo(rank int) {
	p.eachSlot(func(stage, slot, peer int) {
		atomic.StoreUint32(p.tokenWord(stage, slot, peer, rank, tokenReady), 1)
		atomic.StoreUint32(p.tokenWord(stage, slot, rank, peer, tokenFree), 1)
	})
}

// callRecord is a collective that a rank has called. If tag has the number before and after a read, the other fields
// belong to that call.
type callRecord struct {
	tag   atomic.Uint64 // upper half: the number of the call; lower half: the hash of this and all earlier calls
	what  atomic.Uint64 // kind, type, operator and root
	count atomic.Uint64
	graph atomic.Uint32 // 1: it was captured
}

// messageRecord is a message that a rank has called to send or to receive.
type messageRecord struct {
	number atomic.Uint64 // from 1, between two ranks in one direction
	bytes  atomic.Int64
}
