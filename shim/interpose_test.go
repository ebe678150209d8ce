package shim

import (
	"errors"
	"testing"

	"lightpath/collectives/datatype"
)

// TestShapeCodec: what leaders are asked for survives, and strangers' shapes are refused.
func TestShapeCodec(t *testing.T) {
	s := shape{kind: CallReduce, typ: datatype.Float16, root: 3, count: 1 << 40}
	got, err := decodeShape(appendShape(nil, s), 4)
	if err != nil || got != s {
		t.Errorf("%+v, %v", got, err)
	}
	for name, b := range map[string][]byte{
		"short":   appendShape(nil, s)[1:],
		"root":    appendShape(nil, shape{kind: CallReduce, root: 4, count: 1}),
		"kind":    appendShape(nil, shape{kind: CallSend, count: 1}),
		"type":    appendShape(nil, shape{typ: datatype.NumTypes, count: 1}),
		"nothing": appendShape(nil, shape{}),
		"count":   appendShape(nil, shape{count: 1 << 63}),
	} {
		if _, err := decodeShape(b, 4); !errors.Is(err, errMessage) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
