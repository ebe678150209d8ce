package report

import (
	"fmt"

	"lightpath/shim/comm"
	"lightpath/shim/errdefs"
	"lightpath/shim/session"
	"lightpath/shim/stream"
)

// MemStat is a question about a communicator's memory; the values are ncclCommMemStat_t's.
type MemStat int32

// The questions, in bytes.
const (
	// MemSuspend is the memory that Suspend would free: programs and scratch.
	MemSuspend MemStat = iota
	// MemSuspended is 1 while the communicator is suspended, else 0.
	MemSuspended
	// MemPersist is the memory that the communicator keeps until it ends: shared memory of its packet planes, staging
	// memory, and device memory for exchange. The ranks of a host share the first, and each reports all of it.
	MemPersist
	// MemTotal is the sum of MemSuspend and MemPersist.
	MemTotal
)

// MemStats answers a question about the communicator's memory. It waits for a call in progress.
func MemStats(c *comm.Core, s MemStat) (uint64, error) {
	if life := c.Life(); life != comm.Alive && life != comm.Suspended {
		return 0, c.Usable()
	}
	c.Turn.Lock()
	defer c.Turn.Unlock()
	var persist uint64
	if m, ok := session.Of(c).Packet.(interface{ Mapped() int }); ok {
		persist = uint64(m.Mapped())
	}
	if d := stream.Of(c); d != nil {
		persist += d.Exchange + uint64(d.Locked.Load())
	}
	switch s {
	case MemSuspend:
		return session.Of(c).Bytes(), nil
	case MemSuspended:
		if c.Life() == comm.Suspended {
			return 1, nil
		}
		return 0, nil
	case MemPersist:
		return persist, nil
	case MemTotal:
		return persist + session.Of(c).Bytes(), nil
	}
	return 0, fmt.Errorf("shim: memory statistic %d is none: %w", s, errdefs.ErrInvalidArgument)
}
