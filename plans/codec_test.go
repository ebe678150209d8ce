package plans

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"lightpath/internal/encode"
	"lightpath/internal/require"
)

func readTestdata(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	return data
}

const goodSteps = `"steps":[{"bytes":1,"to":[1,0]}]`

// problemText is a problem of 2 ranks and 2 planes with fields added or replaced.
func problemText(fields string) string {
	return `{"version":1,"ranks":2,"planes":2,"bandwidth_gbps":400,"reconfig_us":200,` + fields + `}`
}

func TestDecodeProblemDefaults(t *testing.T) {
	p, err := DecodeProblem([]byte(problemText(goodSteps)))
	require.NoError(t, err)
	want := &Problem{Version: 1, Ranks: 2, Planes: 2, BandwidthGbps: 400, ReconfigUS: 200, Circuits: Simplex,
		Steps: []Step{{Bytes: 1, To: []int{1, 0}}}}
	if !reflect.DeepEqual(p, want) {
		t.Fatalf("got %+v", p)
	}
}

func TestDecodeProblemRefuses(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{``, "want an object"},
		{`[]`, "want an object"},
		{problemText(goodSteps) + `x`, "unexpected text after"},
		{problemText(goodSteps) + `{}`, "unexpected text after"},
		{problemText(goodSteps)[:40], "line 1 column"},
		{problemText(goodSteps + `,"color":1`), "color: unknown field"},
		{problemText(goodSteps + `,"ranks":2`), `field "ranks" appears twice`},
		{problemText(`"steps":[{"bytes":1,"bytes":2,"to":[1,0]}]`), `steps[0]: field "bytes" appears twice`},
		{problemText(goodSteps + `,"\u0072anks":2`), `field "ranks" appears twice`},
		{problemText(goodSteps + `,"alpha_us":-1`), "alpha_us: -1 is negative"},
		{problemText(goodSteps + `,"alpha_us":1e999`), "alpha_us: number 1e999 is not finite"},
		{problemText(goodSteps + `,"alpha_us":NaN`), "alpha_us: line 1 column"},
		{problemText(goodSteps + `,"alpha_us":"1"`), "alpha_us: want a number"},
		{problemText(goodSteps + `,"alpha_us":01`), "line 1 column"},
		{problemText(goodSteps + `,"forwarding":1`), "forwarding: want true or false"},
		{problemText(goodSteps + `,"circuits":"triplex"`), "circuits: "},
		{problemText(goodSteps + `,"initial":[[1,0]]`), "initial: has 1 maps"},
		{problemText(goodSteps + `,"initial":[[1,0],[1,1]]`), "initial[1][1]: port 1 already receives from port 0"},
		{problemText(goodSteps + `,"initial":[[1,0],[1]]`), "initial[1]: has 1 entries, want 2"},
		{problemText(goodSteps + `,"initial":[[1,-1],[-1,-1]],"circuits":"duplex"`),
			"initial[0]: circuit 0 -> 1 has no 1 -> 0"},
		{problemText(goodSteps + `,"initial":[[1,0],[0,1]],"circuits":"interleaved"`),
			"initial[0]: circuit 0 -> 1 has no 1 -> 0 on interleaved plane 1"},
		{problemText(goodSteps + `,"final":"first"`), "final: "},
		{problemText(goodSteps + `,"final":[[1,0],[2,0]]`), "final[1][0]: port 2 is outside 0..1"},
		{problemText(`"steps":[{"bytes":1,"to":[1,0]},{"bytes":1,"to":[1,1]}]`), "steps[1].to[1]: port 1 already receives"},
		{problemText(`"steps":[{"bytes":1,"to":[1]}]`), "steps[0].to: has 1 entries, want 2"},
		{problemText(`"steps":[{"bytes":1,"to":[1,0.5]}]`), "steps[0].to[1]: 0.5 is not an integer"},
		{problemText(`"steps":[{"bytes":1,"to":[1,-2]}]`), "steps[0].to[1]: -2 is outside"},
		{problemText(`"steps":[{"to":[1,0]}]`), "steps[0]: bytes: missing"},
		{problemText(`"steps":[{"bytes":1}]`), "steps[0]: to: missing"},
		{problemText(`"steps":[{"bytes":1,"to":[1,0],"flows":[]}]`), "steps[0]: flows: a step has"},
		{problemText(`"steps":[{"bytes":1,"flows":[[0,1],[0,0]]}]`), "steps[0].flows[1]: flow 0 -> 0 is no transfer"},
		{problemText(`"steps":[{"bytes":1,"flows":[[0,1],[0,1]]}]`), "steps[0].flows[1]: flow 0 -> 1 is listed twice"},
		{problemText(`"steps":[{"bytes":1,"flows":[[0,2]]}]`), "steps[0].flows[0]: flow 0 -> 2 leaves ranks"},
		{problemText(`"steps":[{"bytes":1,"flows":[[0]]}]`), "steps[0].flows[0]: has 1 elements, want 2"},
		{problemText(`"steps":[{"bytes":1,"flows":[[0,1,1]]}]`), "steps[0].flows[0]: more than 2"},
		{problemText(`"steps":[{"bytes":-1,"to":[1,0]}]`), "steps[0].bytes: -1 is negative"},
		{problemText(`"steps":null`), "steps: want a list"},
		{problemText(`"final":null`), "steps: missing"},
		{problemText(goodSteps + `,"demand":[[0,1],[1,0]]`), "demand: a problem has steps or a demand"},
		{problemText(`"demand":[[0,1]]`), "demand: has 1 rows"},
		{problemText(`"demand":[[0,1],[1]]`), "demand[1]: has 1 entries"},
		{problemText(`"demand":[[0,1],[1,-2]]`), "demand[1][1]: -2 is negative"},
		{`{"version":2}`, "version: 2 is outside 1..1"},
		{`{"version":1,"ranks":0}`, "ranks: 0 is outside 1..4096"},
		{`{"version":1,"ranks":4097}`, "ranks: 4097 is outside"},
		{`{"version":1,"ranks":2,"planes":65}`, "planes: 65 is outside"},
		{`{"version":1,"ranks":2,"planes":1,"reconfig_us":1,"steps":[]}`, "bandwidth_gbps: missing"},
		{`{"version":1,"ranks":2,"planes":1,"bandwidth_gbps":1,"steps":[]}`, "reconfig_us: missing"},
		{`{"version":1,"ranks":2,"planes":1,"bandwidth_gbps":0,"reconfig_us":1,"steps":[]}`,
			"bandwidth_gbps: must be above 0"},
		{`{"version":1,"ranks":2,"planes":1,"circuits":"interleaved","bandwidth_gbps":1,"reconfig_us":1,"steps":[]}`,
			"planes: 1 is odd"},
		{problemText(`"steps":[],`), "line 1 column"},
		{problemText(`"steps":[{"bytes":1,"to":[1,0],}]`), "steps[0]: line 1 column"},
		{problemText(`"x":` + strings.Repeat("[", 1<<20)), "x: unknown field"},
	} {
		p, err := DecodeProblem([]byte(c.text))
		if err == nil || p != nil {
			t.Errorf("%.120s: accepted", c.text)
			continue
		}
		if !errors.Is(err, ErrProblem) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.120s:\n  got  %v\n  want %s", c.text, err, c.want)
		}
	}
}

func TestProblemRoundTrip(t *testing.T) {
	for _, name := range []string{"swot-fig5", "demand", "joint"} {
		p, err := DecodeProblem(readTestdata(t, name+".problem.json"))
		require.NoError(t, err)
		roundTripProblem(t, p)
	}
}

func roundTripProblem(t *testing.T, p *Problem) {
	t.Helper()
	text, err := EncodeProblem(p)
	require.NoError(t, err)
	back, err := DecodeProblem(text)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if !reflect.DeepEqual(p, back) {
		t.Fatalf("got %+v want %+v", back, p)
	}
}

func TestNumbersKeepTheirBits(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, v := range []float64{0, 1, 5e6, 0.1, 1.0 / 3, 1e21, 1e-7, 5e-324, math.MaxFloat64} {
		checkNumber(t, v)
	}
	for range 2000 {
		if v := math.Float64frombits(rng.Uint64() &^ (1 << 63)); !math.IsNaN(v) && !math.IsInf(v, 0) {
			checkNumber(t, v)
		}
	}
	if got := string(encode.Number(nil, math.Copysign(0, -1))); got != "0" {
		t.Errorf("-0 is written %s", got)
	}
}

func checkNumber(t *testing.T, v float64) {
	t.Helper()
	p, err := DecodeProblem([]byte(problemText(`"steps":[],"alpha_us":` + string(encode.Number(nil, v)))))
	if err != nil || math.Float64bits(p.AlphaUS) != math.Float64bits(v) {
		t.Fatalf("%v: got %v, %v", v, p, err)
	}
}

func TestEncodeProblemRefusesInvalid(t *testing.T) {
	p, err := DecodeProblem([]byte(problemText(goodSteps)))
	require.NoError(t, err)
	p.AlphaUS = math.NaN()
	if _, err := EncodeProblem(p); !errors.Is(err, ErrProblem) {
		t.Fatalf("NaN: %v", err)
	}
}

func TestPlanRoundTrip(t *testing.T) {
	for _, name := range []string{"swot-fig5", "demand", "joint"} {
		p, err := DecodePlan(readTestdata(t, name+".plan.json"))
		require.NoError(t, err)
		p.BoundProof, p.Digest = "busiest port", "abc"
		text, err := EncodePlan(p)
		require.NoError(t, err)
		back, err := DecodePlan(text)
		if err != nil || !reflect.DeepEqual(p, back) {
			t.Fatalf("%v\n%s", err, text)
		}
	}
}

func TestDecodePlanToleratesNewFields(t *testing.T) {
	text := `{"version":1,"cct_us":1,"more":{"deep":[1,{"x":null}],"y":"\u00e9"},` +
		`"planes":[[{"kind":"transmit","step":0,"bytes":1,"start_us":0,"end_us":1,"note":true}]]}`
	p, err := DecodePlan([]byte(text))
	if err != nil || len(p.Planes[0]) != 1 {
		t.Fatalf("%+v %v", p, err)
	}
}

func TestDecodePlanRefuses(t *testing.T) {
	entry := func(e string) string { return `{"version":1,"cct_us":1,"planes":[[` + e + `]]}` }
	for _, c := range []struct{ text, want string }{
		{`{"version":1,"planes":[]}`, "cct_us: missing"},
		{`{"version":1,"cct_us":1}`, "planes: missing"},
		{`{"cct_us":1,"planes":[]}`, "version: missing"},
		{`{"version":3}`, "version: 3 is outside"},
		{`{"version":1,"cct_us":"1"}`, "cct_us: want a number"},
		{`{"version":1,"x":1,"x":2}`, `field "x" appears twice`},
		{`{"version":1,"x":{"a":1,"a":2}}`, `x: field "a" appears twice`},
		{`{"version":1,"x":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`, "nested deeper"},
		{`{"version":1,"x":` + strings.Repeat(`{"a":`, 1<<20), "nested deeper"},
		{entry(`{"kind":"wait","start_us":0,"end_us":1}`), "planes[0][0]: kind: "},
		{entry(`{"start_us":0,"end_us":1}`), "planes[0][0]: kind: missing"},
		{entry(`{"kind":"transmit","bytes":1,"start_us":0,"end_us":1}`), "step: missing"},
		{entry(`{"kind":"transmit","step":0,"start_us":0,"end_us":1}`), "bytes: missing"},
		{entry(`{"kind":"transmit","step":-1,"bytes":1,"start_us":0,"end_us":1}`), "step: -1 is outside"},
		{entry(`{"kind":"transmit","step":0,"bytes":1,"end_us":1}`), "start_us: missing"},
		{entry(`{"kind":"transmit","step":0,"joint":"a","bytes":1,"start_us":0,"end_us":1}`),
			"bytes: not on a joint transmit"},
		{entry(`{"kind":"transmit","step":0,"joint":"","start_us":0,"end_us":1}`), "joint: is empty"},
		{entry(`{"kind":"hold","start_us":0,"end_us":1}`), "to: missing"},
		{entry(`{"kind":"hold","to":[0],"step":1,"start_us":0,"end_us":1}`), "step: not on a hold"},
		{entry(`{"kind":"transmit","step":0,"joint":"a","routes":[{"flow":[0,1],"bytes":1}],"start_us":0,"end_us":1}`),
			"routes[0]: path: missing"},
		{entry("{\"kind\":\"hold\",\"to\":[0],\"a\xff\":0,\"start_us\":0,\"end_us\":1}"), "invalid UTF-8"},
	} {
		p, err := DecodePlan([]byte(c.text))
		if err == nil || p != nil {
			t.Errorf("%.120s: accepted", c.text)
			continue
		}
		if !errors.Is(err, ErrPlan) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.120s:\n  got  %v\n  want %s", c.text, err, c.want)
		}
	}
}

func TestManyKeys(t *testing.T) {
	var text strings.Builder
	for i := range 100 {
		fmt.Fprintf(&text, `"f%d":1,`, i)
	}
	if _, err := DecodePlan([]byte(`{` + text.String() + `"version":1,"cct_us":0,"planes":[]}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := DecodePlan([]byte(`{` + text.String() + `"f77":1}`)); err == nil ||
		!strings.Contains(err.Error(), `"f77" appears twice`) {
		t.Fatal(err)
	}
}

func TestDigest(t *testing.T) {
	problem, err := DecodeProblem(readTestdata(t, "swot-fig5.problem.json"))
	require.NoError(t, err)
	plan, err := DecodePlan(readTestdata(t, "swot-fig5.plan.json"))
	require.NoError(t, err)
	if err := VerifyDigest(problem, plan); !errors.Is(err, ErrDigest) {
		t.Fatalf("missing digest: %v", err)
	}
	require.NoError(t, Seal(problem, plan))
	// Computed by another implementation of the documented layout, in Python.
	if want := "0e08f8a7f11a3e541b9b6ebbc2305dbf7daa3f1cc73f395f1c9e896379e21ccb"; plan.Digest != want {
		t.Fatalf("digest %s, want %s", plan.Digest, want)
	}
	require.NoError(t, VerifyDigest(problem, plan))
	plan.Planes[0][0].Bytes++
	if err := VerifyDigest(problem, plan); !errors.Is(err, ErrDigest) {
		t.Fatalf("changed plan: %v", err)
	}
	plan.Planes[0][0].Bytes--
	problem.ReconfigUS++
	if err := VerifyDigest(problem, plan); !errors.Is(err, ErrDigest) {
		t.Fatalf("changed problem: %v", err)
	}
}

func FuzzDecodeProblem(f *testing.F) {
	for _, name := range []string{"swot-fig5", "demand", "joint"} {
		f.Add(readTestdata(f, name+".problem.json"))
	}
	f.Add([]byte(problemText(`"steps":[{"bytes":1e-7,"flows":[[0,1]]}],"final":"initial"`)))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := DecodeProblem(data)
		if (p == nil) == (err == nil) {
			t.Fatal("neither or both of problem and error")
		}
		if err == nil {
			text, err := EncodeProblem(p)
			require.NoError(t, err)
			again, err := DecodeProblem(text)
			require.NoError(t, err)
			if twice, _ := EncodeProblem(again); !bytes.Equal(text, twice) {
				t.Fatalf("%s\n%s", text, twice)
			}
		}
	})
}

func FuzzDecodePlan(f *testing.F) {
	for _, name := range []string{"swot-fig5", "demand", "joint"} {
		f.Add(readTestdata(f, name+".plan.json"))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := DecodePlan(data)
		if (p == nil) == (err == nil) {
			t.Fatal("neither or both of plan and error")
		}
		if err == nil {
			text, err := EncodePlan(p)
			require.NoError(t, err)
			again, err := DecodePlan(text)
			require.NoError(t, err)
			if twice, _ := EncodePlan(again); !bytes.Equal(text, twice) {
				t.Fatalf("%s\n%s", text, twice)
			}
		}
	})
}
