package peer

import (
	"sync/atomic"
	"unsafe"

	"lightpath/shim/device"
	"lightpath/shim/memory"
)

// The page is host memory that all ranks of a communicator share, and the streams of all their devices with them: the tokens
// that ranks hand each other, and what is known of each. Tokens are read and written by streams; the CPU does so only to
// let a stream go that waits for a rank which will not come.

// maxRanks is how many ranks one kernel can combine.
const maxRanks = device.MaxSources

// The stages that memory is handed over for.
const (
	stageIn   = iota // a slot, with what a rank brings to a collective
	stagePart        // the part of a slot that a rank has combined for the others
	stagePair        // a slot between two ranks
	numStages
)

// numSlots is how many slots there are of a kind: one is filled while another is read.
const numSlots = 2

// A token is handed by the owner of memory to a reader when there is something to read, and back when it has been read:
// of the two words that it has, one is 1, or neither where a rank holds it. Whoever waits for a word sets it to 0, and only
// the other one sets it to 1.
const (
	tokenReady = iota // the reader waits for it
	tokenFree         // the owner waits for it; it begins here
	tokenWords
)

// tokenSize is what a word takes.
const tokenSize = 4

// directRank is what a rank says of itself in the page.
type directRank struct {
	current uint32 // number of the launch that its stream is in, 0: none; streams write it
	waited  uint32 // the rank's watcher sets it, the stream clears it at the beginning of a launch
	ended   uint32 // number of the last launch that has ended, but for those in graphs; streams write it

	// See grace. Watchers write the gates, the rank's stream the word between them.
	settling uint32 // 1: it has taken back what it has lent, and waits
	gateIn   uint32
	gateOut  uint32

	process uint64 // whose number pointer is meant in
	pointer uint64
	handle  device.Handle
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
	mem    []byte         // mapped for this rank alone, since a driver takes an address once
	at     device.Address // of mem, for streams
	shared *memory.Page   // at the leader, until all have mapped it
}

// tokenIndex is where a token's word is in the page.
func (p *tokenPage) tokenIndex(stage, slot, owner, reader, word int) int {
	return (((stage*numSlots+slot)*p.n+owner)*p.n+reader)*tokenWords + word
}

// tokensSize is what all tokens of n ranks take.
func tokensSize(n int) int {
	return (numStages*numSlots*n*n*tokenWords*tokenSize + memory.PageSize - 1) / memory.PageSize * memory.PageSize
}

// pageSize is the size of the page.
func pageSize(n int) int {
	return (tokensSize(n) + n*int(unsafe.Sizeof(directRank{})) + memory.PageSize - 1) / memory.PageSize * memory.PageSize
}

// token is a token's word for streams.
func (p *tokenPage) token(stage, slot, owner, reader, word int) device.Address {
	return p.at + device.Address(p.tokenIndex(stage, slot, owner, reader, word)*tokenSize)
}

// tokenWord is the same for the CPU.
func (p *tokenPage) tokenWord(stage, slot, owner, reader, word int) *uint32 {
	return (*uint32)(unsafe.Pointer(&p.mem[p.tokenIndex(stage, slot, owner, reader, word)*tokenSize]))
}

// rank is what a rank says of itself.
func (p *tokenPage) rank(r int) *directRank {
	return (*directRank)(unsafe.Pointer(&p.mem[tokensSize(p.n)+r*int(unsafe.Sizeof(directRank{}))]))
}

// wordOf is where streams find a word that tokens are none of.
func (p *tokenPage) wordOf(word *uint32) device.Address {
	return p.at + device.Address(uintptr(unsafe.Pointer(word))-uintptr(unsafe.Pointer(&p.mem[0])))
}

// begin lays all tokens where they belong before the first launch, and opens the gates. Leader only.
func (p *tokenPage) begin() {
	for r := range p.n {
		own := p.rank(r)
		own.gateIn, own.gateOut = 1, 1
	}
	for stage := range numStages {
		for slot := range numSlots {
			for owner := range p.n {
				for reader := range p.n {
					*p.tokenWord(stage, slot, owner, reader, tokenFree) = 1
				}
			}
		}
	}
}

// letGo gives a rank's stream all tokens that it may wait for.
func (p *tokenPage) letGo(rank int) {
	for stage := range numStages {
		for slot := range numSlots {
			for r := range p.n {
				atomic.StoreUint32(p.tokenWord(stage, slot, r, rank, tokenReady), 1)
				atomic.StoreUint32(p.tokenWord(stage, slot, rank, r, tokenFree), 1)
			}
		}
	}
}

// callRecord is a collective that a rank has called. Whoever finds the number in tag, before and after, may believe the rest.
type callRecord struct {
	tag   atomic.Uint64 // the number above, below the hash of this call and all before
	what  atomic.Uint64 // kind, type, operator and root
	count atomic.Uint64
}

// messageRecord is a message that a rank has sent or wants.
type messageRecord struct {
	number atomic.Uint64 // from 1, between two ranks
	bytes  atomic.Int64
}
