package calls

import (
	"fmt"
	"math/bits"
	"strings"
	"time"

	"lightpath/shim/planeset"
)

// Options are a call's requests beyond NCCL's arguments. The zero value requests nothing. All ranks must request the
// same plan and planes. Each rank has its own deadline.
type Options struct {
	// Plan begins the digest of the plan that the call must run. It needs planes with circuits.
	Plan DigestPrefix
	// Planes has a bit for each plane that the call may use, 0 for all: planes with circuits if the communicator has
	// some, else packet planes. If none of them is in service, the call runs on packet planes.
	Planes uint64
	// Deadline bounds the time of the call's group. 0 means no bound except LIGHTPATH_TIMEOUT without progress. A
	// missed deadline fails the communicator on all ranks, since no rank knows the progress of the others.
	Deadline time.Duration
}

// DigestPrefix is the first hexadecimal digits of a plan's digest, up to 16.
type DigestPrefix struct {
	Bits   uint64 // the first digit in the most significant bits; 0 beyond the last
	Digits uint8
}

// String returns the digits.
func (p DigestPrefix) String() string {
	return fmt.Sprintf("%016x", p.Bits)[:min(p.Digits, 16)]
}

// Matches reports whether a plan's digest begins with p.
func (p DigestPrefix) Matches(digest string) bool { return strings.HasPrefix(digest, p.String()) }

// Request is the part of options that ranks must agree on.
type Request struct {
	Plan   DigestPrefix
	Planes planeset.Set
}

// signature returns a request's part of the signature of a call.
func (w *Request) signature() uint64 {
	h := w.Plan.Bits ^ uint64(w.Plan.Digits)<<1
	return bits.RotateLeft64(h, 17)*0x9e3779b97f4a7c15 ^ uint64(w.Planes)
}

// String describes a request for messages; "" for none.
func (w *Request) String() (s string) {
	if w.Plan.Digits > 0 {
		s += ", plan " + w.Plan.String()
	}
	if w.Planes != 0 {
		s += fmt.Sprintf(", planes %#x", uint64(w.Planes))
	}
	return s
}

// checkOptions checks the options of a call, by facts that are the same on all ranks.
func (c *Call) checkOptions() error {
	o := &c.Options
	if *o == (Options{}) {
		return nil
	}
	f := FactsOf(c.Comm)
	asked := planeset.Set(o.Planes)
	switch {
	case o.Deadline < 0:
		return c.Invalid("deadline of %v", o.Deadline)
	case c.Kind.P2P() && (o.Planes != 0 || o.Plan.Digits != 0):
		return c.Invalid("only collectives can ask for a plan or planes")
	case asked&^f.Planes != 0:
		return c.Invalid("planes %#x are not among the communicator's %#x", o.Planes, uint64(f.Planes))
	case asked.Usable(f.CircuitKind) != asked:
		return c.Invalid("planes %#x: interleaved planes serve in pairs", o.Planes)
	case o.Plan.Digits > 16:
		return c.Invalid("a plan is named by at most 16 digits of its digest, not %d", o.Plan.Digits)
	case o.Plan.Digits > 0 && !f.Circuits:
		return c.Invalid("plan %v: the communicator has no planes with circuits", o.Plan)
	}
	return nil
}

// DeadlineOf returns the deadline of a group that begins now, the zero time for none.
func DeadlineOf(calls []Call) (t time.Time) {
	least := time.Duration(0)
	for i := range calls {
		if d := calls[i].Options.Deadline; d > 0 && (least == 0 || d < least) {
			least = d
		}
	}
	if least > 0 {
		t = time.Now().Add(least)
	}
	return t
}
