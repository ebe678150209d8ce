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

// accepts reports text that the schema or the code refuses.
func (f format) accepts(t *testing.T, what string, text []byte) {
	t.Helper()
	if bySchema, byCode := f.check(t, text); bySchema != nil || byCode != nil {
		t.Errorf("%s:\n  schema: %v\n  code:   %v\n%s", what, bySchema, byCode, text)
	}
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
			formats[name].accepts(t, file, text)
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
		formats[name].accepts(t, name, example)
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
	formats["trace"].accepts(t, "example", []byte("{\"version\":1"+example))
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
				formats[format].accepts(t, name+" "+format, text)
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
		formats[format].accepts(t, format, text)
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
