package protocols

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestMapping checks that docs/design/simulation.md maps the model to functions and types that exist.
func TestMapping(t *testing.T) {
	text, err := os.ReadFile("../../docs/design/simulation.md")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]map[string]bool{} // by file
	all := regexp.MustCompile("`([a-z/_]+\\.go):([A-Za-z.]+)`").FindAllStringSubmatch(string(text), -1)
	for _, m := range all {
		file, name := m[1], m[2]
		if names[file] == nil {
			names[file] = declared(t, filepath.Join("../..", file))
		}
		if !names[file][name] {
			t.Errorf("%s declares no %s", file, name)
		}
	}
	if len(all) < 25 {
		t.Errorf("the document maps only %d names", len(all))
	}
}

// declared returns the functions ("F"), methods ("T.M") and types of a file.
func declared(t *testing.T, path string) map[string]bool {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil {
				of := d.Recv.List[0].Type
				if p, ok := of.(*ast.StarExpr); ok {
					of = p.X
				}
				name = of.(*ast.Ident).Name + "." + name
			}
			found[name] = true
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if s, ok := s.(*ast.TypeSpec); ok {
					found[s.Name.Name] = true
				}
			}
		}
	}
	return found
}
