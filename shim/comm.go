package shim

// InitArgs asks for one communicator of this process.
type InitArgs struct {
	ID                  UniqueID
	Ranks, Rank, Device int
	// Blocking is the configuration's; calls complete before they return either way.
	Blocking bool
	Name     string // for logs
}

// Comm is one rank of a communicator. Safe for concurrent use: calls from several
// threads on one communicator are taken one at a time.
type Comm struct {
	args InitArgs
}

// Ranks is the number of ranks of the communicator.
func (c *Comm) Ranks() int { return c.args.Ranks }

// Rank is this rank's number, 0 .. Ranks-1.
func (c *Comm) Rank() int { return c.args.Rank }

// Device is the device that the communicator was made for.
func (c *Comm) Device() int { return c.args.Device }
