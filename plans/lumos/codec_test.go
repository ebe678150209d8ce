package lumos

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"lightpath/internal/require"
)

const head = `{"version":1,"fabric":{"pods":3,"k_leaf":4,"k_spine":4,"tau":2,"k_ocs":8}`

func TestRequirementRefused(t *testing.T) {
	zeros := "[0,0,0,0,0,0]"
	for want, file := range map[string]string{
		"version: 2 is not 1":                              `{"version":2}`,
		"unknown field \"podz\"":                           `{"version":1,"fabric":{"podz":3}}`,
		"text after the value":                             head + `} 1`,
		"bad input: fabric.k_leaf: 5 is odd":               strings.Replace(head, `"k_leaf":4`, `"k_leaf":5`, 1) + "}",
		"bad input: fabric.k_spine: 0 is not from 2":       strings.Replace(head, `"k_spine":4`, `"k_spine":0`, 1) + "}",
		"bad input: fabric.tau: 3 is neither":              strings.Replace(head, `"tau":2`, `"tau":3`, 1) + "}",
		"bad input: fabric.pods: 9 is not from 1 to k_ocs": strings.Replace(head, `"pods":3`, `"pods":9`, 1) + "}",
		"links[0]: bad input: leaf 6 is outside 0..5":      head + `,"links":[[0,6,1]]}`,
		"links[1]: bad input: leaves 0 and 1 are both":     head + `,"links":[[0,2,1],[0,1,1]]}`,
		"links[1]: bad input: leaf 0 of pod 0 needs more":  head + `,"links":[[0,2,3],[0,4,2]]}`,
		"links[2]: bad input: leaf 2 of pod 1 needs more":  head + `,"links":[[0,2,1],[0,4,1],[2,4,9223372036854775807]]}`,
		"links[0]: -1 links are negative":                  head + `,"links":[[0,2,-1]]}`,
		"links[1]: leaves 2 and 0 are listed twice":        head + `,"links":[[0,2,1],[2,0,1]]}`,
		"links and matrix are given":                       head + `,"links":[[0,2,1]],"matrix":[]}`,
		"matrix: row 1 has 1 entries":                      head + `,"matrix":[[0,0],[1]]}`,
		"requirement: 2 rows, want one for each of 6":      head + `,"matrix":[[0,0],[0,0]]}`,
		"requirement[0][2] is 1 but [2][0] is 0": head + `,"matrix":[[0,0,1,0,0,0],` + strings.Repeat(zeros+",",
			4) + zeros + `]}`,
		"requirement[0][2]: -1 is negative": head + `,"matrix":[[0,0,-1,0,0,0],` + strings.Repeat(zeros+",",
			4) + zeros + `]}`,
		"requirement[0][1]: leaves 0 and 1 are both in pod": head + `,"matrix":[[0,1,0,0,0,0],[1,0,0,0,0,0],` +
			strings.Repeat(zeros+",", 3) + zeros + `]}`,
		"requirement[2]: leaf 2 of pod 1 needs more": head + `,"matrix":[` + zeros + "," + zeros +
			",[0,0,0,0,9223372036854775807,9223372036854775807]," + zeros + `,[0,0,9223372036854775807,0,0,0],` +
			`[0,0,9223372036854775807,0,0,0]]}`,
		"requirement[0]: leaf 0 of pod 0 needs more links": head + `,"matrix":[[0,0,5,0,0,0],` + zeros + `,[5,0,0,0,0,0],` +
			strings.Repeat(zeros+",", 2) + zeros + `]}`,
	} {
		if _, err := DecodeRequirement([]byte(file)); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\n%v, want %q", file, err, want)
		}
	}
}

func TestCoreRefused(t *testing.T) {
	dark := "[-1,-1,-1]"
	group := "[" + dark + "," + dark + "]"
	for want, file := range map[string]string{
		"maps: 1 groups, want 2":                       head + `,"links":[],"maps":[` + group + `]}`,
		"maps[1]: 1 pairs of OCSes, want 2":            head + `,"links":[],"maps":[` + group + `,[` + dark + `]]}`,
		"maps[0][1]: [1]: port 2 already receives":     head + `,"links":[],"maps":[[` + dark + `,[2,2,-1]],` + group + `]}`,
		"maps[0][1][0]: a circuit from pod 0":          head + `,"links":[],"maps":[[` + dark + `,[0,2,-1]],` + group + `]}`,
		"group 0 has 0 circuits between pods 0 and 1":  head + `,"links":[[0,2,0]],"maps":[` + group + `,` + group + `]}`,
		"links[0]: leaves 0 and 1 by spine 0: both":    head + `,"links":[[0,1,0]],"maps":[` + group + `,` + group + `]}`,
		"links[0]: leaves 0 and 2 by spine 2: no such": head + `,"links":[[0,2,2]],"maps":[` + group + `,` + group + `]}`,
		"one of them has such a link already": head + `,"links":[[0,2,0],[0,2,0]],"maps":[[[1,-1,-1],[1,-1,-1]],` +
			group + `]}`,
	} {
		if _, err := DecodeCore([]byte(file)); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\n%v, want %q", file, err, want)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	for round := range 40 {
		f := randomFabric(rng, 1+round%2)
		r := randomRequirement(t, rng, f, f.KLeaf, 100)
		again, err := DecodeRequirement(r.Encode())
		if err != nil || !again.links.Equal(r.links) || again.Sum(0) != r.Sum(0) {
			t.Fatalf("%v: %s", err, r.Encode())
		}
		core, err := NewCore(f)
		require.NoError(t, err)
		if _, err := core.Update(r, false); err != nil {
			t.Fatal(err)
		}
		same, err := DecodeCore(core.Encode())
		if err != nil || !bytes.Equal(same.Encode(), core.Encode()) {
			t.Fatalf("%v: %s", err, core.Encode())
		}
		if change, err := same.Update(r, false); err != nil || change.Made+change.Removed > 0 {
			t.Fatalf("the same requirement moves links of a core that was read: %+v, %v", change, err)
		}
	}
}

func FuzzDecodeRequirement(f *testing.F) {
	f.Add([]byte(head + `,"links":[[0,2,1]]}`))
	f.Add([]byte(head + `,"matrix":[[0,0]]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := DecodeRequirement(data)
		if err != nil || r.Fabric().Leaves() > 1000 {
			return
		}
		core, err := CoreFor(r)
		require.NoError(t, err)
		require.NoError(t, core.Logical().Check(r))
		if _, err := DecodeRequirement(r.Encode()); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzDecodeCore(f *testing.F) {
	core, _ := NewCore(small)
	f.Add(core.Encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := DecodeCore(data)
		if err != nil {
			return
		}
		if again, err := DecodeCore(c.Encode()); err != nil || !bytes.Equal(again.Encode(), c.Encode()) {
			t.Fatalf("%v: %s", err, c.Encode())
		}
	})
}

func FuzzDecodeSteps(f *testing.F) {
	f.Add(EncodeSteps(small, []Step{{Moves: []Move{{Group: 1, Pair: 1, Even: []int{1, 0, -1}}}}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		fab, steps, err := DecodeSteps(data)
		if err != nil {
			return
		}
		if _, _, err := DecodeSteps(EncodeSteps(fab, steps)); err != nil {
			t.Fatal(err)
		}
	})
}
