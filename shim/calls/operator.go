package calls

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/shim/comm"
	"lightpath/shim/errdefs"
	"lightpath/shim/memory"
)

// OpPreMulSum is the Op of a call that multiplies this rank's contribution by Call.Scalar before it is added. Its value
// is ncclNumOps, the first number of operators that users create, and it stands for all of them: ranks agree on it, not
// on their scalars.
const OpPreMulSum = datatype.NumOps

// opName returns an operator's name for messages.
func opName(op datatype.Op) string {
	if op == OpPreMulSum {
		return "premulsum"
	}
	return op.String()
}

// Operator is an operator of the user.
type Operator struct {
	Type   datatype.Type
	Scalar [8]byte        // the element, if At is nil
	At     unsafe.Pointer // where the element is, read when a call runs
}

// operators are the operators that the user has created on a communicator. Safe for concurrent use.
type operators struct {
	mu sync.Mutex
	of map[int32]Operator
}

// lastOperator numbers operators over all communicators of the process. So an operator of another communicator, or one
// that was destroyed, is recognized.
var lastOperator atomic.Int32

// CreatePreMulSum makes an operator that multiplies by the element at scalar, of type t. The element is read now or, if
// later is set, by every call when it runs. The operator belongs to this communicator until it is destroyed.
func CreatePreMulSum(c *comm.Core, t datatype.Type, scalar unsafe.Pointer, later bool) (int32, error) {
	switch {
	case !t.Valid():
		return 0, fmt.Errorf("shim: datatype %d is none: %w", t, errdefs.ErrInvalidArgument)
	case scalar == nil:
		return 0, fmt.Errorf("shim: scalar is NULL: %w", errdefs.ErrInvalidArgument)
	}
	if err := c.Usable(); err != nil {
		return 0, err
	}
	op := Operator{Type: t, At: scalar}
	if !later {
		copy(op.Scalar[:], memory.Bytes(scalar, int64(t.Size())))
		op.At = nil
	}
	number := int32(OpPreMulSum) + lastOperator.Add(1) - 1
	if number < int32(OpPreMulSum) {
		lastOperator.Store(math.MaxInt32) // there are no more numbers
		return 0, fmt.Errorf("shim: this process has created %d operators: %w",
			math.MaxInt32-int(OpPreMulSum), errdefs.ErrInvalidUsage)
	}
	o := &slot.Of(c).operators
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.of == nil {
		o.of = map[int32]Operator{}
	}
	o.of[number] = op
	return number, nil
}

// DestroyOp removes an operator. Earlier calls with it are not affected, also calls that wait for the end of their
// group.
func DestroyOp(c *comm.Core, number int32) error {
	o := &slot.Of(c).operators
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, ok := o.of[number]; !ok {
		return noOperator(number)
	}
	delete(o.of, number)
	c.Turn.OperatorEnded()
	return nil
}

// FindOperator returns the operator of a number, for a call on elements of type t.
func FindOperator(c *comm.Core, number int32, t datatype.Type) (Operator, error) {
	o := &slot.Of(c).operators
	o.mu.Lock()
	op, ok := o.of[number]
	o.mu.Unlock()
	switch {
	case !ok:
		return op, noOperator(number)
	case op.Type != t:
		return op, fmt.Errorf("shim: op %d was created for %v, the call's datatype is %v: %w",
			number, op.Type, t, errdefs.ErrInvalidArgument)
	}
	return op, nil
}

// noOperator returns the error of a number that names no operator of c.
func noOperator(number int32) error {
	why := "does not exist on this communicator: it was destroyed, or belongs to another"
	if number < int32(OpPreMulSum) {
		why = "is none of those that ncclRedOpCreatePreMulSum makes"
	}
	return fmt.Errorf("shim: op %d %s: %w", number, why, errdefs.ErrInvalidArgument)
}

// element reads an element as a float64, and reports whether that holds it.
func element(t datatype.Type, raw [8]byte) (v float64, exact bool) {
	const whole = 1 << 53
	bits := binary.NativeEndian.Uint64(raw[:])
	switch t {
	case datatype.Int8:
		return float64(int8(raw[0])), true
	case datatype.Uint8:
		return float64(raw[0]), true
	case datatype.Int32:
		return float64(int32(binary.NativeEndian.Uint32(raw[:]))), true
	case datatype.Uint32:
		return float64(binary.NativeEndian.Uint32(raw[:])), true
	case datatype.Int64:
		return float64(int64(bits)), -whole <= int64(bits) && int64(bits) <= whole
	case datatype.Uint64:
		return float64(bits), bits <= whole
	case datatype.Float16:
		return float64(datatype.F16ToF32(binary.NativeEndian.Uint16(raw[:]))), true
	case datatype.Bfloat16:
		return float64(datatype.BF16ToF32(binary.NativeEndian.Uint16(raw[:]))), true
	case datatype.Float32:
		return float64(math.Float32frombits(binary.NativeEndian.Uint32(raw[:]))), true
	case datatype.Float8E4M3:
		return float64(datatype.E4M3ToF32(raw[0])), true
	case datatype.Float8E5M2:
		return float64(datatype.E5M2ToF32(raw[0])), true
	default:
		return math.Float64frombits(bits), true
	}
}
