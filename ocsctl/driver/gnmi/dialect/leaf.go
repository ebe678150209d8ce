package dialect

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	gpb "github.com/openconfig/gnmi/proto/gnmi"

	"lightpath/internal/brief"
)

// Limits of one message of a peer.
const (
	maxDepth  = 24
	maxLeaves = 1 << 18
)

// Leaf is one value of a tree.
type Leaf struct {
	Elems  []*gpb.PathElem
	Value  string
	Number bool // in JSON
}

// Leaves returns the leaves of an update, without JSON lists that the dialect does not know.
func (d *Dialect) Leaves(prefix *gpb.Path, u *gpb.Update) ([]Leaf, error) {
	base, err := d.Join(prefix, u.GetPath())
	if err != nil {
		return nil, err
	}
	var text []byte
	switch v := u.GetVal().GetValue().(type) {
	case *gpb.TypedValue_JsonIetfVal:
		text = v.JsonIetfVal
	case *gpb.TypedValue_JsonVal:
		text = v.JsonVal
	default:
		value, err := scalar(u.GetVal())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", brief.Line(String(base)), err)
		}
		return []Leaf{{Elems: base, Value: value}}, nil
	}
	var tree any
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&tree); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrMessage, brief.Line(String(base)), err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: %s: more than one JSON value", ErrMessage, brief.Line(String(base)))
	}
	f := flattener{lists: d.lists()}
	if err := f.walk(base, tree); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrMessage, brief.Line(String(base)), err)
	}
	return f.leaves, nil
}

func scalar(v *gpb.TypedValue) (string, error) {
	switch v := v.GetValue().(type) {
	case *gpb.TypedValue_StringVal:
		return v.StringVal, nil
	case *gpb.TypedValue_AsciiVal:
		return v.AsciiVal, nil
	case *gpb.TypedValue_IntVal:
		return strconv.FormatInt(v.IntVal, 10), nil
	case *gpb.TypedValue_UintVal:
		return strconv.FormatUint(v.UintVal, 10), nil
	case *gpb.TypedValue_BoolVal:
		return strconv.FormatBool(v.BoolVal), nil
	case *gpb.TypedValue_DoubleVal:
		return strconv.FormatFloat(v.DoubleVal, 'g', -1, 64), nil
	case *gpb.TypedValue_FloatVal: // deprecated, and still sent
		return strconv.FormatFloat(float64(v.FloatVal), 'g', -1, 32), nil //nolint:staticcheck // as above
	default:
		return "", fmt.Errorf("%w: value of type %T", ErrMessage, v)
	}
}

// lists returns the keys of the dialect's lists, by the list's name.
func (d *Dialect) lists() map[string][]string {
	all := make(map[string][]string)
	for _, t := range d.tables() {
		for _, s := range t.Entry {
			for _, k := range s.Keys {
				if !slices.Contains(all[s.Name], k.Name) {
					all[s.Name] = append(all[s.Name], k.Name)
				}
			}
		}
	}
	return all
}

// flattener collects the leaves of a JSON tree.
type flattener struct {
	lists  map[string][]string
	leaves []Leaf
}

func (f *flattener) walk(at []*gpb.PathElem, tree any) error {
	if len(at) > maxDepth {
		return fmt.Errorf("nested deeper than %d", maxDepth)
	}
	leaf := Leaf{Elems: at}
	switch v := tree.(type) {
	case map[string]any:
		for name, below := range v {
			if err := f.member(at, local(name), below); err != nil {
				return err
			}
		}
		return nil
	case []any:
		// The list that the path itself ends in.
		if len(at) == 0 {
			return errors.New("a list without a name")
		}
		return f.member(at[:len(at)-1], at[len(at)-1].GetName(), v)
	case string:
		leaf.Value = v
	case json.Number:
		leaf.Value, leaf.Number = v.String(), true
	case bool:
		leaf.Value = strconv.FormatBool(v)
	case nil:
		return nil
	}
	if f.leaves = append(f.leaves, leaf); len(f.leaves) > maxLeaves {
		return fmt.Errorf("more than %d values", maxLeaves)
	}
	return nil
}

func (f *flattener) member(at []*gpb.PathElem, name string, below any) error {
	entries, isList := below.([]any)
	if !isList {
		return f.walk(append(slices.Clip(at), &gpb.PathElem{Name: name}), below)
	}
	keys, known := f.lists[name]
	if !known {
		return nil
	}
	for i, e := range entries {
		fields, ok := e.(map[string]any)
		if !ok {
			return fmt.Errorf("%s[%d]: no object", brief.Line(name), i)
		}
		elem := &gpb.PathElem{Name: name, Key: make(map[string]string, len(keys))}
		for _, k := range keys {
			value, err := keyOf(fields, k)
			if err != nil {
				return fmt.Errorf("%s[%d]: %w", brief.Line(name), i, err)
			}
			elem.Key[k] = value
		}
		if err := f.walk(append(slices.Clip(at), elem), fields); err != nil {
			return err
		}
	}
	return nil
}

func keyOf(fields map[string]any, key string) (string, error) {
	for name, v := range fields {
		if local(name) != key {
			continue
		}
		switch v := v.(type) {
		case string:
			return v, nil
		case json.Number:
			return v.String(), nil
		}
	}
	return "", fmt.Errorf("has no key %s", key)
}
