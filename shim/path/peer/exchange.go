package peer

import (
	"fmt"
	"unsafe"

	"lightpath/shim/device"
	"lightpath/shim/errdefs"
	"lightpath/shim/settings"
	"lightpath/shim/stream"
)

// exchange is device memory of all ranks through which they exchange data. Each rank's memory has slots for
// collectives, slots for messages to each peer, scratch memory, and a last page of words and counters.
type exchange struct {
	n, me     int
	of        []unsafe.Pointer // by rank
	imported  rankSet          // ranks whose memory must be closed
	allocated int64            // size of this rank's memory
	used      int64            // how much of each rank's memory is used
	slotBytes int64            // size of a slot for collectives
	pairBytes int64            // size of a slot between two ranks
}

// slot returns the address of a rank's slot for collectives.
func (e *exchange) slot(rank, slot int) unsafe.Pointer {
	return unsafe.Add(e.of[rank], int64(slot)*e.slotBytes)
}

// pair returns the address of the owner's slot for messages to a reader.
func (e *exchange) pair(owner, reader, slot int) unsafe.Pointer {
	return unsafe.Add(e.of[owner], numSlots*e.slotBytes+int64(reader*pairSlots+slot)*e.pairBytes)
}

// scratch returns memory of this rank for data that the driver copies to memory of the host. Messages from a peer use
// pairBytes of it.
func (e *exchange) scratch() unsafe.Pointer { return e.pair(e.me, e.n, 0) }

func (e *exchange) scratchBytes() int64 { return int64(e.n) * e.pairBytes }

// counter returns the address of a counter in the last page of a rank's exchange memory, which begins with the words
// of lend.go. Kernels count there: a counter for each kind of token and slot, and one for each line.
func (e *exchange) counter(rank, at int) device.Address {
	return device.Address(uintptr(e.lastPage(rank))) + device.Address(at)
}

// blockCounters is the offset of the counters of lines, behind those of tokens.
const blockCounters = saidBytes + tokenWords*numSlots*tokenSize

// countersBytes is the size of a rank's counters.
const countersBytes = (tokenWords*numSlots + 1 + 2*maxRanks) * tokenSize

// slotAlign is the alignment of slots in bytes, and the size of the last page.
const slotAlign = 4096

// divide cuts exchange memory of size bytes into slots for collectives, for messages, and scratch. More ranks have more
// slots for messages, so these get a larger part: small chunks of messages cost more operations than bytes.
func (e *exchange) divide(size int64) error {
	size &^= slotAlign - 1
	e.used = size
	e.slotBytes = size / int64(numSlots+e.n/2) &^ (slotAlign - 1)
	e.pairBytes = (size - numSlots*e.slotBytes - slotAlign) / int64((pairSlots+1)*e.n) &^ (slotAlign - 1)
	if e.pairBytes == 0 {
		return fmt.Errorf("shim: LIGHTPATH_DEVICE_EXCHANGE=%d is too small for %d ranks: %w",
			size, e.n, errdefs.ErrInvalidUsage)
	}
	return nil
}

// said returns the address of a word by which owner tells reader what it lends.
func (e *exchange) said(owner, reader, word int) unsafe.Pointer {
	return unsafe.Add(e.lastPage(owner), (reader*saidWords+word)*8)
}

func (e *exchange) lastPage(rank int) unsafe.Pointer { return unsafe.Add(e.of[rank], e.used-slotAlign) }

// exchangeShare is the part of a device's memory that the ranks of a communicator reserve, if all are on that device:
// eight communicators have 6 % of it. Then two ranks exchange 256 MiB on an H200 in three rounds.
const exchangeShare = 128

// reserve reserves size bytes for this rank on the device of a number, 0 for as many as suit it.
func (e *exchange) reserve(driver device.Peers, pool *stream.Pool, number int, size int64) (err error) {
	if size == 0 {
		total, err := driver.TotalMemory()
		if err != nil {
			return err
		}
		const unit = 1 << 20
		size = max(total/exchangeShare/int64(e.n)/unit*unit, settings.DefaultExchange)
	}
	e.allocated = size
	if e.of[e.me], err = pool.TakeMemory(size); err != nil {
		return fmt.Errorf("LIGHTPATH_DEVICE_EXCHANGE=%d bytes on device %d: %w", size, number, err)
	}
	return nil
}

// free releases the memory of all ranks, when no stream uses it any more. If read is set, no peer reads this rank's
// memory any more, and it is kept for the next communicator.
func (e *exchange) free(driver device.Peers, pool *stream.Pool, read bool) {
	e.imported.each(func(r int) {
		at := e.of[r]
		pool.Later(func() { _ = driver.Close(at) })
	})
	if at := e.of[e.me]; at != nil && read {
		pool.GiveMemory(at, e.allocated)
	}
}
