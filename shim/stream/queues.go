package stream

import (
	"fmt"
	"os"
	"strconv"
	"sync"

	"lightpath/shim/comm"
	"lightpath/shim/errdefs"
)

// Streams of a context share queues of the driver. A stream that waits holds up all others of its queue.

// queues returns how many queues of the driver streams of a context share.
func queues() int {
	n, err := strconv.Atoi(os.Getenv(setting))
	if err != nil || n < 1 {
		return 8
	}
	return min(n, mostQueues)
}

// mostSides returns how many side streams a context has. Most queues are left to the program's streams. With one queue,
// side streams would wait for each other.
func mostSides() int { return queues() / 4 }

// MaxSides is the most side streams that a launch can have.
const MaxSides = 4

// sidesOfLaunch returns how many side streams a launch of a communicator has at most. Other communicators, and other
// ranks in the context, get some as well.
func sidesOfLaunch(c *comm.Core) int {
	all := mostSides()
	return min(max(all/2/Sharing(c), 1), all, MaxSides)
}

// Sharing returns how many ranks of the communicator are in this process and have the rank's device.
func Sharing(c *comm.Core) (n int) {
	own := &c.Table[c.Rank]
	if own.Identity == "" {
		return 1
	}
	for i := range c.Table {
		if c.Table[i].Process == own.Process && c.Table[i].Identity == own.Identity {
			n++
		}
	}
	return n
}

// mostQueues is the most queues that a context has.
const mostQueues = 32

// setting is the variable that says how many queues the driver uses.
const setting = "CUDA_DEVICE_MAX_CONNECTIONS"

// CheckQueues refuses ranks whose streams are sure to wait for each other, and warns of streams that may. All ranks of
// the communicator know the others.
func CheckQueues(c *comm.Core) error {
	if Of(c) == nil || c.Ranks == 1 {
		return nil
	}
	n, sharing := queues(), Sharing(c)
	if sharing > 1 && n == 1 {
		return fmt.Errorf("shim: rank %d: %d ranks of this process share its device, and %s=1: their streams would wait for "+
			"each other. Set it to %d before the program starts: %w", c.Rank, sharing, setting, mostQueues,
			errdefs.ErrInvalidUsage)
	}
	if hint := QueueHint(c); hint != "" && n < mostQueues {
		warnOfQueues.Do(func() { c.Log.Warn("rank %d: calls may time out%s", c.Rank, hint) })
	}
	return nil
}

// QueueHint returns why calls may wait for ever, "" if the queues are no reason.
func QueueHint(c *comm.Core) string {
	switch n, sharing := queues(), Sharing(c); {
	case n == 1:
		return fmt.Sprintf("; with %s=1 all streams have one queue of the driver: what waits for a peer holds up all later "+
			"work, so every rank must post its calls in one order", setting)
	case sharing > 1:
		return fmt.Sprintf("; %d ranks of this process share the device and the driver's %d queues (%s, at most %d): "+
			"streams of two ranks in one queue wait for each other", sharing, n, setting, mostQueues)
	}
	return ""
}

var warnOfQueues sync.Once
