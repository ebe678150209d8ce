package flight

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"lightpath/internal/assert"
	"lightpath/internal/require"
)

// recorded is the dump of a rank that has made collectives 1 .. last, all completed but the last
// if inside.
func recorded(rank, ranks int, last uint64, inside bool) *Dump {
	d := &Dump{Version: Version, Library: "v", Comm: "c", Ranks: ranks, Rank: rank, Host: "h", PID: 100 + rank,
		Time: 1e9, UnixTime: 5e9}
	for seq := uint64(1); seq <= last; seq++ {
		o := Operation{Number: seq, Seq: seq, Call: "AllReduce", Detail: "AllReduce(count 10)", Bytes: 40, Outcome: Completed,
			Arrived: int64(seq) * 1000, Ended: int64(seq)*1000 + 500}
		if inside && seq == last {
			o.Outcome, o.Ended = UnderWay, 0
		}
		d.Operations = append(d.Operations, o)
	}
	return d
}

func TestCompare(t *testing.T) {
	other := recorded(1, 2, 5, true)
	other.Operations[3].Detail = "AllGather(count 10)"
	forgot := recorded(1, 2, 9, false)
	forgot.Operations, forgot.Forgotten = forgot.Operations[4:], 4
	for _, c := range []struct {
		name  string
		dumps []*Dump
		want  string
	}{
		{"agree", []*Dump{recorded(0, 2, 5, false), recorded(1, 2, 5, false)},
			"communicator c (2 ranks): the recorders agree"},
		{"all inside", []*Dump{recorded(0, 2, 5, true), recorded(1, 2, 5, true)},
			"communicator c (2 ranks): the recorders agree"},
		{"behind", []*Dump{recorded(1, 2, 4, false), recorded(0, 2, 5, true)},
			"communicator c (2 ranks): operation 5, AllReduce(count 10): ranks [1] have not called it; ranks [0] have not " +
				"completed it"},
		{"one inside", []*Dump{recorded(0, 2, 5, true), recorded(1, 2, 5, false)},
			"communicator c (2 ranks): operation 5, AllReduce(count 10): ranks [0] have not completed it"},
		{"calls", []*Dump{recorded(0, 2, 5, true), other},
			"communicator c (2 ranks): operation 4: ranks [0] called AllReduce(count 10), ranks [1] called AllGather(count 10)"},
		{"missing", []*Dump{recorded(0, 3, 2, false), recorded(2, 3, 2, false)},
			"communicator c (3 ranks): the recorders agree; no recorder of ranks [1]"},
		{"forgotten", []*Dump{recorded(0, 2, 9, false), forgot}, "communicator c (2 ranks): the recorders agree"},
	} {
		found := Compare(c.dumps)
		if len(found) != 1 || found[0].String() != c.want {
			t.Errorf("%s: %v", c.name, found)
		}
		if found[0].Differs() == strings.Contains(c.want, "agree") {
			t.Errorf("%s: %v", c.name, found[0].Differs())
		}
	}
	// The last dump of a rank counts, wherever it stands.
	late := recorded(1, 2, 5, false)
	late.UnixTime++
	for _, dumps := range [][]*Dump{{recorded(0, 2, 5, false), late, recorded(1, 2, 4, false)},
		{recorded(0, 2, 5, false), recorded(1, 2, 4, false), late}} {
		if found := Compare(dumps); found[0].Differs() {
			t.Errorf("%v", found)
		}
	}
}

// TestTrace holds the trace against what the trace-event format asks for.
func TestTrace(t *testing.T) {
	a, b := recorded(0, 2, 3, true), recorded(1, 2, 3, false)
	b.Time, b.UnixTime = 7e9, 5e9 // another host's clock
	for i := range b.Operations {
		b.Operations[i].Arrived += 6e9
		b.Operations[i].Ended += 6e9
	}
	o := &a.Operations[0]
	o.Asked, o.Ticketed = 1100, 1200
	o.Planes = []Lane{{Plane: 1, Epoch: 7, Sent: 3, Start: 1250, End: 1400}, {Plane: 2, Start: 1250}}
	o.Moves = []Move{{Plane: 1, Epoch: 7, Start: 1300, End: 1350}, {Plane: 1, Epoch: 8, Start: 1400}}
	text, err := json.Marshal(Trace([]*Dump{a, b}))
	require.NoError(t, err)
	var trace struct {
		TraceEvents []map[string]any `json:"traceEvents"`
	}
	require.NoError(t, json.Unmarshal(text, &trace))
	seen := map[string]int{}
	for _, e := range trace.TraceEvents {
		name, _ := e["name"].(string)
		seen[name]++
		_, pid := e["pid"].(float64)
		_, tid := e["tid"].(float64)
		ts, timed := e["ts"].(float64)
		dur, long := e["dur"].(float64)
		switch e["ph"] {
		case "M":
			if args, _ := e["args"].(map[string]any); args["name"] == "" {
				t.Errorf("%v", e)
			}
		case "X":
			if !timed || !long || ts < 0 || dur < 0 {
				t.Errorf("%v", e)
			}
		default:
			t.Errorf("phase of %v", e)
		}
		if name == "" || !pid || !tid {
			t.Errorf("%v", e)
		}
	}
	for name, n := range map[string]int{"process_name": 2, "thread_name": 4, "AllReduce #1": 4, "AllReduce #3": 2,
		"ticket": 1, "reconfigure 7 -> 8": 1, "reconfigure 8 -> 9": 1} {
		if seen[name] != n {
			t.Errorf("%s: %d times, not %d", name, seen[name], n)
		}
	}
	// The same moment on both hosts is the same time.
	if !strings.Contains(string(text), `"ts":0,`) || strings.Count(string(text), `"ts":1,`) != 2 {
		t.Errorf("%s", text)
	}
}

func TestWrite(t *testing.T) {
	dumps := []*Dump{recorded(0, 2, 3, true), recorded(1, 2, 2, false)}
	dumps[0].Error = "lost rank 1"
	var out bytes.Buffer
	Write(&out, dumps, Compare(dumps), true)
	assert.Contains(t, out.String(), "operation 3", "rank 0: lost rank 1", "AllReduce #2", "under way")
}

func TestDecodeRefuses(t *testing.T) {
	good, err := recorded(0, 2, 2, false).Encode()
	require.NoError(t, err)
	for from, to := range map[string]string{
		`"version":1`: `"version":2`, `"rank":0`: `"rank":2`, `"ranks":2`: `"ranks":0`, `"comm":"c"`: `"comm":""`,
		`"number":2`: `"number":1`, `"outcome":"completed"`: `"outcome":"done"`, `"planes":null`: `"planes":[{"plane":64}]`,
	} {
		bad := strings.Replace(string(good), from, to, 1)
		if _, err := Decode([]byte(bad)); bad == string(good) || err == nil {
			t.Errorf("%s: %v", to, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, d := range []*Dump{recorded(0, 2, 2, true), recorded(1, 2, 0, false)} {
		text, err := d.Encode()
		require.NoError(f, err)
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := Decode(text)
		if (d == nil) == (err == nil) {
			t.Fatalf("%v and %v", d, err)
		}
		if err != nil {
			return
		}
		// Whatever is accepted can be worked with.
		dumps := []*Dump{d, d}
		var out bytes.Buffer
		Write(&out, dumps, Compare(dumps), true)
		if _, err := json.Marshal(Trace(dumps)); err != nil {
			t.Error(err)
		}
		if d.FileName() == "" || fmt.Sprint(d.Operations) == "" {
			t.Error("no name")
		}
	})
}
