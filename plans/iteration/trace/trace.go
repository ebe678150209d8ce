package trace

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"lightpath/internal/decode"
)

// Version is the version of the trace file.
const Version = 1

// Limits of a trace.
const (
	MaxRanks         = 4096
	maxCommunicators = 4096
	MaxCalls         = 1 << 14
	MaxAfter         = 64 // calls that one call waits for
	maxFlows         = 1 << 20
)

// Begin stands for the begin of the iteration in the field Call of an [After].
const Begin = -1

// ErrTrace is wrapped by every error about a trace. The message names field and position, as in
// "calls[3].bytes: -5 is negative".
var ErrTrace = errors.New("bad trace")

// Trace is one iteration of a job, which repeats. A decoded trace has passed [Trace.Validate]; it is not changed after
// that, and is then safe for concurrent use.
type Trace struct {
	Name  string
	Ranks int // of the job; ranks of communicators are numbers below it
	// ComputeUS is the least time of an iteration: computation that no call delays.
	ComputeUS     float64
	Communicators []Communicator
	Calls         []Call
}

// Communicator is a communicator of the job, or several disjoint ones that make the same calls at the same time.
type Communicator struct {
	Name string
	// Groups hold, for each communicator, the rank of the job of each of its ranks. All have the same number of ranks.
	Groups [][]int
}

// Call is one call of every group of a communicator.
type Call struct {
	Name         string // "" where it has none
	Communicator int    // index into Trace.Communicators
	// Collective and Algorithm are names of package schedule. Without a collective the call is a group of sends and
	// receives: Flows.
	Collective, Algorithm string
	Root                  int
	// Flows are {source, destination} by the communicator's ranks. FlowBytes are their sizes if they differ, else nil.
	Flows     [][2]int
	FlowBytes []float64
	// Bytes is the size of a collective, as nccl-tests counts it, or of the largest flow.
	Bytes float64
	// After are the calls that must have ended before this one comes, with the computation after them.
	After []After
	// TailUS is the computation of the iteration after the end of this call.
	TailUS float64
}

// After says that a call comes at least GapUS after the end of call Call, or after the begin of the iteration.
type After struct {
	Call  int // less than the number of the call that waits; [Begin] is the begin of the iteration
	GapUS float64
}

// Size returns the number of ranks of each communicator.
func (c *Communicator) Size() int { return len(c.Groups[0]) }

// SetFlows makes the call one of flows of the given sizes.
func (c *Call) SetFlows(bytes map[[2]int]float64) {
	c.Flows = slices.SortedFunc(maps.Keys(bytes), func(a, b [2]int) int { return slices.Compare(a[:], b[:]) })
	c.FlowBytes, c.Bytes = make([]float64, len(c.Flows)), 0
	for k, f := range c.Flows {
		c.FlowBytes[k] = bytes[f]
		c.Bytes = math.Max(c.Bytes, bytes[f])
	}
	if !slices.ContainsFunc(c.FlowBytes, func(b float64) bool { return b != c.Bytes }) {
		c.FlowBytes = nil
	}
}

// BytesOf returns the size of flow k.
func (c *Call) BytesOf(k int) float64 {
	if c.FlowBytes == nil {
		return c.Bytes
	}
	return c.FlowBytes[k]
}

// Busiest returns the most bytes that a rank sends or receives in a call of flows.
func (c *Call) Busiest() (most float64) {
	sent, received := map[int]float64{}, map[int]float64{}
	for k, f := range c.Flows {
		sent[f[0]] += c.BytesOf(k)
		received[f[1]] += c.BytesOf(k)
		most = max(most, sent[f[0]], received[f[1]])
	}
	return most
}

// Kind describes what the call does: "allreduce ring, 1048576 bytes".
func (c *Call) Kind() string {
	switch {
	case c.FlowBytes != nil:
		return fmt.Sprintf("%d sends, up to %.10g bytes each", len(c.Flows), c.Bytes)
	case c.Collective == "":
		return fmt.Sprintf("%d sends, %.10g bytes each", len(c.Flows), c.Bytes)
	}
	return fmt.Sprintf("%s %s, %.10g bytes", c.Collective, c.Algorithm, c.Bytes)
}

// Label returns the name of call i, or its kind.
func (t *Trace) Label(i int) string {
	c := &t.Calls[i]
	if c.Name != "" {
		return c.Name
	}
	if c.Collective == "" {
		return "sends"
	}
	return c.Collective
}

// Ready returns when call i comes, if earlier calls end at the given times after the begin of the iteration.
func (t *Trace) Ready(i int, end []float64) float64 {
	ready := 0.0
	for _, a := range t.Calls[i].After {
		at := a.GapUS
		if a.Call != Begin {
			at += end[a.Call]
		}
		ready = math.Max(ready, at)
	}
	return ready
}

// End returns when the iteration ends, if its calls end at the given times.
func (t *Trace) End(end []float64) float64 {
	last := t.ComputeUS
	for i := range t.Calls {
		last = math.Max(last, end[i]+t.Calls[i].TailUS)
	}
	return last
}

// Longest returns the time of the iteration if call i takes us[i], and no call waits for circuits. Nil us means that
// all calls take no time: then it is the computation.
func (t *Trace) Longest(us []float64) float64 {
	end := make([]float64, len(t.Calls))
	for i := range t.Calls {
		end[i] = t.Ready(i, end)
		if us != nil {
			end[i] += us[i]
		}
	}
	return t.End(end)
}

// Stays is the time of a call that [Trace.Without] keeps.
const Stays = -1

// Without returns the trace without some calls, and the numbers of those that are left. us[i] is the time of call i, or
// [Stays]. A call that waits for a call without a place waits for the calls before it instead, for its time longer.
func (t *Trace) Without(us []float64) (*Trace, []int) {
	out := *t
	out.Calls = nil
	var left []int
	ends := make([][]After, len(t.Calls)) // for which calls of out the end of a call waits
	for i := range t.Calls {
		c := t.Calls[i]
		var after []After
		for _, a := range c.After {
			if a.Call == Begin {
				after = latest(after, a)
				continue
			}
			for _, b := range ends[a.Call] {
				after = latest(after, After{b.Call, b.GapUS + a.GapUS})
			}
		}
		if us[i] == Stays {
			c.After, ends[i] = after, []After{{Call: len(out.Calls)}}
			out.Calls, left = append(out.Calls, c), append(left, i)
			continue
		}
		for k := range after {
			after[k].GapUS += us[i]
			if b := after[k]; b.Call == Begin {
				out.ComputeUS = math.Max(out.ComputeUS, b.GapUS+c.TailUS)
			} else {
				out.Calls[b.Call].TailUS = math.Max(out.Calls[b.Call].TailUS, b.GapUS+c.TailUS)
			}
		}
		ends[i] = after
	}
	return &out, left
}

// latest adds a call that another one waits for. If it waits for that call already, the longer gap counts.
func latest(all []After, a After) []After {
	for k := range all {
		if all[k].Call == a.Call {
			all[k].GapUS = math.Max(all[k].GapUS, a.GapUS)
			return all
		}
	}
	return append(all, a)
}

// Digest returns the SHA-256, in lower-case hex, of the output of [Trace.Encode].
func (t *Trace) Digest() string {
	sum := sha256.Sum256(t.Encode())
	return hex.EncodeToString(sum[:])
}

// Validate reports the first rule of the format that t breaks. Errors wrap [ErrTrace].
func (t *Trace) Validate() error {
	if err := t.validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrTrace, err)
	}
	return nil
}

func (t *Trace) validate() error {
	switch {
	case t.Ranks < 1 || t.Ranks > MaxRanks:
		return decode.At("ranks", "%d is outside 1..%d", t.Ranks, MaxRanks)
	case len(t.Communicators) == 0 || len(t.Communicators) > maxCommunicators:
		return decode.At("communicators", "%d are outside 1..%d", len(t.Communicators), maxCommunicators)
	case len(t.Calls) == 0 || len(t.Calls) > MaxCalls:
		return decode.At("calls", "%d are outside 1..%d", len(t.Calls), MaxCalls)
	}
	if err := decode.Amount("compute_us", t.ComputeUS); err != nil {
		return err
	}
	for i := range t.Communicators {
		if err := t.checkCommunicator(i); err != nil {
			return err
		}
	}
	for i := range t.Calls {
		if err := t.checkCall(i); err != nil {
			return err
		}
	}
	return nil
}

func (t *Trace) checkCommunicator(i int) error {
	path := fmt.Sprintf("communicators[%d].groups", i)
	groups := t.Communicators[i].Groups
	if len(groups) == 0 {
		return decode.At(path, "has no group")
	}
	seen := make([]bool, t.Ranks)
	for g, ranks := range groups {
		if len(ranks) == 0 || len(ranks) != len(groups[0]) {
			return decode.At(fmt.Sprintf("%s[%d]", path, g), "has %d ranks, and groups[0] has %d", len(ranks), len(groups[0]))
		}
		for k, r := range ranks {
			at := fmt.Sprintf("%s[%d][%d]", path, g, k)
			switch {
			case r < 0 || r >= t.Ranks:
				return decode.At(at, "%d is outside 0..%d", r, t.Ranks-1)
			case seen[r]:
				return decode.At(at, "rank %d is listed twice", r)
			}
			seen[r] = true
		}
	}
	return nil
}

func (t *Trace) checkCall(i int) error {
	c := &t.Calls[i]
	path := fmt.Sprintf("calls[%d]", i)
	if c.Communicator < 0 || c.Communicator >= len(t.Communicators) {
		return decode.At(path+".communicator", "%d is outside 0..%d", c.Communicator, len(t.Communicators)-1)
	}
	if err := decode.Amount(path+".bytes", c.Bytes); err != nil {
		return err
	}
	if err := decode.Amount(path+".tail_us", c.TailUS); err != nil {
		return err
	}
	size := t.Communicators[c.Communicator].Size()
	switch {
	case c.Collective == "" && c.Flows == nil:
		return decode.At(path+".collective", "missing: a call has a collective or flows")
	case c.Collective != "" && c.Flows != nil:
		return decode.At(path+".flows", "a call has a collective or flows, not both")
	case c.Collective != "" && c.Algorithm == "":
		return decode.At(path+".algorithm", "missing: the plan is for the algorithm of the call")
	case c.Root < 0 || c.Root >= size:
		return decode.At(path+".root", "%d is outside 0..%d", c.Root, size-1)
	}
	if err := checkFlows(path, c.Flows, size); err != nil {
		return err
	}
	if err := c.checkSizes(path); err != nil {
		return err
	}
	return checkAfter(path, c.After, i)
}

func checkFlows(path string, flows [][2]int, size int) error {
	seen := make(map[[2]int]bool, len(flows))
	for k, f := range flows {
		at := fmt.Sprintf("%s.flows[%d]", path, k)
		switch {
		case f[0] < 0 || f[0] >= size || f[1] < 0 || f[1] >= size:
			return decode.At(at, "%d -> %d is outside 0..%d", f[0], f[1], size-1)
		case f[0] == f[1]:
			return decode.At(at, "%d -> %d is no transfer", f[0], f[1])
		case seen[f]:
			return decode.At(at, "%d -> %d is listed twice", f[0], f[1])
		}
		seen[f] = true
	}
	return nil
}

// checkSizes reports sizes of flows that do not fit the call.
func (c *Call) checkSizes(path string) error {
	if c.FlowBytes == nil {
		return nil
	}
	if len(c.FlowBytes) != len(c.Flows) || len(c.Flows) == 0 {
		return decode.At(path+".flow_bytes", "has %d sizes for %d flows", len(c.FlowBytes), len(c.Flows))
	}
	for k, b := range c.FlowBytes {
		if err := decode.Amount(fmt.Sprintf("%s.flow_bytes[%d]", path, k), b); err != nil {
			return err
		}
	}
	if most := slices.Max(c.FlowBytes); most != c.Bytes {
		return decode.At(path+".bytes", "%v, and the largest of flow_bytes is %v", c.Bytes, most)
	}
	return nil
}

func checkAfter(path string, after []After, i int) error {
	if len(after) == 0 {
		return decode.At(path+".after", "is empty: -1 is the begin of the iteration")
	}
	seen := make(map[int]bool, len(after))
	for k, a := range after {
		at := fmt.Sprintf("%s.after[%d]", path, k)
		switch {
		case a.Call < Begin || a.Call >= i:
			return decode.At(at, "call %d does not come before call %d", a.Call, i)
		case seen[a.Call]:
			return decode.At(at, "call %d is listed twice", a.Call)
		}
		seen[a.Call] = true
		if err := decode.Amount(at, a.GapUS); err != nil {
			return err
		}
	}
	return nil
}
