package lumos

import (
	"bytes"
	"encoding/json"
	"fmt"

	"lightpath/internal/decode"
	"lightpath/plans/circuit"
	"lightpath/plans/lumos/matrix"
)

// fileVersion is the version of the files of this package.
const fileVersion = 1

// requirementFile is a requirement as written: one of Links and Matrix.
type requirementFile struct {
	Version int      `json:"version"`
	Fabric  Fabric   `json:"fabric"`
	Links   []triple `json:"links,omitempty"`  // leaf, leaf, links: each pair once
	Matrix  [][]int  `json:"matrix,omitempty"` // leaves x leaves
}

// coreFile is a core as written.
type coreFile struct {
	Version int    `json:"version"`
	Fabric  Fabric `json:"fabric"`
	// Links are those of the logical topology: leaf, leaf, spine.
	Links []triple `json:"links"`
	// Maps[h][k] is the map of OCS 2k of group h; OCS 2k+1 has the inverse.
	Maps [][]circuit.Permutation `json:"maps"`
}

// stepsFile is steps as written.
type stepsFile struct {
	Version int    `json:"version"`
	Fabric  Fabric `json:"fabric"`
	Steps   []Step `json:"steps"`
}

// triple is a list of three numbers; encoding/json would fill up shorter ones and cut longer ones.
type triple [3]int

// UnmarshalJSON implements [json.Unmarshaler].
func (t *triple) UnmarshalJSON(data []byte) error {
	var list []int
	if json.Unmarshal(data, &list) != nil || len(list) != len(t) {
		return fmt.Errorf("links: %s is not three numbers", bytes.Join(bytes.Fields(data), nil))
	}
	*t = triple(list)
	return nil
}

// decodeFile reads one JSON value without fields that are not known.
func decodeFile(data []byte, to any) error {
	if err := decode.StrictJSON(data, to); err != nil {
		return fmt.Errorf("%w: %w", ErrInput, err)
	}
	return nil
}

// checkHead checks what all files begin with.
func checkHead(version int, f Fabric) error {
	if version != fileVersion {
		return fmt.Errorf("%w: version: %d is not %d", ErrInput, version, fileVersion)
	}
	if err := f.check(); err != nil {
		return fmt.Errorf("%w: fabric.%w", ErrInput, err)
	}
	return nil
}

// DecodeRequirement reads a requirement file; errors name the field and the row.
func DecodeRequirement(data []byte) (*Requirement, error) {
	var file requirementFile
	if err := decodeFile(data, &file); err != nil {
		return nil, err
	}
	if err := checkHead(file.Version, file.Fabric); err != nil {
		return nil, err
	}
	if file.Matrix != nil {
		if file.Links != nil {
			return nil, fmt.Errorf("%w: links and matrix are given, want one", ErrInput)
		}
		m, err := matrix.FromDense(file.Matrix)
		if err != nil {
			return nil, fmt.Errorf("%w: matrix: %w", ErrInput, err)
		}
		return requirementOf(file.Fabric, m)
	}
	r, err := NewRequirement(file.Fabric)
	if err != nil {
		return nil, err
	}
	for n, l := range file.Links {
		if l[2] < 0 {
			return nil, fmt.Errorf("%w: links[%d]: %d links are negative", ErrInput, n, l[2])
		}
		if err := r.Add(l[0], l[1], l[2]); err != nil {
			return nil, fmt.Errorf("links[%d]: %w", n, err)
		}
		if r.At(l[0], l[1]) != l[2] {
			return nil, fmt.Errorf("%w: links[%d]: leaves %d and %d are listed twice", ErrInput, n, l[0], l[1])
		}
	}
	return r, nil
}

// Encode writes a requirement as a file that [DecodeRequirement] reads back.
func (r *Requirement) Encode() []byte {
	file := requirementFile{Version: fileVersion, Fabric: r.fabric, Links: []triple{}}
	for a := range r.links.Size() {
		for _, c := range r.links.Row(a) {
			if a < c.Col {
				file.Links = append(file.Links, triple{a, c.Col, c.Count})
			}
		}
	}
	return encode(file)
}

// DecodeCore reads a core file: maps and the links that are to be carried. Maps without a circuit for a
// link are refused.
func DecodeCore(data []byte) (*Core, error) {
	var file coreFile
	if err := decodeFile(data, &file); err != nil {
		return nil, err
	}
	if err := checkHead(file.Version, file.Fabric); err != nil {
		return nil, err
	}
	f := file.Fabric
	c, err := configured(&Configuration{Fabric: f, Even: file.Maps})
	if err != nil {
		return nil, err
	}
	for n, l := range file.Links {
		a, b, h := l[0], l[1], l[2]
		where := fmt.Sprintf("links[%d]: leaves %d and %d by spine %d", n, a, b, h)
		switch {
		case min(a, b) < 0 || max(a, b) >= f.Leaves() || h < 0 || h >= f.Spines():
			return nil, fmt.Errorf("%w: %s: no such leaf or spine", ErrInput, where)
		case f.Pod(a) == f.Pod(b):
			return nil, fmt.Errorf("%w: %s: both are in pod %d", ErrInput, where, f.Pod(a))
		case c.leaves.At(a, h) >= 0 || c.leaves.From(b, h) >= 0:
			return nil, fmt.Errorf("%w: %s: one of them has such a link already", ErrInput, where)
		}
		c.leaves.Put(a, b, h)
		if i, j := f.Pod(a), f.Pod(b); c.groups[h].Have(i, j) < c.need[h].At(i, j) {
			return nil, fmt.Errorf("%w: %s: group %d has %d circuits between pods %d and %d, and that is the %d. link",
				ErrInput, where, h, c.groups[h].Have(i, j), i, j, c.need[h].At(i, j))
		}
	}
	return c, nil
}

// Encode writes a core as a file that [DecodeCore] reads back.
func (c *Core) Encode() []byte {
	file := coreFile{Version: fileVersion, Fabric: c.fabric, Links: []triple{}, Maps: c.Configuration().Even}
	for a := range c.fabric.Leaves() {
		for h := range c.fabric.Spines() {
			if b := c.leaves.At(a, h); b != circuit.Dark {
				file.Links = append(file.Links, triple{a, b, h})
			}
		}
	}
	return encode(file)
}

// EncodeSteps writes the steps of a fabric.
func EncodeSteps(f Fabric, steps []Step) []byte {
	return encode(stepsFile{fileVersion, f, append([]Step{}, steps...)})
}

// DecodeSteps reads what [EncodeSteps] writes.
func DecodeSteps(data []byte) (Fabric, []Step, error) {
	var file stepsFile
	if err := decodeFile(data, &file); err != nil {
		return Fabric{}, nil, err
	}
	if err := checkHead(file.Version, file.Fabric); err != nil {
		return Fabric{}, nil, err
	}
	f := file.Fabric
	for s, step := range file.Steps {
		for n, m := range step.Moves {
			if m.Group < 0 || m.Group >= f.Spines() || m.Pair < 0 || m.Pair >= f.Pairs() {
				return Fabric{}, nil, fmt.Errorf("%w: steps[%d].moves[%d]: no pair %d of group %d", ErrInput, s, n, m.Pair, m.Group)
			}
			if err := m.Even.Validate(f.Pods); err != nil {
				return Fabric{}, nil, fmt.Errorf("%w: steps[%d].moves[%d].even%w", ErrInput, s, n, err)
			}
		}
	}
	return f, file.Steps, nil
}

func encode(file any) []byte {
	data, err := json.Marshal(file)
	if err != nil {
		panic(err) // numbers and lists
	}
	return append(data, '\n')
}
