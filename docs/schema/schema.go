// Package schema embeds the JSON Schemas (2020-12) of Lightpath's file formats, so that
// the program prints what the repository documents.
//
// Layer: a leaf without imports of the project. A schema says what a reader of a file can rely on; the decoders in
// plans, plans/fabric, plans/delta, plans/lumos, shim/flight and bench/protocols decide, and tests here compare the
// two.
package schema

import (
	"embed"
	"fmt"
	"slices"
	"strings"
)

//go:embed *.schema.json
var files embed.FS

// names in the order in which they are listed.
var names = []string{"problem", "plan", "fabric", "ocsd", "flight", "job", "topology", "requirement", "core", "steps",
	"simulation", "trace", "iteration"}

// Names lists the schemas.
func Names() []string { return append([]string(nil), names...) }

// Get returns the schema called name, or an error that lists the names there are.
func Get(name string) ([]byte, error) {
	if slices.Contains(names, name) {
		return files.ReadFile(name + ".schema.json")
	}
	return nil, fmt.Errorf("schema: no schema %q: want one of %s", name, strings.Join(names, ", "))
}
