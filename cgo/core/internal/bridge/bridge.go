// Package bridge turns the calls of lp_core.h into calls of package shim: handles into
// communicators, C structures into Go ones, errors and panics into results with a text.
//
// Layer: between cgo/core, which holds the C declarations and nothing else, and shim. It
// contains no C, so it is tested without a C compiler, and no decisions of its own.
package bridge

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"time"
	"unsafe"

	"lightpath/cgo/core/internal/handle"
	"lightpath/collectives/datatype"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/device"
	"lightpath/shim/errdefs"
	"lightpath/shim/path/foreign"
	"lightpath/shim/result"
)

// Call is struct lp_call, field by field; cgo/core checks at compile time that it is.
type Call struct {
	Comm   uint64
	Kind   uint32
	Type   int32
	Op     int32
	Peer   int32
	Count  uint64
	Send   unsafe.Pointer
	Recv   unsafe.Pointer
	Stream uintptr // no pointer: some handles are small numbers

	Plan       uint64
	PlanDigits uint32
	DeadlineUS uint32
	Planes     uint64

	ScalarWhere uint32
	_           uint32
	Scalar      [8]byte
	ScalarAt    unsafe.Pointer

	Window, Offset uint64
}

// Values of Call.ScalarWhere: enum lp_scalar.
const (
	scalarNone uint32 = iota
	scalarHere
	scalarAt
)

// comms are the communicators of this process.
var comms handle.Table[shim.Comm]

// lookup resolves a handle.
func lookup(h uint64) (*shim.Comm, error) {
	if c := comms.Get(h); c != nil {
		return c, nil
	}
	if h == 0 {
		return nil, fmt.Errorf("comm is NULL: %w", errdefs.ErrInvalidArgument)
	}
	return nil, fmt.Errorf("comm is not a communicator of this library, or it has been destroyed: %w", errdefs.ErrInvalidArgument)
}

// small narrows an enumeration of C; what does not fit becomes a value that no enumeration
// has, for shim to refuse by name.
func small(v int32) uint8 {
	if v < 0 || v > math.MaxUint8 {
		return math.MaxUint8
	}
	return uint8(v)
}

// convert writes the shim's form of src to dst.
func convert(dst *calls.Call, src *Call) error {
	comm, err := lookup(src.Comm)
	if err != nil {
		return err
	}
	return fill(dst, src, comm)
}

// fill is convert for a communicator that has been found.
func fill(dst *calls.Call, src *Call, comm *shim.Comm) error {
	*dst = calls.Call{
		Comm: comm, Kind: calls.Kind(src.Kind), Type: datatype.Type(small(src.Type)), Op: datatype.Op(small(src.Op)),
		Peer: src.Peer, Count: src.Count, Send: src.Send, Recv: src.Recv, Window: src.Window, Offset: src.Offset,
		Stream: device.Stream(src.Stream),
		Options: calls.Options{
			Plan:   calls.DigestPrefix{Bits: src.Plan, Digits: small(int32(src.PlanDigits))},
			Planes: src.Planes, Deadline: time.Duration(src.DeadlineUS) * time.Microsecond,
		},
	}
	if src.Op >= int32(calls.OpPreMulSum) && dst.Kind.Reduces() {
		return bindOperator(dst, src)
	}
	return nil
}

// bindOperator looks up an operator of the user, unless that has been done when the call was
// checked. The scalar stays in src, which must outlive dst.
func bindOperator(dst *calls.Call, src *Call) error {
	if src.ScalarWhere == scalarNone {
		op, err := calls.FindOperator(dst.Comm, src.Op, dst.Type)
		if err != nil {
			return err
		}
		src.ScalarWhere, src.Scalar, src.ScalarAt = scalarHere, op.Scalar, op.At
		if op.At != nil {
			src.ScalarWhere = scalarAt
		}
	}
	dst.Op, dst.Operator, dst.Scalar = calls.OpPreMulSum, src.Op, src.ScalarAt
	if src.ScalarWhere == scalarHere {
		dst.Scalar = unsafe.Pointer(&src.Scalar)
	}
	return nil
}

// Check checks the arguments of a call without running it, and copies into it what it
// refers to.
func Check(call *Call) error {
	var c calls.Call
	if err := convert(&c, call); err != nil {
		return err
	}
	return calls.Check(&c)
}

// Interposes tells whether a call on a stream is interposed, and copies into it what it refers to.
func Interposes(call *Call) (bool, error) {
	var c calls.Call
	if err := convert(&c, call); err != nil {
		return false, err
	}
	return foreign.Executes(&c)
}

// pooledCalls is how many calls a group may have and still allocate nothing.
const pooledCalls = 64

type scratch struct{ calls [pooledCalls]calls.Call }

var pool = sync.Pool{New: func() any { return new(scratch) }}

// Run runs calls as one group and returns when all are complete. Hot path: groups of up
// to 64 calls allocate nothing here.
func Run(group []Call) error {
	if len(group) > pooledCalls {
		return runIn(make([]calls.Call, len(group)), group)
	}
	s := pool.Get().(*scratch)
	err := runIn(s.calls[:len(group)], group)
	clear(s.calls[:len(group)]) // keeps no buffer and no communicator alive
	pool.Put(s)
	return err
}

// RunBegun goes on with a call that C has begun, of a communicator that may have lost its handle since: its
// end waits for the call.
func RunBegun(call *Call) error {
	s := pool.Get().(*scratch)
	err := fill(&s.calls[0], call, guests[call.Comm%uint64(len(gates))].Load())
	if err == nil {
		err = shim.RunBegun(s.calls[:1])
	}
	clear(s.calls[:1])
	pool.Put(s)
	return err
}

func runIn(dst []calls.Call, calls []Call) error {
	for i := range calls {
		if err := convert(&dst[i], &calls[i]); err != nil {
			return err
		}
	}
	return shim.Run(dst)
}

// Simulate predicts how many microseconds calls take as one group.
func Simulate(asked []Call) (float64, error) {
	group := make([]calls.Call, len(asked))
	for i := range asked {
		if err := convert(&group[i], &asked[i]); err != nil {
			return 0, err
		}
	}
	return shim.Simulate(group)
}

// CreateOp makes an operator that multiplies by the element at scalar, read now or later.
func CreateOp(h uint64, typ int32, scalar unsafe.Pointer, later bool) (int32, error) {
	c, err := lookup(h)
	if err != nil {
		return 0, err
	}
	return calls.CreatePreMulSum(c, datatype.Type(small(typ)), scalar, later)
}

// DestroyOp forgets an operator.
func DestroyOp(h uint64, op int32) error {
	c, err := lookup(h)
	if err != nil {
		return err
	}
	return calls.DestroyOp(c, op)
}

// MemStats answers a question about a communicator's memory.
func MemStats(h uint64, stat int32) (uint64, error) {
	c, err := lookup(h)
	if err != nil {
		return 0, err
	}
	return shim.MemStats(c, shim.MemStat(stat))
}

// Register tells a communicator of a buffer or window and returns its handle.
func Register(h uint64, buff unsafe.Pointer, size uintptr, window bool, flags int32) (uint64, error) {
	c, err := lookup(h)
	if err != nil {
		return 0, err
	}
	return shim.Register(c, buff, size, window, flags)
}

// Registered returns the buffer of a registration, and with end deregisters it.
func Registered(h, handle uint64, window, end bool) (unsafe.Pointer, error) {
	c, err := lookup(h)
	if err != nil {
		return nil, err
	}
	return shim.Registered(c, handle, window, end)
}

// Recovered is the error of a panic: a defect of Lightpath must not end the program that
// it is a guest of.
func Recovered(panicked any, stack []byte) error {
	return fmt.Errorf("panic: %v [%s]: %w", panicked, strings.Join(frames(stack, 4), " < "), errdefs.ErrInternal)
}

// frames picks the innermost functions of Lightpath from a stack trace.
func frames(stack []byte, most int) []string {
	var names []string
	for line := range strings.Lines(string(stack)) {
		name, ok := strings.CutPrefix(line, "lightpath/")
		if i := strings.LastIndexByte(name, '('); ok && i > 0 && len(names) < most && !strings.HasPrefix(name, "cgo/core") {
			names = append(names, name[:i])
		}
	}
	return names
}

// Text writes an error's message, one line with NUL at its end, to buf and returns the
// result. nil writes nothing.
func Text(err error, buf []byte) result.Result {
	if err == nil || len(buf) == 0 {
		return result.Of(err)
	}
	text := strings.TrimPrefix(err.Error(), "shim: ")
	n := copy(buf[:len(buf)-1], text)
	for i, c := range buf[:n] {
		if c < ' ' {
			buf[i] = ' '
		}
	}
	buf[n] = 0
	return result.Of(err)
}
