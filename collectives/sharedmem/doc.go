// Package sharedmem runs collectives between ranks that share memory. No frames are sent: each rank fills slots of its
// own with its contribution and reads the slots of its peers.
//
// The shared memory is an arena. In it every rank has three rings of slots: small and middle slots for calls of one
// piece, and large slots for the pieces (chunks) of large calls. For each ring a counter says how many chunks the rank
// has consumed. A slot is a header, which says to which call the chunk belongs, and data:
//
//	number u64 (atomic)  chunk number + 1: the other fields and the data are complete
//	seq    u64           operation of the communicator
//	chain  u64           hash of this operation and all earlier ones
//	sig    u32           signature of the call
//	place  u32           with a region: its index in the rank's table
//	data, if it is at most inlineMax bytes; else, in large slots,
//	at     u64           address of the data in this rank's process, 0 if the data is in the slot
//	region u64           number of the region that holds the data, 0 if peers cannot map it
//	offset u64           where the data begins in that region
//	reduced u64 (atomic) chunk number + 1: this rank's part of the result is in the slot
//	data
//
// Only the owner writes a slot: chunk k goes into slot k mod slots, after every rank has consumed chunk k - slots. All
// ranks make the same calls, so they number chunks alike. If they do not, a header shows it, at the latest in the next
// call.
//
// Layer: inside collectives, beside program: an [exec.Engine]. It decides nothing that ranks could see differently. It
// never waits: its caller polls.
package sharedmem
