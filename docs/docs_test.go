// Package docs tests the documentation: its links, its index, the width of its lines.
//
// Layer: tests only. Other packages test what pages say about them: commands and variables (cmd/lightpath),
// file formats (docs/schema), operations (ocsctl/controller/web), faults (bench/faults).
package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// pages returns the text of every Markdown file of the tree, by its path from the root.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		name := entry.Name()
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (name == "testdata" || name == "build" || strings.HasPrefix(name, ".") && name != ".."):
			return filepath.SkipDir
		case strings.HasSuffix(name, ".md"):
			text, err := os.ReadFile(path)
			all[strings.TrimPrefix(path, "../")] = string(text)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var (
	fence   = regexp.MustCompile("(?ms)^```.*?^```")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	notSlug = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors returns the names by which links reach the headings of text, as GitHub makes them.
func anchors(text string) map[string]bool {
	found := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		found[strings.ReplaceAll(notSlug.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
	}
	return found
}

// TestLinks: every link to a file of the tree leads to a file, and to a heading of it.
func TestLinks(t *testing.T) {
	all := pages(t)
	for path, text := range all {
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			file, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(file, "://") {
				continue
			}
			target := path
			if file != "" {
				target = filepath.Join(filepath.Dir(path), file)
			}
			if _, err := os.Stat(filepath.Join("..", target)); err != nil {
				t.Errorf("%s: %s: no such file", path, m[1])
			} else if anchor != "" && !anchors(all[target])[anchor] {
				t.Errorf("%s: %s: no such heading", path, m[1])
			}
		}
	}
}

// TestIndex: docs/README.md names every page of docs.
func TestIndex(t *testing.T) {
	all := pages(t)
	linked := map[string]bool{}
	for _, m := range link.FindAllStringSubmatch(all["docs/README.md"], -1) {
		linked[filepath.Join("docs", m[1])] = true
	}
	for path := range all {
		if strings.HasPrefix(path, "docs/") && path != "docs/README.md" && !linked[path] {
			t.Errorf("docs/README.md does not name %s", path)
		}
	}
}

// unbroken matches lines that have no breaks: rows of tables, pictures, code.
var unbroken = regexp.MustCompile(`^(\||!\[|    )`)

// TestWidth: lines have 120 columns at most, unless they cannot be broken.
func TestWidth(t *testing.T) {
	for path, text := range pages(t) {
		for i, line := range strings.Split(fence.ReplaceAllStringFunc(text, onlyLines), "\n") {
			if n := utf8.RuneCountInString(line); n > 120 && !unbroken.MatchString(line) {
				t.Errorf("%s:%d and perhaps more: %d columns", path, i+1, n)
				break
			}
		}
	}
}

// onlyLines returns as many line ends as text has, so that numbers of lines stay.
func onlyLines(text string) string { return strings.Repeat("\n", strings.Count(text, "\n")) }

// TestArchitectureIsShort: the overview has 3000 words at most. Details belong to docs/design.
func TestArchitectureIsShort(t *testing.T) {
	if n := len(strings.Fields(pages(t)["ARCHITECTURE.md"])); n > 3000 {
		t.Errorf("ARCHITECTURE.md has %d words", n)
	}
}
