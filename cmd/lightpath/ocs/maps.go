package ocs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"lightpath/cmd/lightpath/cli"
	"lightpath/internal/decode"
	"lightpath/plans/circuit"
)

// mapSpec is the value of a flag that describes maps: ring:K, xor:M, dark, or a JSON file. All errors name the flag.
type mapSpec struct {
	flag string // without its dashes
	text string
}

// wrong returns err as an error about the value.
func (s mapSpec) wrong(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("--%s %s: %w", s.flag, s.text, err)
}

// rule returns the map of n ranks by ring:K, xor:M or dark. isFile: the value names a file.
func (s mapSpec) rule(n int) (p circuit.Permutation, isFile bool, err error) {
	kind, arg, _ := strings.Cut(s.text, ":")
	switch kind {
	case "":
		return nil, false, fmt.Errorf("--%s is required: ring:K, xor:M, dark, or a JSON file", s.flag)
	case "dark":
		return circuit.AllDark(n), false, nil
	case "ring", "xor":
		k, err := strconv.Atoi(arg)
		switch {
		case err != nil || k < 0 && kind == "xor":
			return nil, false, s.wrong(fmt.Errorf("%q is no number for %s", arg, kind))
		case kind == "ring":
			return circuit.Shift(n, k), false, nil
		}
		p = circuit.Xor(n, k)
		return p, false, s.wrong(p.Validate(n))
	}
	return nil, true, nil
}

// read returns the text of the file.
func (s mapSpec) read() ([]byte, error) {
	data, err := cli.ReadInput(s.flag, s.text)
	if errors.Is(err, fs.ErrNotExist) {
		err = s.wrong(errors.New("it is none of ring:K, xor:M and dark, and there is no such file"))
	}
	return data, err
}

// decode reads the map of n ranks, a JSON list, from the text of the file.
func (s mapSpec) decode(data []byte, n int) (p circuit.Permutation, err error) {
	if err = decode.StrictJSON(data, &p); err == nil {
		err = p.Validate(n)
	}
	return p, s.wrong(err)
}

// one returns the map of n ranks.
func (s mapSpec) one(n int) (circuit.Permutation, error) {
	p, isFile, err := s.rule(n)
	if !isFile {
		return p, err
	}
	data, err := s.read()
	if err != nil {
		return nil, err
	}
	return s.decode(data, n)
}

// byPlane returns the maps of planes: the same one for all of names, or those that the object of a file has by name.
func (s mapSpec) byPlane(names []string, ports int) (map[string]circuit.Permutation, error) {
	m, isFile, err := s.rule(ports)
	if isFile {
		var data []byte
		if data, err = s.read(); err != nil {
			return nil, err
		}
		if bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
			all, err := decodePlanes(data, ports)
			return all, s.wrong(err)
		}
		m, err = s.decode(data, ports)
	}
	if err != nil {
		return nil, err
	}
	all := make(map[string]circuit.Permutation)
	for _, name := range names {
		all[name] = m
	}
	return all, nil
}

// decodePlanes reads an object with the map of each plane by name.
func decodePlanes(data []byte, ports int) (map[string]circuit.Permutation, error) {
	all := make(map[string]circuit.Permutation)
	r := decode.NewReader(data)
	err := r.Object(func(name string) error {
		m, err := decode.List(r, ports, r.Between(circuit.Dark, ports-1))
		if err == nil {
			if err = circuit.Permutation(m).Validate(ports); err != nil {
				err = r.Errorf("%w", err)
			}
		}
		all[name] = m
		return err
	})
	if err == nil {
		err = r.End()
	}
	return all, err
}
