// Command road measures how many files and functions of shim run from shim.Run to the first byte of a warm AllReduce.
// Build it with coverage counters: make road.
//
// Layer: tests only, above shim.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/coverage"
	"slices"
	"strings"
	"testing"

	"lightpath/internal/assert"
	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/session"
	"lightpath/shim/shimtest"
)

// root returns the top of the source tree.
func root(t *testing.T) string {
	t.Helper()
	text, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(text))
}

// roadRow matches a row of the table in ARCHITECTURE.md: the place of a function, and which roads pass it.
var roadRow = regexp.MustCompile("(?m)^\\| `([a-z0-9/]+\\.go):([A-Za-z.]+)` \\| ([SPC ]+) \\|")

type roadStep struct{ file, function string }

// readRoad returns the steps of a road: S shared memory, P packet planes, C circuits.
func readRoad(t *testing.T, road string) (steps []roadStep) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), "ARCHITECTURE.md"))
	require.NoError(t, err)
	for _, m := range roadRow.FindAllStringSubmatch(string(text), -1) {
		if strings.Contains(m[3], road) {
			steps = append(steps, roadStep{m[1], m[2]})
		}
	}
	if len(steps) < 5 {
		t.Fatalf("ARCHITECTURE.md has %d steps of road %s", len(steps), road)
	}
	return steps
}

// functionsOf returns the functions of a Go file by name, methods as Type.Name.
func functionsOf(t *testing.T, file string) (*token.FileSet, map[string]*ast.FuncDecl) {
	t.Helper()
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, filepath.Join(root(t), file), nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	all := map[string]*ast.FuncDecl{}
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		name := fn.Name.Name
		if fn.Recv != nil {
			of := fn.Recv.List[0].Type
			if p, ok := of.(*ast.StarExpr); ok {
				of = p.X
			}
			if generic, ok := of.(*ast.IndexExpr); ok {
				of = generic.X
			}
			name = of.(*ast.Ident).Name + "." + name
		}
		all[name] = fn
	}
	return set, all
}

func main() {
	testing.Main(regexp.MatchString, []testing.InternalTest{{Name: "Road", F: measure}}, nil, nil)
}

// measure fails if a road passes more files than it may, or not the functions that ARCHITECTURE.md names.
func measure(t *testing.T) {
	for _, c := range []struct {
		name, road, path string
		files            int // of the caller; with circuits, of the leader and of the other rank too
	}{
		{"shared memory", "S", "arena", 12}, // the whole call
		{"memory", "P", "inproc", 12},
		{"tcp", "P", "tcp", 12},
		{"circuits", "C", "circuits", 36},
	} {
		t.Run(c.name, func(t *testing.T) {
			passed := traceRoad(t, c.path)
			files := map[string][]string{}
			for s := range passed {
				files[s.file] = append(files[s.file], s.function)
			}
			t.Logf("%d files, %d functions", len(files), len(passed))
			for _, f := range slices.Sorted(maps.Keys(files)) {
				slices.Sort(files[f])
				t.Logf("%s: %s", f, strings.Join(files[f], " "))
			}
			if len(files) > c.files {
				t.Errorf("the road passes %d files, more than %d", len(files), c.files)
			}
			for _, s := range readRoad(t, c.road) {
				if strings.HasPrefix(s.file, "shim/") && !passed[s] {
					t.Errorf("the road does not pass %s:%s", s.file, s.function)
				}
			}
		})
	}
}

// traceRoad returns the functions of shim that ran when rank 0 handed over its first byte. Rank 1 calls only after that
// where rank 0 does not need it before.
func traceRoad(t *testing.T, path string) map[roadStep]bool {
	switch path {
	case "inproc":
		t.Setenv("LIGHTPATH_TRANSPORT", path)
	default:
		shimtest.UsePath(t, path, 2)
	}
	t.Setenv("LIGHTPATH_ITERATION", "off") // else its ticket is there before the call
	if path == "arena" {                   // a call that has to wait for the other rank takes another road
		t.Setenv("LIGHTPATH_SPIN", "1000000000")
	}
	w := shimtest.NewWorld(t, 2)
	var group [2][]calls.Call
	for r := range group {
		group[r] = []calls.Call{shimtest.AllReduce(w.Comms[r], make([]float32, 4096))}
	}
	for range 20 {
		w.Must(func(c *shim.Comm) error { return shim.Run(group[c.Rank]) })
	}
	dir := t.TempDir()
	sent, ended := make(chan struct{}), make(chan error, 1)
	first := func() {
		select {
		case <-sent:
		default:
			writeCounters(t, dir)
			close(sent)
		}
	}
	c := w.Comms[0]
	switch p := circuits.Of(c); {
	case p != nil:
		p.End = shimtest.Watch(p.End, first)
	case path != "arena":
		session.Of(c).Packet = shimtest.Watch(session.Of(c).Packet, first)
	}
	require.NoError(t, coverage.ClearCounters())
	go func() {
		if path != "arena" && path != "circuits" {
			<-sent
		}
		ended <- shim.Run(group[1])
	}()
	require.NoError(t, shim.Run(group[0]))
	first() // of shared memory, here
	require.NoError(t, <-ended)
	return functionsRun(t, dir)
}

func writeCounters(t *testing.T, dir string) {
	assert.NoError(t, coverage.WriteMetaDir(dir))
	assert.NoError(t, coverage.WriteCountersDir(dir))
}

// functionsRun returns the functions whose first block has run, by the counters in dir.
func functionsRun(t *testing.T, dir string) map[roadStep]bool {
	t.Helper()
	out := filepath.Join(dir, "profile")
	if text, err := exec.Command("go", "tool", "covdata", "textfmt", "-i="+dir, "-o="+out).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	text, err := os.ReadFile(out)
	require.NoError(t, err)
	run := map[string]map[string]bool{} // by file: the places where blocks begin that have run
	for line := range strings.Lines(string(text)) {
		file, rest, _ := strings.Cut(strings.TrimPrefix(line, "lightpath/"), ":")
		from, _, _ := strings.Cut(rest, ",")
		if strings.HasPrefix(file, "shim/") && !strings.HasPrefix(file, "shim/shimtest/") &&
			!strings.HasSuffix(strings.TrimSpace(rest), " 0") {
			if run[file] == nil {
				run[file] = map[string]bool{}
			}
			run[file][from] = true
		}
	}
	passed := map[roadStep]bool{}
	for file, blocks := range run {
		set, functions := functionsOf(t, file)
		for name, fn := range functions {
			p := set.Position(fn.Body.Lbrace)
			if blocks[fmt.Sprintf("%d.%d", p.Line, p.Column)] {
				passed[roadStep{file, name}] = true
			}
		}
	}
	return passed
}
