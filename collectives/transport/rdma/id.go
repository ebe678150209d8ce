package rdma

// An ID names the peer in bits 48 to 62. Bit 63 is set for receives. The bits below are the number of a send.
const (
	recvBit    = 1 << 63
	rankShift  = 48
	numberMask = 1<<rankShift - 1
)

// SendID returns the ID of a send to a rank. The sends to each rank are numbered from 1.
func SendID(rank int, number uint64) uint64 { return uint64(rank)<<rankShift | number&numberMask }

// RecvID returns the ID of all receives from a rank.
func RecvID(rank int) uint64 { return uint64(rank)<<rankShift | recvBit }

// Rank returns the rank of the ID.
func (c *Completion) Rank() int { return int(c.ID &^ recvBit >> rankShift) }

// Received reports whether the ID is one of receives.
func (c *Completion) Received() bool { return c.ID&recvBit != 0 }

// Number returns the number of a send. The send before it that was known to be complete is the last one.
func (c *Completion) Number(last uint64) uint64 { return last + (c.ID-last)&numberMask }
