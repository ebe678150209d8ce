package shim

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/shim/errdefs"
)

// OpPreMulSum is the Op of a call whose contribution is multiplied by Call.Scalar before it
// is added: a sum of the caller's own making. It is ncclNumOps, from where NCCL numbers
// operators of the user, and stands for all of them: ranks agree on it, not on their scalars.
const OpPreMulSum = datatype.NumOps

// opName is an operator's name in messages.
func opName(op datatype.Op) string {
	if op == OpPreMulSum {
		return "premulsum"
	}
	return op.String()
}

// Operator is what a number of an operator stood for when it was looked up.
type Operator struct {
	Type   datatype.Type
	Scalar [8]byte        // the element, where At is nil
	At     unsafe.Pointer // where the element is, read when a call runs
}

// operators are the operators that the user has created on a communicator. Safe for
// concurrent use.
type operators struct {
	mu sync.Mutex
	of map[int32]Operator
}

// lastOperator numbers operators over all communicators of the process, so that the number of
// another one's, or of one that is gone, is never mistaken.
var lastOperator atomic.Int32

// CreatePreMulSum makes an operator that multiplies by the element at scalar, of type t. The
// element is read now, or, where later is set, by every call that uses the operator when it
// runs. The operator belongs to this communicator until it is destroyed.
func CreatePreMulSum(c *Comm, t datatype.Type, scalar unsafe.Pointer, later bool) (int32, error) {
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
		copy(op.Scalar[:], bytesOf(scalar, int64(t.Size())))
		op.At = nil
	}
	number := int32(OpPreMulSum) + lastOperator.Add(1) - 1
	if number < int32(OpPreMulSum) {
		lastOperator.Store(math.MaxInt32) // and stay out of numbers
		return 0, fmt.Errorf("shim: this process has created %d operators: %w", math.MaxInt32-int(OpPreMulSum), errdefs.ErrInvalidUsage)
	}
	o := operatorsOf(c)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.of == nil {
		o.of = map[int32]Operator{}
	}
	o.of[number] = op
	return number, nil
}

// DestroyOp forgets an operator. Calls that were made with it are not affected, also those that
// their group has not run yet.
func DestroyOp(c *Comm, number int32) error {
	o := operatorsOf(c)
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, ok := o.of[number]; !ok {
		return noOperator(c, number)
	}
	delete(o.of, number)
	c.Turn.OperatorEnded()
	return nil
}

// FindOperator returns the operator of a number, for a call on elements of type t.
func FindOperator(c *Comm, number int32, t datatype.Type) (Operator, error) {
	operatorsOf(c).mu.Lock()
	op, ok := operatorsOf(c).of[number]
	operatorsOf(c).mu.Unlock()
	switch {
	case !ok:
		return op, noOperator(c, number)
	case op.Type != t:
		return op, fmt.Errorf("shim: op %d was created for %v, the call's datatype is %v: %w", number, op.Type, t, errdefs.ErrInvalidArgument)
	}
	return op, nil
}

func noOperator(c *Comm, number int32) error {
	if number < int32(OpPreMulSum) {
		return fmt.Errorf("shim: op %d is none of those that ncclRedOpCreatePreMulSum makes: %w", number, errdefs.ErrInvalidArgument)
	}
	return fmt.Errorf("shim: op %d does not exist on this communicator: it was destroyed, or belongs to another: %w", number, errdefs.ErrInvalidArgument)
}

// kernels are what a shape computes with, looked up once.
type kernels struct {
	reduce  datatype.ReduceFunc
	combine datatype.CombineFunc
	past    datatype.CombineFunc // nil where there is none
	scale   datatype.ScaleFunc   // where every load is scaled
	factor  float64              // 0 where each call brings its own; see scaling
	div     datatype.DivFunc     // where the result is divided by the ranks
}

// kernelsOf returns what a shape computes with. Averages of floats scale every
// contribution by 1/n as it is loaded, those of integers divide the sum (NCCL's
// definition of ncclAvg); operators of the user scale by what the call says.
func kernelsOf(s *shape, ranks int) kernels {
	if !kinds[s.kind].reduces {
		return kernels{}
	}
	op := s.op
	var k kernels
	switch {
	case op == OpPreMulSum:
		op, k.scale = datatype.Sum, datatype.Scale(s.typ)
	case op != datatype.Avg:
	default:
		op = datatype.Sum
		if ranks > 1 && s.typ.Float() {
			k.scale, k.factor = datatype.Scale(s.typ), 1/float64(ranks)
		} else if ranks > 1 {
			k.div = datatype.DivInt(s.typ)
		}
	}
	k.reduce, k.combine, k.past = datatype.Reduce(op, s.typ), datatype.Combine(op, s.typ), datatype.CombinePast(op, s.typ)
	return k
}

// scaling returns how the call's contribution is scaled as it is loaded; nil where it is not.
// It allocates for 64-bit scalars alone that float64 cannot hold.
func (k *kernels) scaling(c *Call) (datatype.ScaleFunc, float64) {
	if c.Op != OpPreMulSum || k.scale == nil {
		return k.scale, k.factor
	}
	var raw [8]byte
	copy(raw[:], bytesOf(c.Scalar, int64(c.Type.Size()))) // of any alignment
	factor, exact := element(c.Type, raw)
	if !exact {
		return datatype.ScaleUint64(binary.NativeEndian.Uint64(raw[:])), 0
	}
	return k.scale, factor
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
