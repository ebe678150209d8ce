package recording

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"lightpath/plans/iteration/trace"
	"lightpath/shim/calls"
)

// FolderVariable names the folder into which the recorder of each process writes its file.
const FolderVariable = "LIGHTPATH_ITERATION_RECORD"

// The format of cgo/record/record.h.
const (
	version    = 1
	magic      = "LPRECORD"
	headerSize = 512
	commSize   = 24
	callSize   = 64
	groupEnd   = 255 // the kind of a record that ends a group
	maxComms   = 1 << 16
	maxCalls   = 1 << 24
	maxCount   = 1 << 56 // elements of a call
	maxTime    = 1 << 61 // ns
)

// ErrFile is wrapped by errors about a file that is no recording. The message names the field.
var ErrFile = errors.New("no recording of calls")

// File is what the recorder has kept of one process.
type File struct {
	Host     string
	PID      int
	Launcher int    // the rank that the launcher gave the process, -1: none
	Offset   int64  // ns, from the clock of Begin and End to Unix time
	Library  string // that made the calls
	Comms    []Comm
	Calls    []Call // in their order
	Unknown  uint64 // calls of communicators for which there was no room
	Written  uint64 // all calls, also calls that the ring has lost
}

// Comm is a communicator of a process.
type Comm struct {
	ID          uint64 // equal on all its ranks
	Ranks, Rank int    // 0, 0: it made no call before it was known
	Parent      int    // the communicator that it was split from; -1: none
}

// Call is one call, or the end of a group.
type Call struct {
	Kind       calls.Kind
	GroupEnd   bool
	Begin, End int64 // ns of the host's CLOCK_MONOTONIC; of a call in a group 0. End 0 of a group: it has not been run
	Count      uint64
	Number     uint64 // of this collective of its communicator, or of this message between the two ranks
	Group      uint64 // 0: none
	Peer       int    // or root
	Comm       int
	TypeBytes  int
	Stream     bool // the call has a stream: its times are those of issuing it
}

// Bytes returns count times the size of the type.
func (c *Call) Bytes() float64 { return float64(c.Count) * float64(c.TypeBytes) }

// fail makes an error about a field.
func fail(field, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", ErrFile, field, fmt.Sprintf(format, args...))
}

// Decode reads a file. Calls that a killed process had begun to write are left out.
func Decode(data []byte) (*File, error) {
	le := binary.LittleEndian
	if len(data) < headerSize || string(data[:8]) != magic {
		return nil, fail("magic", "the file does not begin with %s", magic)
	}
	if v := le.Uint32(data[8:]); v != version {
		return nil, fail("version", "is %d, not %d", v, version)
	}
	commRoom, callRoom, comms := le.Uint32(data[12:]), le.Uint32(data[16:]), le.Uint32(data[28:])
	calls := le.Uint64(data[48:])
	switch {
	case commRoom > maxComms:
		return nil, fail("comm_room", "%d is above %d", commRoom, maxComms)
	case callRoom == 0 || callRoom > maxCalls:
		return nil, fail("call_room", "%d is outside 1..%d", callRoom, maxCalls)
	case comms > commRoom:
		return nil, fail("comms", "%d is above comm_room, %d", comms, commRoom)
	case calls > 1<<62:
		return nil, fail("calls", "%d is above %d", calls, uint64(1)<<62)
	}
	if want := headerSize + int(commRoom)*commSize + int(callRoom)*callSize; len(data) != want {
		return nil, fail("length", "%d bytes, not %d", len(data), want)
	}
	f := &File{PID: int(int32(le.Uint32(data[20:]))), Launcher: int(int32(le.Uint32(data[24:]))), Host: text(data[72:136]),
		Library: text(data[136:headerSize]), Unknown: le.Uint64(data[64:]), Written: calls}
	monotonic, realtime := int64(le.Uint64(data[32:])), int64(le.Uint64(data[40:]))
	f.Offset = realtime - monotonic
	switch {
	case f.Launcher < -1:
		return nil, fail("launcher_rank", "%d is negative", f.Launcher)
	case monotonic < 0 || monotonic > maxTime:
		return nil, fail("monotonic", "%d is outside 0..%d", monotonic, maxTime)
	case realtime < 0 || realtime > maxTime:
		return nil, fail("realtime", "%d is outside 0..%d", realtime, maxTime)
	}
	at := data[headerSize:]
	for i := range int(comms) {
		c := Comm{le.Uint64(at), int(le.Uint32(at[8:])), int(le.Uint32(at[12:])), int(le.Uint32(at[16:])) - 1}
		if err := c.check(i); err != nil {
			return nil, err
		}
		f.Comms = append(f.Comms, c)
		at = at[commSize:]
	}
	ring := data[headerSize+int(commRoom)*commSize:]
	first := calls - min(calls, uint64(callRoom))
	for n := first; n < calls; n++ {
		at := ring[n%uint64(callRoom)*callSize:][:callSize]
		if le.Uint64(at) != n+1 {
			continue
		}
		c, err := f.call(at)
		if err != nil {
			return nil, fmt.Errorf("%w: calls[%d].%w", ErrFile, n%uint64(callRoom), err)
		}
		f.Calls = append(f.Calls, c)
	}
	return f, nil
}

// text returns the characters before the first NUL.
func text(b []byte) string {
	b, _, _ = bytes.Cut(b, []byte{0})
	return string(bytes.ToValidUTF8(b, []byte("?")))
}

func (c *Comm) check(i int) error {
	path := fmt.Sprintf("comms[%d]", i)
	switch {
	case c.Ranks < 0 || c.Ranks > trace.MaxRanks:
		return fail(path+".ranks", "%d is outside 0..%d", c.Ranks, trace.MaxRanks)
	case c.Rank < 0 || c.Rank >= max(c.Ranks, 1):
		return fail(path+".rank", "%d of %d ranks", c.Rank, c.Ranks)
	case c.Parent >= i:
		return fail(path+".parent", "%d is not before it", c.Parent+1)
	}
	return nil
}

// call reads a record. Errors begin with the field.
func (f *File) call(at []byte) (c Call, err error) {
	le := binary.LittleEndian
	kind := at[54]
	c = Call{Kind: calls.Kind(kind), GroupEnd: kind == groupEnd, Begin: int64(le.Uint64(at[8:])),
		End: int64(le.Uint64(at[16:])), Count: le.Uint64(at[24:]), Number: le.Uint64(at[32:]), Group: le.Uint64(at[40:]),
		Peer: int(int32(le.Uint32(at[48:]))), Comm: int(le.Uint16(at[52:])), TypeBytes: int(at[55]), Stream: at[57] == 1}
	inGroup := c.Group > 0 && !c.GroupEnd
	switch {
	case !c.GroupEnd && c.Kind >= calls.NumKinds:
		return c, fmt.Errorf("kind: %d is unknown", kind)
	case c.GroupEnd && c.Group == 0:
		return c, errors.New("group: 0 is no group")
	case c.Begin < 0 || c.Begin > maxTime || inGroup && c.Begin != 0:
		return c, fmt.Errorf("begin: %d", c.Begin)
	case c.End > maxTime || c.End < c.Begin && (!c.GroupEnd || c.End != 0) || inGroup && c.End != 0:
		return c, fmt.Errorf("end: %d, and begin is %d", c.End, c.Begin)
	}
	if c.GroupEnd {
		return c, nil
	}
	switch {
	case c.Comm >= len(f.Comms):
		return c, fmt.Errorf("comm: %d of %d", c.Comm, len(f.Comms))
	case f.Comms[c.Comm].Ranks == 0:
		return c, fmt.Errorf("comm: communicator %d has no ranks", c.Comm)
	case !slices.Contains([]int{1, 2, 4, 8}, c.TypeBytes):
		return c, fmt.Errorf("type_bytes: %d", c.TypeBytes)
	case c.Count > maxCount:
		return c, fmt.Errorf("count: %d is above %d", c.Count, uint64(maxCount))
	case c.Peer < 0 || c.Peer >= f.Comms[c.Comm].Ranks:
		return c, fmt.Errorf("peer: %d of %d ranks", c.Peer, f.Comms[c.Comm].Ranks)
	}
	return c, nil
}
