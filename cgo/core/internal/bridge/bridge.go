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
	"lightpath/shim/path/host"
	"lightpath/shim/predict"
	"lightpath/shim/report"
	"lightpath/shim/result"
)

// Call is one call, as the front passes it: cgo/core/lp_types.h has struct lp_call from it. Type and Op are
// ncclDataType_t and ncclRedOp_t; Peer is the root or the peer.
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

	// Options of the call, 0 if it has none; see lightpath.h.
	Plan       uint64 // the leading digits of a plan's digest, in the most significant bits
	PlanDigits uint32 // how many there are, 0 .. 16
	DeadlineUS uint32
	Planes     uint64 // bit j: plane j may be used

	// The factor of an operator of the user. Check fills it in, so that a queued call outlives its operator.
	ScalarWhere uint32
	_           uint32
	Scalar      [8]byte        // the element, in its first bytes
	ScalarAt    unsafe.Pointer // where the element is when the call runs

	// The window of a put, by the caller's handle, and the byte of the peer's window.
	Window uint64
	Offset uint64
}

// Values of Call.ScalarWhere.
const (
	ScalarNone uint32 = iota // Run looks the operator up
	ScalarHere               // in Call.Scalar
	ScalarAt                 // at Call.ScalarAt
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
	return nil, fmt.Errorf("comm is not a communicator of this library, or it has been destroyed: %w",
		errdefs.ErrInvalidArgument)
}

// convert writes the shim's form of src to dst.
func convert(dst *calls.Call, src *Call) error {
	comm, err := lookup(src.Comm)
	if err != nil {
		return err
	}
	return fill(dst, src, comm)
}

// fill is convert, for a communicator that the caller has looked up.
func fill(dst *calls.Call, src *Call, comm *shim.Comm) error {
	*dst = calls.Call{
		Comm: comm, Kind: calls.Kind(src.Kind), Type: datatype.Type(src.Type), Op: datatype.Op(src.Op),
		Peer: src.Peer, Count: src.Count, Send: src.Send, Recv: src.Recv, Window: src.Window, Offset: src.Offset,
		Stream: device.Stream(src.Stream),
		Options: calls.Options{
			Plan:   calls.DigestPrefix{Bits: src.Plan, Digits: uint8(min(src.PlanDigits, math.MaxUint8))},
			Planes: src.Planes, Deadline: time.Duration(src.DeadlineUS) * time.Microsecond,
		},
	}
	switch {
	case int32(dst.Type) != src.Type:
		return dst.Invalid("datatype %d is none", src.Type)
	case !dst.Kind.Reduces():
		return nil
	case src.Op < 0:
		return dst.Invalid("reduction operator %d is none", src.Op)
	case src.Op >= int32(calls.OpPreMulSum):
		return bindOperator(dst, src)
	}
	return nil
}

// bindOperator looks up an operator of the user, unless Check has done so. The scalar stays in src, which must outlive
// dst.
func bindOperator(dst *calls.Call, src *Call) error {
	if src.ScalarWhere == ScalarNone {
		op, err := calls.FindOperator(dst.Comm, src.Op, dst.Type)
		if err != nil {
			return err
		}
		src.ScalarWhere, src.Scalar, src.ScalarAt = ScalarHere, op.Scalar, op.At
		if op.At != nil {
			src.ScalarWhere = ScalarAt
		}
	}
	dst.Op, dst.Operator, dst.Scalar = calls.OpPreMulSum, src.Op, src.ScalarAt
	if src.ScalarWhere == ScalarHere {
		dst.Scalar = unsafe.Pointer(&src.Scalar)
	}
	return nil
}

// Check checks the arguments of a call without running it, and copies its operator's factor into it.
func Check(call *Call) error {
	var c calls.Call
	if err := convert(&c, call); err != nil {
		return err
	}
	return calls.Check(&c)
}

// Interposes reports whether a call on a stream is interposed, and copies its operator's factor into it.
func Interposes(call *Call) (bool, error) {
	var c calls.Call
	if err := convert(&c, call); err != nil {
		return false, err
	}
	return foreign.Executes(&c)
}

// pooledCalls is the size of the largest group that Run converts without allocating.
const pooledCalls = 64

type scratch struct{ calls [pooledCalls]calls.Call }

var pool = sync.Pool{New: func() any { return new(scratch) }}

// Run runs calls as one group and returns when all are complete.
// Hot path: groups of up to pooledCalls calls allocate nothing here.
func Run(group []Call) error {
	if len(group) > pooledCalls {
		return runIn(make([]calls.Call, len(group)), group)
	}
	s := pool.Get().(*scratch)
	err := runIn(s.calls[:len(group)], group)
	clear(s.calls[:len(group)]) // so that the pool keeps no buffer and no communicator alive
	pool.Put(s)
	return err
}

// RunBegun continues a call that C has begun. The communicator may have lost its handle since; its end waits for the
// call.
func RunBegun(call *Call) error {
	s := pool.Get().(*scratch)
	err := fill(&s.calls[0], call, gated[call.Comm%uint64(len(gates))].Load())
	if err == nil {
		err = host.RunBegun(s.calls[:1])
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
	return predict.Group(group)
}

// CreateOp makes an operator that multiplies by the element at scalar. The element is read now, or by each call
// (later).
func CreateOp(h uint64, typ int32, scalar unsafe.Pointer, later bool) (int32, error) {
	c, err := lookup(h)
	if err != nil {
		return 0, err
	}
	if t := datatype.Type(typ); int32(t) == typ {
		return calls.CreatePreMulSum(c, t, scalar, later)
	}
	return 0, fmt.Errorf("datatype %d is none: %w", typ, errdefs.ErrInvalidArgument)
}

// DestroyOp forgets an operator.
func DestroyOp(h uint64, op int32) error {
	c, err := lookup(h)
	if err != nil {
		return err
	}
	return calls.DestroyOp(c, op)
}

// MemStats returns a statistic of a communicator's memory.
func MemStats(h uint64, stat int32) (uint64, error) {
	c, err := lookup(h)
	if err != nil {
		return 0, err
	}
	return report.MemStats(c, report.MemStat(stat))
}

// Register registers a buffer or window with a communicator and returns its handle.
func Register(h uint64, buff unsafe.Pointer, size uintptr, window bool, flags int32) (uint64, error) {
	c, err := lookup(h)
	if err != nil {
		return 0, err
	}
	return shim.Register(c, buff, size, window, flags)
}

// Registered returns the buffer of a registration. With end it deregisters it.
func Registered(h, handle uint64, window, end bool) (unsafe.Pointer, error) {
	c, err := lookup(h)
	if err != nil {
		return nil, err
	}
	return shim.Registered(c, handle, window, end)
}

// Recovered returns the error of a panic: a defect of Lightpath must not end the program.
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

// Text writes an error's message to buf, one line with NUL at its end, and returns the result. For nil it writes
// nothing.
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
