package main

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"lightpath/internal/require"
)

// addCalls adds to called the names that a function calls, itself or through functions of its file.
func addCalls(fn *ast.FuncDecl, file map[string]*ast.FuncDecl, called map[string]bool) {
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		name := ""
		switch f := call.Fun.(type) {
		case *ast.Ident:
			name = f.Name
		case *ast.SelectorExpr:
			name = f.Sel.Name
		}
		if called[name] {
			return true
		}
		called[name] = true
		for full, next := range file {
			if method(full) == name {
				addCalls(next, file, called)
			}
		}
		return true
	})
}

// TestRoad checks the roads in ARCHITECTURE.md: each function exists, and a function before it calls it.
func TestRoad(t *testing.T) {
	for _, road := range []string{"S", "P", "C"} {
		called := map[string]bool{"Run": true} // by cgo/core
		for _, s := range readRoad(t, road) {
			_, file := functionsOf(t, s.file)
			fn := file[s.function]
			if fn == nil {
				t.Errorf("%s has no function %s", s.file, s.function)
				continue
			}
			if !called[method(s.function)] {
				t.Errorf("road %s: no function before %s:%s calls it", road, s.file, s.function)
			}
			addCalls(fn, file, called)
		}
	}
}

// method returns the last part of a function's name, by which it is called.
func method(function string) string { return function[strings.LastIndexByte(function, '.')+1:] }

// callStep matches the place of a function in docs/design/calls.md.
var callStep = regexp.MustCompile("`([a-z0-9/_]+\\.(?:go|c)):([A-Za-z_.]+)`")

// TestCalls checks that the functions in docs/design/calls.md exist.
func TestCalls(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(t), "docs/design/calls.md"))
	require.NoError(t, err)
	steps := callStep.FindAllStringSubmatch(string(text), -1)
	if len(steps) < 40 {
		t.Errorf("the page names %d functions", len(steps))
	}
	for _, s := range steps {
		file, name := s[1], s[2]
		if filepath.Ext(file) == ".c" {
			code, err := os.ReadFile(filepath.Join(root(t), file))
			require.NoError(t, err)
			if !regexp.MustCompile("ncclResult_t,? " + name + "[(,]").Match(code) { // LP_API(ncclResult_t, name, ...)
				t.Errorf("%s has no function %s", file, name)
			}
		} else if _, all := functionsOf(t, file); all[name] == nil {
			t.Errorf("%s has no function %s", file, name)
		}
	}
}
