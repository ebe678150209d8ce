package faults

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"lightpath/internal/require"
)

// TestTableNamesTests checks that every test named in the table of faults in docs/design exists.
func TestTableNamesTests(t *testing.T) {
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(root, "docs", "design", "faults.md"))
	require.NoError(t, err)
	_, table, found := strings.Cut(string(text), "## Faults, and the tests that inject them")
	table, _, ended := strings.Cut(table, "\n## ")
	if !found || !ended {
		t.Fatal("docs/design/faults.md has no such table")
	}
	there := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err = filepath.WalkDir(root, func(file string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(file, "_test.go") {
			return err
		}
		source, err := os.ReadFile(file)
		for _, m := range function.FindAllStringSubmatch(string(source), -1) {
			there[filepath.Base(filepath.Dir(file))+"."+m[1]] = true
		}
		return err
	})
	require.NoError(t, err)
	named := regexp.MustCompile(`\b\w+\.Test\w+`).FindAllString(table, -1)
	if len(named) < 50 {
		t.Errorf("the table names %d tests", len(named))
	}
	for _, name := range named {
		if !there[name] {
			t.Errorf("there is no %s", name)
		}
	}
	for _, m := range regexp.MustCompile("`(\\w+\\.(?:c|py))`").FindAllStringSubmatch(table, -1) {
		if _, err := os.Stat(filepath.Join(root, "cgo", "front", "tests", m[1])); err != nil {
			t.Error(err)
		}
	}
}
