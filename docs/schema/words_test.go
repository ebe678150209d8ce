package schema

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/goccy/go-yaml"

	"lightpath/ocsctl/device"
	"lightpath/plans/delta/chakra"
)

// goWords are the words of Go's decoders for a value that they cannot store.
var goWords = regexp.MustCompile(`json:|unmarshal|Go (value|struct)|strconv|interface \{|\[\]\w|map\[` +
	`|\b(u?int(8|16|32|64)?|float64|lightpath)\b`)

// mutants calls try with versions of the document in which one value has another type. Of a list
// it takes the first value only. set puts a value in the place of v.
func mutants(v any, set func(any), try func()) {
	for _, other := range []any{nil, true, 1.5, -1e300, "text", []any{}, map[string]any{}, map[string]any{"a": []any{1}}} {
		set(other)
		try()
	}
	set(v)
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			mutants(value, func(other any) { v[key] = other }, try)
		}
	case []any:
		if len(v) > 0 {
			mutants(v[0], func(other any) { v[0] = other }, try)
		}
	}
}

// inWords decodes mutants of a document: the errors name no type of Go.
func inWords(t *testing.T, text []byte, decode func([]byte) error) {
	t.Helper()
	var document any
	if err := errors.Join(decode(text), json.Unmarshal(text, &document)); err != nil {
		t.Fatal(err)
	}
	refused := 0
	try := func(text []byte) {
		t.Helper()
		if err := decode(text); err != nil {
			if refused++; goWords.MatchString(err.Error()) {
				t.Errorf("%v", err)
			}
		}
	}
	mutants(document, func(other any) { document = other }, func() {
		t.Helper()
		text, err := json.Marshal(document)
		if err != nil {
			t.Fatal(err)
		}
		try(text)
	})
	for _, cut := range [][]byte{nil, text[:len(text)/2], append(text[:len(text):len(text)], '}')} {
		try(cut)
	}
	if refused == 0 {
		t.Error("no mutant was refused")
	}
}

// TestErrorsInWordsOfTheFile gives each value of each test file other types.
func TestErrorsInWordsOfTheFile(t *testing.T) {
	for name, file := range map[string]string{
		"problem": "plans/testdata/joint.problem.json", "plan": "plans/testdata/joint.plan.json",
		"flight": "shim/flight/testdata/circuits.json", "job": "plans/" + tinyJob,
		"fabric": "plans/fabric/testdata/two-planes.yaml", "ocsd": "plans/fabric/testdata/ocsd.yaml",
		"topology": "plans/delta/testdata/tiny.topology.json", "requirement": "plans/lumos/testdata/links.requirement.json",
		"core": "plans/lumos/testdata/small.core.json", "steps": "plans/lumos/testdata/small.steps.json",
		"simulation": "bench/protocols/testdata/one.simulation.json", "trace": "plans/iteration/testdata/small.trace.json",
		"iteration": "plans/iteration/testdata/small.iteration.json",
	} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(file)))
			if err == nil && formats[name].yaml {
				text, err = yaml.YAMLToJSON(text)
			}
			if err != nil {
				t.Fatal(err)
			}
			inWords(t, text, formats[name].decode)
		})
	}
	// Formats without a schema.
	t.Run("fault script", func(t *testing.T) {
		const script = `[{"after_ms": 5, "fault": "ghost", "in": 0, "out": 3, "count": 2, "silent": true, "delay_ms": 1}]`
		inWords(t, []byte(script), func(b []byte) error { _, err := device.ParseScript(b); return err })
	})
	decodeTrace := func(b []byte) error { _, err := chakra.DecodeJSON(b); return err }
	t.Run("trace of nodes", func(t *testing.T) {
		const trace = `{"workload_graph": [
			{"Id": 1, "Name": "a", "NodeType": 4, "runtime": 2.5, "data_deps": [], "comm_size": 8}]}`
		inWords(t, []byte(trace), decodeTrace)
	})
	t.Run("trace of messages", func(t *testing.T) {
		const node = `{"id": "1", "name": "a", "type": "COMP_NODE", "dataDeps": [],
			"attr": [{"name": "num_ops", "int64Val": "5"}]}`
		const head = `{"version": "1"}`
		inWords(t, []byte(node), func(b []byte) error { return decodeTrace(append([]byte(head), b...)) })
	})
}
