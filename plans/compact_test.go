package plans

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"lightpath/internal/require"
	"lightpath/plans/circuit"
)

// rotation is the plan of an All-to-All on which every plane serves each third step.
func rotation(n int) (*Problem, *Plan) {
	problem := &Problem{Version: 1, Ranks: n, Planes: 3, BandwidthGbps: 8, AlphaUS: 0.1, ReconfigUS: 10, Circuits: Simplex}
	plan := &Plan{Version: 1, Planner: "test", Planes: make([][]Entry, 3)}
	for j := range 3 {
		plan.Initial = append(plan.Initial, circuit.Shift(n, j+1))
	}
	now := 0.0
	for i := range n - 1 {
		problem.Steps = append(problem.Steps, Step{Bytes: 7e3, To: circuit.Shift(n, i+1)})
		j := i % 3
		if i >= 3 {
			plan.Planes[j] = append(plan.Planes[j], Entry{Kind: Reconfigure, To: circuit.Shift(n, i+1), StartUS: now - 14.1,
				EndUS: now - 4.1})
		}
		plan.Planes[j] = append(plan.Planes[j], Entry{Kind: Transmit, Step: i, Bytes: 7e3, StartUS: now, EndUS: now + 7.1})
		now += 7.1
	}
	plan.CCTUS = now
	return problem, plan
}

// TestCompactIsExpanded: the compact form of a plan that repeats is short, and both forms read back as
// the same plan with the same digest.
func TestCompactIsExpanded(t *testing.T) {
	problem, plan := rotation(400)
	before := *plan
	before.Planes = make([][]Entry, 3)
	for j := range before.Planes {
		before.Planes[j] = append([]Entry(nil), plan.Planes[j]...)
	}
	plan.FindRepeats()
	for j := range plan.Planes {
		for i := range plan.Planes[j] {
			if e, f := &plan.Planes[j][i], &before.Planes[j][i]; !SameUS(e.StartUS, f.StartUS) || !SameUS(e.EndUS, f.EndUS) ||
				e.Bytes != f.Bytes {
				t.Fatalf("planes[%d][%d] moved from %+v to %+v", j, i, *f, *e)
			}
		}
	}
	require.NoError(t, Seal(problem, plan))
	expanded, err := EncodePlan(plan)
	require.NoError(t, err)
	compact, err := EncodeCompactPlan(plan)
	require.NoError(t, err)
	if len(compact) > 4000 || len(expanded) < 100*len(compact) {
		t.Errorf("%d bytes compact, %d expanded:\n%s", len(compact), len(expanded), compact)
	}
	for form, text := range map[string][]byte{"compact": compact, "expanded": expanded} {
		back, err := DecodePlan(text)
		if err != nil {
			t.Fatalf("%s: %v", form, err)
		}
		if err := VerifyDigest(problem, back); err != nil {
			t.Errorf("%s: %v", form, err)
		}
		if form == "compact" && !reflect.DeepEqual(back, plan) {
			t.Errorf("%s: reads back as another plan", form)
		}
		if again, err := EncodePlan(back); err != nil || !bytes.Equal(again, expanded) {
			t.Errorf("%s: its expanded form differs: %v", form, err)
		}
	}
	text, err := EncodeCompactProblem(problem)
	if err != nil || len(text) > 25000 {
		t.Fatalf("%d bytes, %v", len(text), err)
	}
	if back, err := DecodeProblem(text); err != nil || !reflect.DeepEqual(back, problem) {
		t.Errorf("the compact problem reads back as another: %v", err)
	}
}

// TestCompactAnything: plans of any maps and entries, some of which repeat, read back from both forms.
func TestCompactAnything(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 300 {
		n := 1 + rng.IntN(9)
		maps := []circuit.Permutation{circuit.Shift(n, rng.IntN(n)), circuit.Xor(n, rng.IntN(n)), circuit.AllDark(n),
			rng.Perm(n), rng.Perm(n)}
		maps = append(maps, maps[3].Clone())
		pick := func() circuit.Permutation { return maps[rng.IntN(len(maps))] }
		plan := &Plan{Version: 1, Initial: []circuit.Permutation{pick(), pick()}, Planes: [][]Entry{{}, {}}}
		for j := range plan.Planes {
			pattern := []Entry{}
			for range 1 + rng.IntN(3) {
				if rng.IntN(2) == 0 {
					pattern = append(pattern, Entry{Kind: Reconfigure, To: pick(), EndUS: 1})
				} else {
					pattern = append(pattern, Entry{Kind: Transmit, Step: rng.IntN(3), Bytes: rng.Float64(),
						Flows: []int{0}[:rng.IntN(2)], EndUS: 1})
				}
			}
			by, us := rng.IntN(3), 10*rng.Float64()
			for i := range rng.IntN(12) {
				for _, e := range pattern {
					if e.Kind == Transmit {
						e.Step += i * by
					}
					e.StartUS, e.EndUS = e.StartUS+float64(i)*us, e.EndUS+float64(i)*us
					plan.Planes[j] = append(plan.Planes[j], e)
				}
			}
		}
		if rng.IntN(4) > 0 {
			plan.FindRepeats()
		}
		expanded, err := EncodePlan(plan)
		require.NoError(t, err)
		compact, err := EncodeCompactPlan(plan)
		require.NoError(t, err)
		back, err := DecodePlan(compact)
		if err != nil {
			t.Fatalf("%v in\n%s", err, compact)
		}
		if again, err := EncodePlan(back); err != nil || !bytes.Equal(again, expanded) {
			t.Fatalf("%v\n%s\nexpands to\n%s\nwant\n%s", err, compact, again, expanded)
		}
	}
}

func TestDecodeCompactRefuses(t *testing.T) {
	plane := func(e string) string {
		return `{"version":1,"cct_us":1,"ranks":4,"maps":[[0,2,1,3]],"planes":[[` + e + `]]}`
	}
	one := `"entries":[{"kind":"transmit","step":1,"bytes":1,"start_us":0,"end_us":1}]`
	hold := func(to string) string { return `"entries":[{"kind":"hold","to":` + to + `,"start_us":0,"end_us":1}]` }
	for _, c := range []struct{ text, want string }{
		{`{"version":1,"cct_us":1,"planes":[[{"kind":"hold","to":{"shift":1},"start_us":0,"end_us":1}]]}`,
			"planes[0][0].to: shift: ranks must be stated before"},
		{plane(`{"kind":"hold","to":{"shift":4},"start_us":0,"end_us":1}`), "shift: 4 is outside 0..3"},
		{plane(`{"kind":"hold","to":{"map":1},"start_us":0,"end_us":1}`), "there is no map 1"},
		{plane(`{"kind":"hold","to":{},"start_us":0,"end_us":1}`), "one of shift, xor and map"},
		{plane(`{"kind":"hold","to":{"shift":1,"xor":1},"start_us":0,"end_us":1}`), "one of shift, xor and map"},
		{plane(`{"kind":"hold","to":{"turn":1},"start_us":0,"end_us":1}`), "one of shift, xor and map"},
		{plane(`{"repeat":2,` + one + `,"kind":"hold"}`), "an entry or a repetition"},
		{plane(`{"repeat":2}`), "entries: missing"},
		{plane(`{"repeat":2,"entries":[]}`), "entries: missing or empty"},
		{plane(`{` + one + `}`), "repeat: missing"},
		{plane(`{"repeat":0,` + one + `}`), "repeat: 0 is outside"},
		{plane(`{"repeat":9999999,` + one + `}`), "repeat: 9.999999e+06 is outside"},
		{plane(`{"repeat":2000000,` + strings.Replace(one, "[", "["+one[len(`"entries":[`):len(one)-1]+",", 1) + `}`),
			"more than"},
		{plane(`{"repeat":3,"step_by":-1,` + one + `}`), "step_by: repetition 2 is of step -1"},
		{plane(`{"repeat":3,"us_by":1e308,` + one + `}`), "us_by: repetition 1 has times that are not finite"},
		{plane(`{"repeat":2,"to_by":1,` + hold(`[0,1,2,3]`) + `}`), "a map that is a list does not move"},
		{plane(`{"repeat":2,"to_by":1,` + hold(`{"map":0}`) + `}`), "there is no map 1"},
		{plane(`{"repeat":2,"to_by":1,` + hold(`{"xor":3}`) + `}`), "xor: 4 is outside 0..3"},
		{plane(`{"repeat":2,"entries":[{"repeat":2,` + one + `}]}`), "only entries that are not joint repeat"},
		{plane(`{"repeat":2,"entries":[{"kind":"transmit","step":0,"joint":"a","start_us":0,"end_us":1}]}`),
			"only entries that are not joint repeat"},
	} {
		p, err := DecodePlan([]byte(c.text))
		if err == nil || p != nil {
			t.Errorf("%.160s: accepted", c.text)
		} else if !errors.Is(err, ErrPlan) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.160s:\n  got  %v\n  want %s", c.text, err, c.want)
		}
	}
	if p, err := DecodePlan([]byte(plane(`{"repeat":3,"to_by":3,"us_by":2,` + hold(`{"shift":3}`) + `}`))); err != nil {
		t.Error(err)
	} else if got := fmt.Sprint(p.Planes[0][2].To, p.Planes[0][2].EndUS); got != "[1 2 3 0] 5" { // 3+3+3 mod 4
		t.Errorf("the third repetition is %s", got)
	}
}

func TestEncodePlanRefuses(t *testing.T) {
	for want, p := range map[string]*Plan{
		"version":           {Version: 2},
		"cct_us":            {Version: 1, CCTUS: math.NaN()},
		"planner":           {Version: 1, Planner: "\xff"},
		"kind":              {Version: 1, Planes: [][]Entry{{{Kind: "wait"}}}},
		"planes[0][0]":      {Version: 1, Planes: [][]Entry{{{Kind: Transmit, StartUS: math.Inf(1)}}}},
		"step":              {Version: 1, Planes: [][]Entry{{{Kind: Transmit, Step: -1}}}},
		"routes":            {Version: 1, Planes: [][]Entry{{{Kind: Transmit, Routes: []Route{{}}}}}},
		"outside -1..4095":  {Version: 1, Planes: [][]Entry{{{Kind: Hold, To: circuit.Permutation{4096}}}}},
		"planes: more than": {Version: 1, Planes: make([][]Entry, 65)},
	} {
		for _, encode := range []func(*Plan) ([]byte, error){EncodePlan, EncodeCompactPlan} {
			if _, err := encode(p); !errors.Is(err, ErrPlan) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", want, err)
			}
		}
	}
}

// TestCompactKeepsMaps: a plan of maps of several lengths, or of many maps, has one meaning in both forms.
func TestCompactKeepsMaps(t *testing.T) {
	mixed := &Plan{Version: 1, Initial: []circuit.Permutation{circuit.Shift(4, 1), circuit.Shift(3, 1), circuit.Xor(5, 1)},
		Planes: [][]Entry{{{Kind: Reconfigure, To: circuit.Xor(4, 2)}, {Kind: Reconfigure, To: circuit.Permutation{}}}}}
	const stride = MaxRanks + 1
	many := &Plan{Version: 1, Planes: make([][]Entry, 2)}
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range 10 * stride {
		to := circuit.Permutation(rng.Perm(16))
		many.Planes[0] = append(many.Planes[0], Entry{Kind: Reconfigure, To: to}, Entry{Kind: Reconfigure, To: to.Clone()})
		if i%stride == 0 {
			at := float64(i)
			many.Planes[1] = append(many.Planes[1], Entry{Kind: Reconfigure, To: to, StartUS: at, EndUS: at})
		}
	}
	many.FindRepeats()
	if many.Repeats[1] == nil || many.Repeats[1][0].ToBy != stride {
		t.Fatalf("%+v", many.Repeats[1])
	}
	for _, plan := range []*Plan{mixed, many} {
		expanded, err := EncodePlan(plan)
		require.NoError(t, err)
		compact, err := EncodeCompactPlan(plan)
		require.NoError(t, err)
		back, err := DecodePlan(compact)
		require.NoError(t, err)
		if again, err := EncodePlan(back); err != nil || !bytes.Equal(again, expanded) {
			t.Errorf("%v, %.500s becomes %.500s", err, expanded, again)
		}
	}
}
