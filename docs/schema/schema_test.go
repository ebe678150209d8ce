package schema

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"lightpath/bench/protocols"
	"lightpath/plans"
	"lightpath/plans/delta"
	"lightpath/plans/delta/dag"
	"lightpath/plans/fabric"
	"lightpath/plans/iteration"
	"lightpath/plans/iteration/trace"
	"lightpath/plans/lumos"
	"lightpath/shim/flight"
)

// format is a file format with its two judges.
type format struct {
	name   string
	decode func([]byte) error
	yaml   bool
}

var formats = map[string]format{
	"problem": {"problem", func(b []byte) error { _, err := plans.DecodeProblem(b); return err }, false},
	"plan":    {"plan", func(b []byte) error { _, err := plans.DecodePlan(b); return err }, false},
	"fabric":  {"fabric", func(b []byte) error { _, err := fabric.Decode(b); return err }, true},
	"ocsd":    {"ocsd", func(b []byte) error { _, err := fabric.DecodeOCSD(b); return err }, true},
	"flight":  {"flight", func(b []byte) error { _, err := flight.Decode(b); return err }, false},

	"job":         {"job", func(b []byte) error { _, err := dag.Decode(b); return err }, false},
	"topology":    {"topology", decodeTopology, false},
	"requirement": {"requirement", func(b []byte) error { _, err := lumos.DecodeRequirement(b); return err }, false},
	"core":        {"core", func(b []byte) error { _, err := lumos.DecodeCore(b); return err }, false},
	"steps":       {"steps", func(b []byte) error { _, _, err := lumos.DecodeSteps(b); return err }, false},

	"simulation": {"simulation", func(b []byte) error { _, err := protocols.Decode(b); return err }, false},
	"trace":      {"trace", func(b []byte) error { _, err := trace.Decode(b); return err }, false},
	"iteration":  {"iteration", func(b []byte) error { _, err := iteration.Decode(b); return err }, false},
}

// tinyJob is the job of the topology files here, from this folder's root.
const tinyJob = "delta/dag/testdata/tiny.json"

func decodeTopology(b []byte) error {
	text, err := os.ReadFile(filepath.Join("..", "..", "plans", filepath.FromSlash(tinyJob)))
	if err != nil {
		return err
	}
	g, err := dag.Decode(text)
	if err != nil {
		return err
	}
	_, err = delta.DecodeCircuits(b, g)
	return err
}

// check returns what the schema and the code say about text.
func (f format) check(t *testing.T, text []byte) (bySchema, byCode error) {
	t.Helper()
	byCode = f.decode(text)
	data, err := Get(f.name)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource(f.name, parsed); err != nil {
		t.Fatal(err)
	}
	compiled, err := c.Compile(f.name)
	if err != nil {
		t.Fatal(err)
	}
	if f.yaml {
		if text, err = yaml.YAMLToJSON(text); err != nil {
			t.Fatal(err)
		}
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return compiled.Validate(value), byCode
}

func TestTestdataIsAccepted(t *testing.T) {
	root := filepath.Join("..", "..", "plans")
	for pattern, name := range map[string]string{
		filepath.Join(root, "testdata", "*.problem.json"): "problem",
		filepath.Join(root, "testdata", "*.plan.json"):    "plan",

		filepath.Join("..", "..", "shim", "flight", "testdata", "*.json"):     "flight",
		filepath.Join("..", "..", "bench", "protocols", "testdata", "*.json"): "simulation",
		filepath.Join(root, "fabric", "testdata", "o*.yaml"):                  "ocsd",
		filepath.Join(root, "fabric", "testdata", "[^o]*.yaml"):               "fabric",

		filepath.Join(root, "iteration", "testdata", "*.trace.json"):     "trace",
		filepath.Join(root, "iteration", "testdata", "*.iteration.json"): "iteration",
		filepath.Join(root, "iteration", "testdata", "fabric.yaml"):      "fabric",

		filepath.Join(root, "delta", "dag", "testdata", "*.json"):      "job",
		filepath.Join(root, "delta", "testdata", "*.topology.json"):    "topology",
		filepath.Join(root, "lumos", "testdata", "*.requirement.json"): "requirement",
		filepath.Join(root, "lumos", "testdata", "*.core.json"):        "core",
		filepath.Join(root, "lumos", "testdata", "*.steps.json"):       "steps",
	} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v %v", pattern, files, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if bySchema, byCode := formats[name].check(t, text); bySchema != nil || byCode != nil {
				t.Errorf("%s:\n  schema: %v\n  code:   %v", file, bySchema, byCode)
			}
		}
	}
}

// TestDocumentedFabric: the two examples of docs/fabric.md are accepted, and belong together.
func TestDocumentedFabric(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "fabric.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(text), "```")
	if len(blocks) != 5 {
		t.Fatalf("%d code blocks, want 2", len(blocks)/2)
	}
	dir := t.TempDir()
	for i, name := range []string{"fabric", "ocsd"} {
		example := []byte(strings.TrimPrefix(blocks[2*i+1], "yaml\n"))
		if bySchema, byCode := formats[name].check(t, example); bySchema != nil || byCode != nil {
			t.Errorf("%s:\n  schema: %v\n  code:   %v", name, bySchema, byCode)
		}
		if err := os.WriteFile(filepath.Join(dir, name+".yaml"), example, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o, f, err := fabric.LoadOCSD(filepath.Join(dir, "ocsd.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if f.Ranks != 8 || len(f.Planes) != 2 || !f.Optical() || len(o.Initial) != 2 {
		t.Errorf("%+v of %+v", o, f)
	}
}

// TestDocumentedTrace: the example of docs/iteration.md is accepted.
func TestDocumentedTrace(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "iteration.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "    {\"version\":1")
	example, _, ended := strings.Cut(rest, "\n\n")
	if !ok || !ended {
		t.Fatal("no example")
	}
	if bySchema, byCode := formats["trace"].check(t, []byte("{\"version\":1"+example)); bySchema != nil || byCode != nil {
		t.Errorf("schema: %v\ncode: %v", bySchema, byCode)
	}
}

// replaced returns a test file with old replaced.
func replaced(t *testing.T, file, old, with string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "plans", filepath.FromSlash(file)))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), old) {
		t.Fatalf("%q is not in %s", old, file)
	}
	return []byte(strings.Replace(string(text), old, with, 1))
}

func TestBadFilesAreRefusedByBoth(t *testing.T) {
	const (
		problem = "testdata/joint.problem.json"
		demand  = "testdata/demand.problem.json"
		plan    = "testdata/joint.plan.json"
		holds   = "testdata/demand.plan.json"
		compact = "testdata/compact.plan.json"
		named   = "testdata/compact.problem.json"
		two     = "fabric/testdata/two-planes.yaml"
		hosts   = "fabric/testdata/hosts.yaml"
		ocsd    = "fabric/testdata/ocsd.yaml"
		service = "fabric/testdata/ocsd-service.yaml"
		control = "fabric/testdata/controlled.yaml"
	)
	const (
		topology = "delta/testdata/tiny.topology.json"
		links    = "lumos/testdata/links.requirement.json"
		dense    = "lumos/testdata/matrix.requirement.json"
		core     = "lumos/testdata/small.core.json"
		steps    = "lumos/testdata/small.steps.json"
	)
	const (
		calls     = "iteration/testdata/small.trace.json"
		iterating = "iteration/testdata/small.iteration.json"
	)
	const run = "../bench/protocols/testdata/one.simulation.json"
	const recorder = "../shim/flight/testdata/circuits.json"
	for _, c := range []struct{ format, file, old, with string }{
		{"flight", recorder, `"version": 1`, `"version": 2`},
		{"flight", recorder, `"ranks": 4`, `"ranks": 0`},
		{"flight", recorder, `"ranks": 4`, `"ranks": "4"`},
		{"flight", recorder, `"rank": 2`, `"rank": -1`},
		{"flight", recorder, `"outcome": "completed"`, `"outcome": "done"`},
		{"flight", recorder, `"plane": 1`, `"plane": 64`},
		{"flight", recorder, `"number": 1,`, `"number": 0,`},
		{"simulation", run, `"version": 1`, `"version": 2`},
		{"simulation", run, `"planes": 2`, `"planes": 0`},
		{"simulation", run, `"planes": 2`, `"plane": 2`},
		{"simulation", run, `"planes": 2`, `"faults": [""]`},
		{"simulation", run, `"operations": 5`, `"operations": 1.5`},
		{"simulation", run, `[0, 3, 1]`, `[0, -3, 1]`},
		{"simulation", run, `"choices"`, `"seed": 1, "choices"`},
		{"simulation", run, `"choices": [0, 3, 1],`, ``},
		{"simulation", run, `"choices": [0, 3, 1]`, `"seed": -1`},
		{"simulation", run, `"one-leader"`, `""`},
		{"trace", calls, `"version":1`, `"version":2`},
		{"trace", calls, `"ranks":4, `, ``},
		{"trace", calls, `"ranks":4`, `"ranks":0`},
		{"trace", calls, `"compute_us":0`, `"compute_us":-1`},
		{"trace", calls, `"compute_us":0`, `"computes_us":0`},
		{"trace", calls, `"groups":[[0,1,2,3]]`, `"groups":[]`},
		{"trace", calls, `"groups":[[0,1,2,3]]`, `"groups":[[]]`},
		{"trace", calls, `[[0,2],[1,3]]`, `[[0,2],[1,-3]]`},
		{"trace", calls, `"flows":[[0,1],[2,3]]`, `"flows":[[0,1],[2,3,1]]`},
		{"trace", calls, `"flows":[[0,1],[2,3]], `, ``},
		{"trace", calls, `"algorithm":"pairwise", `, ``},
		{"trace", calls, `"algorithm":"pairwise"`, `"algorithm":"pairwise", "flows":[]`},
		{"trace", calls, `"bytes":8000000`, `"bytes":-8`},
		{"trace", calls, `"bytes":8000000, `, ``},
		{"trace", calls, `"after":[[0,300]]`, `"after":[[0,300]], "gap_us":1`},
		{"trace", calls, `"after":[[0,300]]`, `"after":[]`},
		{"trace", calls, `"after":[[0,300]]`, `"after":[[0]]`},
		{"trace", calls, `"after":[[0,300]]`, `"after":[[-2,300]]`},
		{"trace", calls, `"after":[[0,300]]`, `"after":[[0,-300]]`},
		{"trace", calls, `"root":3`, `"root":-3`},
		{"trace", calls, `"tail_us":900`, `"tail_us":"900"`},
		{"iteration", iterating, `"version":1, "iteration_us"`, `"version":2, "iteration_us"`},
		{"iteration", iterating, `"iteration_us":`, `"time_us":`},
		{"iteration", iterating, `"digest":"`, `"digest":1, "x":"`},
		{"iteration", iterating, `"trace":`, `"traces":`},
		{"iteration", iterating, `"call":0, `, ``},
		{"iteration", iterating, `"call":0, `, `"call":-1, `},
		{"iteration", iterating, `"plan":0, `, `"plan":"0", `},
		{"iteration", iterating, `"plane":0, `, `"plane":64, `},
		{"iteration", iterating, `"plane":0, `, ``},
		{"problem", problem, `"version":1`, `"version":2`},
		{"problem", problem, `"version":1, `, ``},
		{"problem", problem, `"ranks":4`, `"ranks":0`},
		{"problem", problem, `"ranks":4`, `"ranks":5000`},
		{"problem", problem, `"ranks":4`, `"ranks":4.5`},
		{"problem", problem, `"planes":2`, `"planes":65`},
		{"problem", problem, `"bandwidth_gbps":400`, `"bandwidth_gbps":0`},
		{"problem", problem, `"alpha_us":5`, `"alpha_us":-5`},
		{"problem", problem, `"alpha_us":5`, `"alpha_us":"5"`},
		{"problem", problem, `"alpha_us":5`, `"alpha":5`},
		{"problem", problem, `"forwarding":true`, `"forwarding":1`},
		{"problem", problem, `"forwarding":true`, `"circuits":"triplex"`},
		{"problem", problem, `"planes":2, `, `"planes":3, "circuits":"interleaved", `},
		{"problem", problem, `"final":"initial"`, `"final":"first"`},
		{"problem", problem, `"steps"`, `"demand":[[1]], "steps"`},
		{"problem", problem, `"bytes":1e6, `, ``},
		{"problem", problem, `"to":[2,3,0,1]`, `"to":[2,3,0,1], "flows":[]`},
		{"problem", problem, `, "to":[2,3,0,1]`, ``},
		{"problem", problem, `"to":[2,3,0,1]`, `"to":[2,3,0,-2]`},
		{"problem", problem, `[[0,1],[0,3]]`, `[[0,1],[0,1]]`},
		{"problem", problem, `[[0,1],[0,3]]`, `[[0,1],[0,0]]`},
		{"problem", problem, `[[0,1],[0,3]]`, `[[0,1,2]]`},
		{"problem", demand, `3e6`, `-3e6`},
		{"problem", named, `{"shift":1}`, `{"shift":-1}`},
		{"problem", named, `{"shift":1}`, `{"shift":1, "xor":1}`},
		{"problem", named, `{"shift":1}`, `{}`},
		{"plan", compact, `{"shift":1}`, `{"turn":1}`},
		{"plan", compact, `"ranks":64`, `"ranks":0`},
		{"plan", compact, `"repeat":`, `"kind":"hold", "repeat":`},
		{"plan", compact, `"repeat":`, `"repeat":0, "x":`},
		{"plan", compact, `"repeat":`, `"repeated":`},
		{"plan", compact, `"us_by":`, `"us_by":"1", "x":`},
		{"plan", compact, `{"kind":"transmit"`, `{"repeat":2, "kind":"transmit"`},
		{"problem", demand, `"demand":[[`, `"color":[[`},
		{"plan", plan, `"version":1, `, ``},
		{"plan", plan, `"cct_us":113`, `"cct_us":"113"`},
		{"plan", plan, `"planes":`, `"plains":`},
		{"plan", plan, `"kind":"transmit"`, `"kind":"send"`},
		{"plan", plan, `"kind":"transmit",`, ``},
		{"plan", plan, `"step":0,`, ``},
		{"plan", plan, `"step":0`, `"step":-1`},
		{"plan", plan, `"start_us":0,`, ``},
		{"plan", plan, `"joint":"a"`, `"joint":""`},
		{"plan", plan, `"joint":"a"`, `"joint":"a","bytes":1`},
		{"plan", plan, `"joint":"a",`, `"bytes":1,`},
		{"plan", plan, `"path":[[0,1],[0,2]]`, `"path":[[0,1,2]]`},
		{"plan", plan, `"flow":[0,2],`, ``},
		{"plan", plan, `"flows":[0]`, `"flows":[-1]`},
		{"plan", holds, `"to":[1,2,0],`, ``},
		{"plan", holds, `"to":[1,2,0]`, `"to":[1,2,-2]`},
		{"plan", holds, `"to":[1,2,0]`, `"to":[1,2,0],"step":1`},
		{"fabric", two, "version: 1", "version: 2"},
		{"fabric", two, "forwarding: true", "forwarding: 1"},
		{"fabric", two, "forwarding: true", "forwards: true"},
		{"fabric", two, "bandwidth: 2Gbps", "bandwidth: 2"},
		{"fabric", two, "bandwidth: 2Gbps", "bandwidth: 2GB"},
		{"fabric", two, "bandwidth: 2Gbps, ", ""},
		{"fabric", two, "interface: eth2", "interface: eth2, hca: m"},
		{"fabric", two, "ocs: ocs0, ", ""},
		{"fabric", two, `0: "1"`, `zero: "1"`},
		{"fabric", two, "200us", "200"},
		{"fabric", two, "200us", "fast"},
		{"fabric", two, "driver: emulator", "driver: magic"},
		{"fabric", two, "unix:/run", "http:/run"},
		{"fabric", two, "circuits: duplex", "circuits: triplex"},
		{"fabric", two, "alpha:", "beta:"},
		{"fabric", two, "ranks: 4 ", "ranks: 0 "},
		{"fabric", two, "[[0,1],[2,3]]", "[[0,1],[2,-3]]"},
		{"fabric", hosts, "ranks: 1,", "ranks: 0,"},
		{"fabric", hosts, `endpoint: "10.0.0.9:5025", `, ""},
		{"fabric", hosts, "{name: a, ", "{"},
		{"ocsd", ocsd, "version: 1\n", ""},
		{"ocsd", ocsd, "fabric: two-planes.yaml\n", ""},
		{"ocsd", ocsd, "mtu: 8256", "mtu: 1"},
		{"ocsd", ocsd, "slots: 64", "slots: many"},
		{"ocsd", ocsd, "slots:", "slot:"},
		{"ocsd", ocsd, "[-1, -1, -1, -1]", "[-2, -1, -1, -1]"},
		{"ocsd", ocsd, "[-1, -1, -1, -1]", "-1"},
		{"ocsd", service, "listen: 10.0.0.1:7443", "listen: 10.0.0.1"},
		{"ocsd", service, "tls: {ca:", "tls: {cca:"},
		{"ocsd", service, "kind: etcd", "kind: paper"},
		{"ocsd", service, "lease: 5s", "lease: 5"},
		{"ocsd", service, "verify: status", "verify: hope"},
		{"ocsd", service, "insecure_scpi: true", "insecure_scpi: 1"},
		{"fabric", control, "endpoints:", "endpoint:"},
		{"fabric", control, "10.0.0.1:7443", "10.0.0.1"},
		{"fabric", control, "ca: ca.pem", "password: ca.pem"},
		{"job", tinyJob, `"version": 1`, `"version": 2`},
		{"job", tinyJob, `"bandwidth_gbps": 400,`, ``},
		{"job", tinyJob, `"bandwidth_gbps": 400`, `"bandwidth_gbps": 0`},
		{"job", tinyJob, `"bandwidth_gbps": 400`, `"gbps": 400`},
		{"job", tinyJob, `"ports": 8}`, `"ports": 7}`},
		{"job", tinyJob, `, "ports": 8}`, `}`},
		{"job", tinyJob, `"image": true`, `"image": true, "ports": 2`},
		{"job", tinyJob, `"image": true`, `"image": 1`},
		{"job", tinyJob, `"pods": [0, 1]`, `"pods": [0]`},
		{"job", tinyJob, `"pods": [0, 1]`, `"pods": [0, 1, 2]`},
		{"job", tinyJob, `"ports": [2, 0]`, `"ports": [3, 0]`},
		{"job", tinyJob, `[["b", "c"]]`, `[["b"]]`},
		{"job", tinyJob, `"pod": 0, "duration_us": 500`, `"pod": 0`},
		{"job", tinyJob, `"duration_us": 500`, `"duration_us": -1`},
		{"job", tinyJob, `"duration_us": 500`, `"duration_us": 500, "bytes": 1`},
		{"job", tinyJob, `"flows": 2`, `"flows": 0`},
		{"job", tinyJob, `"flows": 4, "bytes": 1e6`, `"bytes": 1e6`},
		{"job", tinyJob, `"src": [0, 1]`, `"src": [0, -1]`},
		{"job", tinyJob, `"src": [0, 1]`, `"pod": 0, "src": [0, 1]`},
		{"job", tinyJob, `[0, 1], [1, 2, 12.5]`, `[0]`},
		{"job", tinyJob, `[1, 2, 12.5]`, `[1, 2, 12.5, 0]`},
		{"job", tinyJob, `[1, 2, 12.5]`, `[1, 2, -1]`},
		{"topology", topology, `"version": 1`, `"version": 2`},
		{"topology", topology, `"version": 1,`, ``},
		{"topology", topology, `"job": "tiny"`, `"job": 1`},
		{"topology", topology, `"circuits": [`, `"circles": [`},
		{"topology", topology, "2,\n    3\n", "2,\n    -3\n"},
		{"topology", topology, "2,\n    3\n", "2,\n    3.5\n"},
		{"requirement", links, `"version": 1`, `"version": 2`},
		{"requirement", links, `"k_leaf": 4`, `"k_leaf": 3`},
		{"requirement", links, `"k_leaf": 4`, `"k_leaf": 0`},
		{"requirement", links, `"tau": 2`, `"tau": 3`},
		{"requirement", links, `"pods": 3`, `"pods": 0`},
		{"requirement", links, `"pods": 3, `, ``},
		{"requirement", links, `"pods": 3`, `"pots": 3`},
		{"requirement", links, `[0, 2, 2]`, `[0, 2]`},
		{"requirement", links, `[0, 2, 2]`, `[0, 2, 2, 1]`},
		{"requirement", links, `[0, 2, 2]`, `[0, 2, -2]`},
		{"requirement", links, `"links"`, `"matrix": [[0]], "links"`},
		{"requirement", dense, `[0, 0, 1, 0]`, `[0, 0, -1, 0]`},
		{"requirement", dense, `[0, 0, 1, 0]`, `"0010"`},
		{"core", core, `"version":1`, `"version":0`},
		{"core", core, `"fabric":`, `"cluster":`},
		{"core", core, `"maps":`, `"cards":`},
		{"core", core, `[0,2,0]`, `[0,2]`},
		{"core", core, `[0,2,0]`, `[0,2,0,1]`},
		{"core", core, `[0,2,0]`, `[0,2,-1]`},
		{"core", core, `[2,-1,-1]`, `[2,-2,-1]`},
		{"core", core, `[2,-1,-1]`, `2`},
		{"steps", steps, `"version":1`, `"version":2`},
		{"steps", steps, `"group":0`, `"group":-1`},
		{"steps", steps, `"pair":0`, `"pair":"0"`},
		{"steps", steps, `"moves":`, `"moves_":`},
		{"steps", steps, `"even":[`, `"even":[-2,`},
	} {
		bySchema, byCode := formats[c.format].check(t, replaced(t, c.file, c.old, c.with))
		if bySchema == nil || byCode == nil {
			t.Errorf("%s, %q -> %q:\n  schema: %v\n  code:   %v", c.file, c.old, c.with, bySchema, byCode)
		}
	}
}

// TestWrittenFilesAreAccepted: files that the code writes are valid by the schema.
func TestWrittenFilesAreAccepted(t *testing.T) {
	for _, name := range []string{"swot-fig5", "demand", "joint", "compact"} {
		problem, err := plans.DecodeProblem(replaced(t, "testdata/"+name+".problem.json", "{", "{"))
		if err != nil {
			t.Fatal(err)
		}
		plan, err := plans.DecodePlan(replaced(t, "testdata/"+name+".plan.json", "{", "{"))
		if err != nil {
			t.Fatal(err)
		}
		if err := plans.Seal(problem, plan); err != nil {
			t.Fatal(err)
		}
		problemText, err := plans.EncodeProblem(problem)
		if err != nil {
			t.Fatal(err)
		}
		planText, err := plans.EncodePlan(plan)
		if err != nil {
			t.Fatal(err)
		}
		compactProblem, err := plans.EncodeCompactProblem(problem)
		if err != nil {
			t.Fatal(err)
		}
		compactPlan, err := plans.EncodeCompactPlan(plan)
		if err != nil {
			t.Fatal(err)
		}
		for format, texts := range map[string][][]byte{"problem": {problemText, compactProblem},
			"plan": {planText, compactPlan}} {
			for _, text := range texts {
				if bySchema, byCode := formats[format].check(t, text); bySchema != nil || byCode != nil {
					t.Errorf("%s %s: %v, %v", name, format, bySchema, byCode)
				}
			}
		}
	}
	for _, name := range []string{"two-planes", "hosts", "packet"} {
		f, err := fabric.Decode(replaced(t, "fabric/testdata/"+name+".yaml", "version", "version"))
		if err != nil {
			t.Fatal(err)
		}
		if bySchema, _ := formats["fabric"].check(t, f.Encode()); bySchema != nil {
			t.Errorf("%s: %v", name, bySchema)
		}
	}
}

// TestWrittenJobFilesAreAccepted is the same for the files about jobs and cores.
func TestWrittenJobFilesAreAccepted(t *testing.T) {
	g, err := dag.Decode(replaced(t, tinyJob, "{", "{"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := lumos.DecodeRequirement(replaced(t, "lumos/testdata/matrix.requirement.json", "{", "{"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := lumos.DecodeCore(replaced(t, "lumos/testdata/small.core.json", "{", "{"))
	if err != nil {
		t.Fatal(err)
	}
	f, steps, err := lumos.DecodeSteps(replaced(t, "lumos/testdata/small.steps.json", "{", "{"))
	if err != nil {
		t.Fatal(err)
	}
	for format, text := range map[string][]byte{
		"job": g.Encode(), "requirement": r.Encode(), "core": c.Encode(), "steps": lumos.EncodeSteps(f, steps),
	} {
		if bySchema, byCode := formats[format].check(t, text); bySchema != nil || byCode != nil {
			t.Errorf("%s:\n  schema: %v\n  code:   %v\n%s", format, bySchema, byCode, text)
		}
	}
}

func TestGet(t *testing.T) {
	for _, name := range Names() {
		if text, err := Get(name); err != nil || len(text) == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Get("plans"); err == nil || !strings.Contains(err.Error(), "problem, plan, fabric, ocsd") {
		t.Errorf("unknown name: %v", err)
	}
}
