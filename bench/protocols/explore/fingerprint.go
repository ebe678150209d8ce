package explore

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"reflect"
	"slices"
)

// Fingerprinter hashes the state of Go values, with all that they refer to, also unexported fields. It leaves out
// functions, channels, and the fields and types that it is told to leave out. It numbers pointers in the order in which
// it meets them, so that equal graphs have equal hashes at any address.
type Fingerprinter struct {
	without []string // "package.Type" and "Type.field"
	fields  map[reflect.Type][]int
	met     map[reference]uint64 // numbers of pointers
	h       uint64
}

// reference is a pointer.
type reference struct {
	of reflect.Type
	at uintptr
}

// NewFingerprinter returns a fingerprinter that leaves out the given "package.Type" and "Type.field".
func NewFingerprinter(without ...string) *Fingerprinter {
	return &Fingerprinter{without: without, fields: map[reflect.Type][]int{}, met: map[reference]uint64{}}
}

// Of returns the fingerprint of values.
func (f *Fingerprinter) Of(all ...reflect.Value) uint64 {
	clear(f.met)
	f.h = 1
	for _, v := range all {
		f.walk(v)
	}
	return f.h
}

// kept returns the fields of a struct that it hashes.
func (f *Fingerprinter) kept(t reflect.Type) []int {
	list, known := f.fields[t]
	if known {
		return list
	}
	for i := range t.NumField() {
		field := t.Field(i)
		inner := field.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		switch field.Type.Kind() {
		case reflect.Func, reflect.Chan:
			continue
		}
		if !slices.Contains(f.without, t.Name()+"."+field.Name) && !slices.Contains(f.without, inner.String()) {
			list = append(list, i)
		}
	}
	f.fields[t] = list
	return list
}

func (f *Fingerprinter) add(x uint64) {
	hi, lo := bits.Mul64(f.h^x, 0x9e3779b97f4a7c15)
	f.h = hi ^ bits.RotateLeft64(lo, 29) + 0x2545f4914f6cdd1d
}

func (f *Fingerprinter) walk(v reflect.Value) {
	if !v.IsValid() {
		f.add(0)
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		if v.Bool() {
			f.add(3)
		} else {
			f.add(2)
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		f.add(uint64(v.Int()))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		f.add(v.Uint())
	case reflect.String:
		f.text(v.String())
	case reflect.Pointer:
		if v.IsNil() {
			f.add(0)
			return
		}
		at := reference{v.Type(), v.Pointer()}
		n, again := f.met[at]
		if !again {
			n = uint64(len(f.met)) + 1
			f.met[at] = n
		}
		f.add(n)
		if !again {
			f.walk(v.Elem())
		}
	case reflect.Interface:
		f.walk(v.Elem())
	case reflect.Slice, reflect.Array:
		f.add(uint64(v.Len()))
		for i := range v.Len() {
			f.walk(v.Index(i))
		}
	case reflect.Struct:
		for _, i := range f.kept(v.Type()) {
			f.walk(v.Field(i))
		}
	case reflect.Map:
		f.table(v)
	}
}

func (f *Fingerprinter) text(s string) {
	f.add(uint64(len(s)))
	for len(s) > 0 {
		var b [8]byte
		s = s[copy(b[:], s):]
		f.add(binary.LittleEndian.Uint64(b[:]))
	}
}

// table hashes a map in the order of its keys' bytes.
func (f *Fingerprinter) table(v reflect.Value) {
	type entry struct {
		key   []byte
		value reflect.Value
	}
	all := make([]entry, 0, v.Len())
	for it := v.MapRange(); it.Next(); {
		all = append(all, entry{appendKey(nil, it.Key()), it.Value()})
	}
	slices.SortFunc(all, func(a, b entry) int { return bytes.Compare(a.key, b.key) })
	f.add(uint64(len(all)))
	for _, e := range all {
		f.text(string(e.key))
		f.walk(e.value)
	}
}

// appendKey appends the bytes of a map's key: numbers, strings, and structs of them.
func appendKey(b []byte, k reflect.Value) []byte {
	switch k.Kind() {
	case reflect.Struct:
		for i := range k.NumField() {
			b = appendKey(b, k.Field(i))
		}
		return b
	case reflect.String:
		return append(b, k.String()...)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return binary.BigEndian.AppendUint64(b, uint64(k.Int()))
	}
	return binary.BigEndian.AppendUint64(b, k.Uint()) // panics for keys of other kinds
}
