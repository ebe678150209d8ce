package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"lightpath/internal/files"
)

// MaxInput bounds what is read from a file or a pipe, in bytes.
var MaxInput int64 = 512 << 20

// ReadInput reads the file that a flag names, or standard input for "-".
func ReadInput(flag, path string) ([]byte, error) {
	if path == "" {
		return nil, fmt.Errorf("--%s is required (- for standard input)", flag)
	}
	data, err := ReadArgument(path)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, err)
	}
	return data, nil
}

// ReadArgument reads the file that an argument names, or standard input for "-".
func ReadArgument(path string) ([]byte, error) {
	if path == "-" {
		return files.ReadFrom(os.Stdin, MaxInput)
	}
	return files.Read(path, MaxInput)
}

// WriteOutput writes a file as [files.Write] does; "" and "-" are standard output.
func WriteOutput(flag, path string, data []byte) (err error) {
	if path == "" || path == "-" {
		_, err = os.Stdout.Write(data)
		return err
	}
	if err := files.Write(path, data, 0o644); err != nil {
		return fmt.Errorf("--%s: %w", flag, err)
	}
	return nil
}

// CheckOutput returns an error if the file that a flag names cannot be written. A command calls it before long work.
func CheckOutput(flag, path string) error {
	if path == "" || path == "-" {
		return nil
	}
	if err := files.CheckWrite(path); err != nil {
		return fmt.Errorf("--%s: %w", flag, err)
	}
	return nil
}

// WriteJSON writes v, indented, to path. "-" is standard output, and "" writes nothing.
func WriteJSON(flag, path string, v any) error {
	if path == "" {
		return nil
	}
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return WriteOutput(flag, path, append(text, '\n'))
}

// PrintJSON writes v, indented, to standard output.
func PrintJSON(v any) error { return WriteJSON("json", "-", v) }

// Show prints v as JSON, or calls text, which prints it for people.
func Show(asJSON bool, v any, text func()) error {
	if asJSON {
		return PrintJSON(v)
	}
	text()
	return nil
}

// DecodeInput reads and decodes the file that a flag names, or standard input for "-".
func DecodeInput[T any](flag, path string, decode func([]byte) (T, error)) (v T, err error) {
	data, err := ReadInput(flag, path)
	if err != nil {
		return v, err
	}
	return decoded(path, data, decode)
}

// DecodeArgument reads and decodes the file that an argument names, or standard input for "-".
func DecodeArgument[T any](path string, decode func([]byte) (T, error)) (v T, err error) {
	data, err := ReadArgument(path)
	if err != nil {
		return v, err
	}
	return decoded(path, data, decode)
}

func decoded[T any](path string, data []byte, decode func([]byte) (T, error)) (v T, err error) {
	if v, err = decode(data); err != nil {
		return v, fmt.Errorf("%s: %w", InputName(path), err)
	}
	return v, nil
}

// InputName is what messages call the input at path.
func InputName(path string) string {
	if path == "-" {
		return "standard input"
	}
	return path
}

// HangUp ends a session whose work is done: how it ends changes nothing.
func HangUp(c io.Closer) { c.Close() }
