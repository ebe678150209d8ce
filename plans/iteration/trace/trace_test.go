package trace

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"lightpath/internal/require"
)

const example = `{"version":1, "name":"two", "ranks":4, "compute_us":50,
 "communicators":[{"name":"all", "groups":[[0,1,2,3]]}, {"name":"pairs", "groups":[[0,2],[1,3]]}],
 "calls":[
  {"name":"a", "communicator":1, "collective":"allreduce", "algorithm":"ring", "bytes":1000, "gap_us":5},
  {"communicator":0, "flows":[[0,1],[2,3]], "bytes":100, "after":[[-1,10]]},
  {"communicator":0, "collective":"broadcast", "algorithm":"ring", "root":3, "bytes":7, "after":[[0,3],[1,2.5]],
   "tail_us":20}]}`

func TestCodec(t *testing.T) {
	one, err := Decode([]byte(example))
	require.NoError(t, err)
	again, err := Decode(one.Encode())
	require.NoError(t, err)
	if !reflect.DeepEqual(one, again) {
		t.Errorf("%+v\n%+v", one, again)
	}
	if one.Digest() != again.Digest() || len(one.Digest()) != 64 {
		t.Error(one.Digest())
	}
	// 5, 10, max(5+3, 10+2.5) = 12.5, then 20; at least 50.
	if got := one.Longest(nil); got != 50 {
		t.Errorf("computation %v", got)
	}
	if got := one.Longest([]float64{100, 1, 2}); got != 5+100+3+2+20 {
		t.Errorf("longest %v", got)
	}
	if one.Label(0) != "a" || one.Label(1) != "sends" || one.Label(2) != "broadcast" {
		t.Error(one.Label(0), one.Label(1), one.Label(2))
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct{ old, with, says string }{
		{`"version":1`, `"version":2`, "version"},
		{`"version":1, `, ``, "version: missing"},
		{`"ranks":4`, `"ranks":0`, "ranks"},
		{`"ranks":4`, `"rank":4`, "rank: unknown field"},
		{`"compute_us":50`, `"compute_us":-1`, "compute_us: -1 is negative"},
		{`[[0,2],[1,3]]`, `[[0,2],[1]]`, "communicators[1].groups[1]: has 1 ranks"},
		{`[[0,2],[1,3]]`, `[[0,2],[1,2]]`, "communicators[1].groups[1][1]: rank 2 is listed twice"},
		{`[[0,2],[1,3]]`, `[[0,2],[1,4]]`, "communicators[1].groups[1][1]: 4 is outside 0..3"},
		{`[[0,2],[1,3]]`, `[]`, "communicators[1].groups: has no group"},
		{`"communicator":1`, `"communicator":2`, "calls[0].communicator: 2 is outside 0..1"},
		{`"bytes":1000`, `"bytes":-1`, "calls[0].bytes: -1 is negative"},
		{`"bytes":1000, `, ``, "calls[0]: bytes: missing"},
		{`"bytes":1000`, `"bytes":"1000"`, "calls[0].bytes: want a number"},
		{`"algorithm":"ring", "bytes":1000`, `"bytes":1000`, "calls[0].algorithm: missing"},
		{`"collective":"allreduce", "algorithm":"ring", "bytes":1000`, `"bytes":1000`, "calls[0].collective: missing"},
		{`"flows":[[0,1],[2,3]]`, `"flows":[[0,1],[2,2]]`, "calls[1].flows[1]: 2 -> 2 is no transfer"},
		{`"flows":[[0,1],[2,3]]`, `"flows":[[0,1],[0,1]]`, "calls[1].flows[1]: 0 -> 1 is listed twice"},
		{`"flows":[[0,1],[2,3]]`, `"flows":[[0,1],[2,4]]`, "calls[1].flows[1]: 2 -> 4 is outside 0..3"},
		{`"flows":[[0,1],[2,3]]`, `"flows":[], "collective":"x", "algorithm":"y"`, "calls[1].flows: a call has"},
		{`"flows":[[0,1],[2,3]]`, `"flows":[[0,1],[2,3]], "flow_bytes":[100]`,
			"calls[1].flow_bytes: has 1 sizes for 2 flows"},
		{`"flows":[[0,1],[2,3]]`, `"flows":[[0,1],[2,3]], "flow_bytes":[100,-1]`, "calls[1].flow_bytes[1]: -1 is negative"},
		{`"flows":[[0,1],[2,3]]`, `"flows":[[0,1],[2,3]], "flow_bytes":[50,60]`, "calls[1].bytes: 100, and the largest"},
		{`"bytes":1000`, `"flow_bytes":[1000], "bytes":1000`, "calls[0].flow_bytes: has 1 sizes for 0 flows"},
		{`"root":3`, `"root":4`, "calls[2].root: 4 is outside 0..3"},
		{`[[0,3],[1,2.5]]`, `[[0,3],[2,2.5]]`, "calls[2].after[1]: call 2 does not come before call 2"},
		{`[[0,3],[1,2.5]]`, `[[0,3],[0,2.5]]`, "calls[2].after[1]: call 0 is listed twice"},
		{`[[0,3],[1,2.5]]`, `[[0,-3]]`, "calls[2].after[0]: -3 is negative"},
		{`[[0,3],[1,2.5]]`, `[[0]]`, "calls[2].after[0]: has 1 elements"},
		{`[[0,3],[1,2.5]]`, `[]`, "calls[2].after: is empty"},
		{`"after":[[-1,10]]`, `"after":[[-1,10]], "gap_us":4`, "calls[1]: gap_us: a call has gap_us or after"},
		{`"tail_us":20`, `"tail_us":1e999`, "tail_us"},
	} {
		if !strings.Contains(example, c.old) {
			t.Fatalf("%q is not in the example", c.old)
		}
		_, err := Decode([]byte(strings.Replace(example, c.old, c.with, 1)))
		if !errors.Is(err, ErrTrace) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", c.with, err, c.says)
		}
	}
}

// FuzzDecode: a trace that Decode accepts is valid, and the same when it is written and read again.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(example))
	f.Add([]byte(strings.Replace(example, `"bytes":100,`, `"flow_bytes":[100,30.5], "bytes":100,`, 1)))
	f.Fuzz(func(t *testing.T, data []byte) {
		one, err := Decode(data)
		if err != nil {
			if one != nil || !errors.Is(err, ErrTrace) {
				t.Fatalf("%v with %v", one, err)
			}
			return
		}
		again, err := Decode(one.Encode())
		require.NoError(t, err)
		if string(again.Encode()) != string(one.Encode()) {
			t.Fatal("not the same when read again")
		}
	})
}

// TestFlowBytes: flows that differ keep their sizes.
func TestFlowBytes(t *testing.T) {
	one, err := Decode([]byte(strings.Replace(example, `"bytes":100,`, `"flow_bytes":[100,30.5], "bytes":100,`, 1)))
	require.NoError(t, err)
	again, err := Decode(one.Encode())
	require.NoError(t, err)
	c := &again.Calls[1]
	if !reflect.DeepEqual(one, again) || c.BytesOf(1) != 30.5 || c.Kind() != "2 sends, up to 100 bytes each" {
		t.Errorf("%+v", again)
	}
	c.SetFlows(map[[2]int]float64{{2, 1}: 5, {0, 1}: 7, {0, 2}: 1})
	if c.Bytes != 7 || !reflect.DeepEqual(c.FlowBytes, []float64{7, 1, 5}) || c.Busiest() != 12 {
		t.Errorf("%+v", c)
	}
	if c.SetFlows(map[[2]int]float64{{2, 1}: 5, {0, 1}: 5}); c.FlowBytes != nil || c.Bytes != 5 || c.BytesOf(1) != 5 {
		t.Errorf("%+v", c)
	}
}

// TestWithout: a trace without some calls, and with their times in its gaps, takes what the trace takes.
func TestWithout(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 13))
		n := 1 + r.IntN(8)
		tr := &Trace{ComputeUS: float64(r.IntN(100))}
		us, out := make([]float64, n), make([]float64, n)
		for i := range n {
			c := Call{Bytes: float64(i), TailUS: float64(r.IntN(50)), After: []After{{i - 1, float64(r.IntN(50))}}}
			for k := Begin; k < i-1; k++ {
				if r.IntN(3) == 0 {
					c.After = append(c.After, After{k, float64(r.IntN(100))})
				}
			}
			tr.Calls = append(tr.Calls, c)
			us[i] = float64(r.IntN(100))
			if out[i] = us[i]; r.IntN(2) == 0 {
				out[i] = Stays
			}
		}
		before := string(tr.Encode())
		part, left := tr.Without(out)
		stay := make([]float64, len(left))
		for k, i := range left {
			if stay[k] = us[i]; part.Calls[k].Bytes != float64(i) || out[i] != Stays {
				t.Errorf("seed %d: call %d of the part is call %d", seed, k, i)
			}
		}
		if got, want := part.Longest(stay), tr.Longest(us); got != want {
			t.Errorf("seed %d: %v us, the whole trace takes %v us", seed, got, want)
		}
		if string(tr.Encode()) != before {
			t.Errorf("seed %d: the trace has changed", seed)
		}
	}
}
