package chakra

import (
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// Decode reads the protobuf form. Errors wrap [ErrTrace] and name the message, counted from 0
// with the metadata, and the byte at which it begins.
func Decode(data []byte) (*Trace, error) {
	t := &Trace{}
	all := len(data)
	for message := 0; len(data) > 0; message++ {
		at := all - len(data)
		size, n := protowire.ConsumeVarint(data)
		if n < 0 || size > uint64(len(data)-n) {
			return nil, fmt.Errorf("%w: message %d at byte %d is cut short", ErrTrace, message, at)
		}
		body := data[n : n+int(size)]
		data = data[n+int(size):]
		if message == 0 {
			if err := fields(body, func(number protowire.Number, v value) error {
				if number == 1 {
					t.Version = string(v.bytes)
				}
				return nil
			}); err != nil {
				return nil, fmt.Errorf("%w: metadata at byte %d: %w", ErrTrace, at, err)
			}
			continue
		}
		node, err := decodeNode(body)
		if err != nil {
			return nil, fmt.Errorf("%w: message %d at byte %d: %w", ErrTrace, message, at, err)
		}
		t.Nodes = append(t.Nodes, node)
	}
	if len(t.Nodes) == 0 {
		return nil, fmt.Errorf("%w: no nodes", ErrTrace)
	}
	return t, t.check()
}

// value is a field's value in the form that its wire type has.
type value struct {
	wire   protowire.Type
	number uint64
	bytes  []byte
}

// fields calls f for every field of a message.
func fields(data []byte, f func(protowire.Number, value) error) error {
	for len(data) > 0 {
		number, wire, n := protowire.ConsumeTag(data)
		if n < 0 {
			return fmt.Errorf("a field is cut short")
		}
		data = data[n:]
		v := value{wire: wire}
		switch wire {
		case protowire.VarintType:
			v.number, n = protowire.ConsumeVarint(data)
		case protowire.Fixed64Type:
			v.number, n = protowire.ConsumeFixed64(data)
		case protowire.Fixed32Type:
			var u uint32
			u, n = protowire.ConsumeFixed32(data)
			v.number = uint64(u)
		case protowire.BytesType:
			v.bytes, n = protowire.ConsumeBytes(data)
		default:
			n = protowire.ConsumeFieldValue(number, wire, data)
		}
		if n < 0 {
			return fmt.Errorf("field %d is cut short", number)
		}
		data = data[n:]
		if err := f(number, v); err != nil {
			return fmt.Errorf("field %d: %w", number, err)
		}
	}
	return nil
}

func decodeNode(data []byte) (Node, error) {
	var n Node
	err := fields(data, func(number protowire.Number, v value) error {
		switch number {
		case 1:
			n.ID = v.number
		case 2:
			n.Name = string(v.bytes)
		case 3:
			n.Type = Type(int32(v.number))
		case 4:
			return appendIDs(&n.Control, v)
		case 5:
			return appendIDs(&n.Deps, v)
		case 7:
			n.DurationUS = float64(v.number)
		case 10:
			a, err := decodeAttribute(v.bytes)
			if err != nil {
				return err
			}
			n.attribute(a)
		}
		return nil
	})
	return n, err
}

// appendIDs reads ids, packed or one by one.
func appendIDs(ids *[]uint64, v value) error {
	if v.wire == protowire.VarintType {
		*ids = append(*ids, v.number)
		return nil
	}
	for data := v.bytes; len(data) > 0; {
		id, n := protowire.ConsumeVarint(data)
		if n < 0 {
			return fmt.Errorf("an id is cut short")
		}
		*ids = append(*ids, id)
		data = data[n:]
	}
	return nil
}

// attribute is an attribute of a node: a number or a text.
type attribute struct {
	name, text string
	number     float64
}

// decodeAttribute reads a value of the schema's oneof, except lists, which no attribute here is.
func decodeAttribute(data []byte) (attribute, error) {
	var a attribute
	err := fields(data, func(number protowire.Number, v value) error {
		switch number {
		case 1:
			a.name = string(v.bytes)
		case 3:
			a.number = math.Float64frombits(v.number)
		case 5:
			a.number = float64(math.Float32frombits(uint32(v.number)))
		case 7, 9, 23, 25: // int32, int64, sfixed32, sfixed64
			a.number = float64(int64(v.number))
			if number == 23 {
				a.number = float64(int32(v.number))
			}
		case 11, 13, 19, 21, 27: // uint32, uint64, fixed32, fixed64, bool
			a.number = float64(v.number)
		case 15, 17: // sint32, sint64
			a.number = float64(protowire.DecodeZigZag(v.number))
		case 29:
			a.text = string(v.bytes)
		}
		return nil
	})
	return a, err
}

// attribute sets the field of n that belongs to a, if there is one.
func (n *Node) attribute(a attribute) {
	switch a.name {
	case "comm_type":
		n.Collective = Collective(clampInt(a.number))
	case "comm_size":
		n.Bytes = a.number
	case "comm_src":
		n.Src = clampInt(a.number)
	case "comm_dst":
		n.Dst = clampInt(a.number)
	case "comm_tag":
		n.Tag = int64(clampInt(a.number))
	case "pg_name":
		n.Group = a.text
	}
}

// clampInt returns v as an int. It returns -1, which is no rank, for any number that is not an int.
func clampInt(v float64) int {
	if !(math.Abs(v) < maxNumber) || v != math.Trunc(v) {
		return -1
	}
	return int(v)
}
