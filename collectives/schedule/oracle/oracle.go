package oracle

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule"
)

// ErrInput reports inputs that do not fit the call.
var ErrInput = errors.New("oracle: inputs do not fit the call")

// Call is a collective call of all ranks.
type Call struct {
	Collective schedule.Collective
	Type       datatype.Type
	Op         datatype.Op // of reducing collectives
	Root       int         // of rooted collectives
}

// Expected returns the output of every rank for the inputs of all ranks; it is nil for a rank without output. For a
// broadcast or scatter it reads only the root's input.
//
// It follows the definition of the collective, not an algorithm. Reductions of integers are exact. Reductions of floats
// are exact if every partial result is exact in float64, so tests use small whole numbers. An average scales each float
// by 1/n, rounded to the type, before the sum; it divides the sum of integers. Errors: [ErrInput].
func Expected(c Call, inputs [][]byte) ([][]byte, error) {
	block, err := blockBytes(c, inputs)
	if err != nil {
		return nil, err
	}
	n := len(inputs)
	out := make([][]byte, n)
	part := func(r, i int) []byte { return inputs[r][i*block : (i+1)*block] }
	for r := range out {
		if r > 0 && (c.Collective == schedule.AllReduce || c.Collective == schedule.AllGather) {
			out[r] = bytes.Clone(out[0])
			continue
		}
		switch c.Collective {
		case schedule.AllReduce:
			out[r] = reduceAll(c, inputs, 0, block)
		case schedule.Reduce:
			if r == c.Root {
				out[r] = reduceAll(c, inputs, 0, block)
			}
		case schedule.ReduceScatter:
			out[r] = reduceAll(c, inputs, r*block, block)
		case schedule.Broadcast:
			out[r] = append([]byte{}, inputs[c.Root]...)
		case schedule.Scatter:
			out[r] = append([]byte{}, part(c.Root, r)...)
		case schedule.SendRecv:
			out[r] = append([]byte{}, inputs[(r+n-1)%n]...)
		case schedule.Gather:
			if r != c.Root {
				continue
			}
			fallthrough
		case schedule.AllGather:
			out[r] = make([]byte, 0, n*block)
			for q := range n {
				out[r] = append(out[r], part(q, 0)...)
			}
		case schedule.AllToAll:
			out[r] = make([]byte, 0, n*block)
			for q := range n {
				out[r] = append(out[r], part(q, r)...)
			}
		}
	}
	return out, nil
}

// blockBytes checks a call and returns the size of one block in bytes.
func blockBytes(c Call, inputs [][]byte) (int, error) {
	n := len(inputs)
	if c.Collective >= schedule.NumCollectives || !c.Type.Valid() || !c.Op.Valid() ||
		n == 0 || c.Root < 0 || c.Root >= n {
		return 0, fmt.Errorf("%w: %v of %v, %v, root %d of %d ranks", ErrInput, c.Collective, c.Type, c.Op, c.Root, n)
	}
	blocks, _ := c.Collective.IOBlocks(n)
	others, _ := c.Collective.IOBlocksAt(n, false)
	size := len(inputs[c.Root])
	for r := range inputs {
		if len(inputs[r]) != size && others > 0 {
			return 0, fmt.Errorf("%w: rank %d has %d bytes, rank %d has %d", ErrInput, r, len(inputs[r]), c.Root, size)
		}
	}
	if size%(blocks*c.Type.Size()) != 0 {
		return 0, fmt.Errorf("%w: %d bytes, want %d blocks of %v", ErrInput, size, blocks, c.Type)
	}
	return size / blocks, nil
}

// reduceAll combines size bytes at an offset of all inputs, in the order of ranks.
func reduceAll(c Call, inputs [][]byte, off, size int) []byte {
	out := make([]byte, 0, size)
	for ; len(out) < size; off += c.Type.Size() {
		if c.Type.Float() {
			out = appendFloat(out, c.Type, reduceFloat(c, inputs, off))
		} else {
			out = appendInt(out, c.Type, reduceInt(c, inputs, off))
		}
	}
	return out
}

func reduceFloat(c Call, inputs [][]byte, off int) float64 {
	n := len(inputs)
	total := 0.0
	for r := range inputs {
		v := floatAt(c.Type, inputs[r][off:])
		if c.Op == datatype.Avg {
			v = rounded(c.Type, v*averaging(c.Type, n))
		}
		switch {
		case r == 0:
			total = v
		case c.Op == datatype.Prod:
			total *= v
		case c.Op == datatype.Max:
			total = math.Max(total, v)
		case c.Op == datatype.Min:
			total = math.Min(total, v)
		default:
			total += v
		}
	}
	return total
}

// averaging returns 1/n rounded to a type, first to float32 except for float64.
func averaging(t datatype.Type, n int) float64 {
	f := 1 / float64(n)
	if t != datatype.Float64 {
		f = float64(float32(f))
	}
	return rounded(t, f)
}

func rounded(t datatype.Type, f float64) float64 { return floatAt(t, appendFloat(nil, t, f)) }

// reduceInt combines modulo 2^64, which is also correct modulo any smaller power of two.
func reduceInt(c Call, inputs [][]byte, off int) int64 {
	total := intAt(c.Type, inputs[0][off:])
	unsigned := c.Type == datatype.Uint64
	for _, in := range inputs[1:] {
		v := intAt(c.Type, in[off:])
		less := v < total
		if unsigned {
			less = uint64(v) < uint64(total)
		}
		switch c.Op {
		case datatype.Prod:
			total *= v
		case datatype.Max:
			if !less {
				total = v
			}
		case datatype.Min:
			if less {
				total = v
			}
		default:
			total += v
		}
	}
	if c.Op != datatype.Avg {
		return total
	}
	total = intAt(c.Type, appendInt(nil, c.Type, total))
	if unsigned {
		return int64(uint64(total) / uint64(len(inputs)))
	}
	return total / int64(len(inputs))
}

func intAt(t datatype.Type, b []byte) int64 {
	switch t {
	case datatype.Int8:
		return int64(int8(b[0]))
	case datatype.Uint8:
		return int64(b[0])
	case datatype.Int32:
		return int64(int32(binary.NativeEndian.Uint32(b)))
	case datatype.Uint32:
		return int64(binary.NativeEndian.Uint32(b))
	default:
		return int64(binary.NativeEndian.Uint64(b))
	}
}

func appendInt(b []byte, t datatype.Type, v int64) []byte {
	switch t.Size() {
	case 1:
		return append(b, byte(v))
	case 4:
		return binary.NativeEndian.AppendUint32(b, uint32(v))
	default:
		return binary.NativeEndian.AppendUint64(b, uint64(v))
	}
}

func floatAt(t datatype.Type, b []byte) float64 {
	switch t {
	case datatype.Float64:
		return math.Float64frombits(binary.NativeEndian.Uint64(b))
	case datatype.Float32:
		return float64(math.Float32frombits(binary.NativeEndian.Uint32(b)))
	case datatype.Float16:
		return float64(datatype.F16ToF32(binary.NativeEndian.Uint16(b)))
	case datatype.Bfloat16:
		return float64(datatype.BF16ToF32(binary.NativeEndian.Uint16(b)))
	case datatype.Float8E4M3:
		return float64(datatype.E4M3ToF32(b[0]))
	default:
		return float64(datatype.E5M2ToF32(b[0]))
	}
}

func appendFloat(b []byte, t datatype.Type, v float64) []byte {
	switch t {
	case datatype.Float64:
		return binary.NativeEndian.AppendUint64(b, math.Float64bits(v))
	case datatype.Float32:
		return binary.NativeEndian.AppendUint32(b, math.Float32bits(float32(v)))
	case datatype.Float16:
		return binary.NativeEndian.AppendUint16(b, datatype.F32ToF16(float32(v)))
	case datatype.Bfloat16:
		return binary.NativeEndian.AppendUint16(b, datatype.F32ToBF16(float32(v)))
	case datatype.Float8E4M3:
		return append(b, datatype.F32ToE4M3(float32(v)))
	default:
		return append(b, datatype.F32ToE5M2(float32(v)))
	}
}
