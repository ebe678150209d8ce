package oracle

import (
	"fmt"

	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule"
)

// Ordered is like Expected for any floats: it returns the bits that every plan of s must produce, except for payloads
// of NaN. It combines the contributions to each chunk in the order of s. Errors: [ErrInput], and those of
// schedule.Orders.
func Ordered(s *schedule.Schedule, t datatype.Type, op datatype.Op, inputs [][]byte) ([][]byte, error) {
	c := Call{Collective: s.Collective, Type: t, Op: op, Root: s.Root}
	block, err := blockBytes(c, inputs)
	if err != nil {
		return nil, err
	}
	if len(inputs) != s.Ranks {
		return nil, fmt.Errorf("%w: %d inputs for %d ranks", ErrInput, len(inputs), s.Ranks)
	}
	if !c.Collective.Reduces() {
		return Expected(c, inputs)
	}
	orders, err := schedule.Orders(s)
	if err != nil {
		return nil, err
	}
	loaded := load(c, inputs)
	combine, count := datatype.Reduce(op, t), int64(block/t.Size())
	out := make([][]byte, s.Ranks)
	for r := range out {
		if s.BlocksAt(r, schedule.Output) == 0 {
			continue
		}
		out[r] = []byte{}
		for part, e := range orders[r] {
			chunk := part
			if c.Collective == schedule.ReduceScatter {
				chunk += r * s.Sub
			}
			lo, hi := s.ChunkRange(chunk, count)
			size := int64(t.Size())
			out[r] = append(out[r], eval(e, loaded, lo*size, hi*size, combine)...)
		}
		if div := datatype.DivInt(t); op == datatype.Avg && div != nil {
			div(out[r], int64(s.Ranks))
		}
	}
	return out, nil
}

// load returns copies of the inputs, as Pre loads them: scaled for an average of floats.
func load(c Call, inputs [][]byte) [][]byte {
	loaded := make([][]byte, len(inputs))
	for r, in := range inputs {
		loaded[r] = append([]byte{}, in...)
		if c.Op == datatype.Avg && c.Type.Float() {
			datatype.Scale(c.Type)(loaded[r], in, 1/float64(len(inputs)))
		}
	}
	return loaded
}

// eval returns bytes lo to hi of an expression.
func eval(e *schedule.Expr, inputs [][]byte, lo, hi int64, combine datatype.ReduceFunc) []byte {
	if e.Left == nil {
		return append([]byte{}, inputs[e.Rank][lo:hi]...)
	}
	dst := eval(e.Left, inputs, lo, hi, combine)
	combine(dst, eval(e.Right, inputs, lo, hi, combine))
	return dst
}
