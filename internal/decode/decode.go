package decode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
)

// JSON is [json.Unmarshal]: it ignores fields that to does not have.
func JSON(data []byte, to any) error { return Explain(data, json.Unmarshal(data, to)) }

// StrictJSON reads one value, and refuses fields that to does not have and text after the value.
func StrictJSON(data []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return Explain(data, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return at(data, d.InputOffset(), "text after the value")
	}
	return nil
}

// Explain rewrites an error of encoding/json about data.
func Explain(data []byte, err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		got := gots[wrong.Value]
		if got == "" {
			got = strings.TrimPrefix(wrong.Value, "number ")
		}
		if wrong.Field != "" {
			got = fmt.Sprintf("%s: want %s, not %s", wrong.Field, Want(wrong.Type), got)
		} else {
			got = fmt.Sprintf("want %s, not %s", Want(wrong.Type), got)
		}
		return at(data, wrong.Offset, got)
	}
	const end = "unexpected end of JSON input" // of json.Unmarshal; a json.Decoder has an error for it
	syntax, ok := errors.AsType[*json.SyntaxError](err)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF) || err.Error() == end && len(bytes.TrimSpace(data)) == 0:
		return errors.New("no text")
	case errors.Is(err, io.ErrUnexpectedEOF) || err.Error() == end:
		return errors.New("the text ends within a value")
	case ok:
		return at(data, syntax.Offset, syntax.Error())
	}
	return errors.New(strings.TrimPrefix(err.Error(), "json: "))
}

// at says in which line of data something is wrong, if there are several.
func at(data []byte, offset int64, what string) error {
	offset = min(offset, int64(len(data)))
	if text := bytes.TrimRight(data, "\n"); bytes.IndexByte(text, '\n') < 0 {
		return errors.New(what)
	}
	return fmt.Errorf("line %d: %s", 1+bytes.Count(data[:offset], []byte("\n")), what)
}

// gots are the words for what encoding/json found.
var gots = map[string]string{
	"object": "an object", "array": "a list", "string": "text", "number": "a number", "bool": "true or false",
}

// Want returns the words for what a value of type t is read from.
func Want(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return Want(t.Elem())
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Int8, reflect.Int16, reflect.Int32:
		return fmt.Sprintf("a whole number from %d to %d", -1<<(t.Bits()-1), 1<<(t.Bits()-1)-1)
	case reflect.Uint, reflect.Uint64:
		return "a whole number of at least 0"
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		return fmt.Sprintf("a whole number from 0 to %d", 1<<t.Bits()-1)
	case reflect.Float32, reflect.Float64:
		return "a number"
	}
	return "text"
}
