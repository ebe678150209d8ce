// Command mutants breaks the protocols' code in known ways, one at a time, and runs the tests against each break: first
// the simulator's, then those of the broken package. It prints the test that found each break, and exits with 1 if a
// break survives, or if only the package's tests find one that the simulator has to find.
//
// It changes no file: the compiler reads the broken file in place of the original. docs/design/simulation.md says how
// to add a break.
//
// Layer: inside bench. It runs tests, and imports no protocol.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"lightpath/internal/files"
)

const simulator = "./bench/protocols"

func main() {
	only := flag.String("run", "", "regular expression: only breaks whose name it matches")
	limit := flag.Duration("limit", 5*time.Minute, "time for the tests of one package")
	flag.Parse()
	pattern, err := regexp.Compile(*only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants: -run:", err)
		os.Exit(2)
	}
	survived, err := run(pattern, *limit)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(2)
	}
	if survived > 0 {
		fmt.Printf("%d breaks were not found as they have to be\n", survived)
		os.Exit(1)
	}
}

// run tests the breaks whose name matches, and returns how many were not found.
func run(pattern *regexp.Regexp, limit time.Duration) (survived int, err error) {
	folder, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(folder)
	for i := range mutants {
		m := &mutants[i]
		if !pattern.MatchString(m.name) {
			continue
		}
		overlay, err := m.overlay(folder)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", m.name, err)
		}
		var found string
		for _, p := range m.packages() {
			if found, err = test(overlay, p, limit); found != "" || err != nil {
				found = strings.TrimPrefix(p, "./") + ": " + found
				break
			}
		}
		switch {
		case err != nil:
			survived++
			found = err.Error()
		case found == "":
			survived++
			found = "SURVIVES"
		}
		fmt.Printf("%-34s %s\n", m.name, found)
	}
	return survived, nil
}

// packages returns the packages whose tests have to find the break.
func (m *mutant) packages() []string {
	all := []string{simulator}
	if m.unit {
		all = append(all, "./"+path.Dir(m.file))
	}
	if m.unit && path.Dir(m.file) == "ocsctl/driver" { // package switches has the tests of sessions
		all = append(all, "./ocsctl/switches")
	}
	return all
}

// overlay writes the broken file, and the file by which the compiler finds it. It returns the name of the latter.
func (m *mutant) overlay(folder string) (string, error) {
	text, err := files.Read(m.file, 1<<20)
	if err != nil {
		return "", err
	}
	broken, err := m.apply(string(text))
	if err != nil {
		return "", err
	}
	file, overlay := filepath.Join(folder, filepath.Base(m.file)), filepath.Join(folder, "overlay.json")
	original, err := filepath.Abs(m.file)
	if err != nil {
		return "", err
	}
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {original: file}})
	if err != nil {
		return "", err
	}
	if err := files.Write(file, []byte(broken), 0o600); err != nil {
		return "", err
	}
	return overlay, files.Write(overlay, replace, 0o600)
}

// apply returns the text of the file with the break.
func (m *mutant) apply(text string) (string, error) {
	if n := strings.Count(text, m.old); n != 1 {
		return "", fmt.Errorf("%s has the text to replace %d times, want once", m.file, n)
	}
	return strings.Replace(text, m.old, m.new, 1), nil
}

// test runs the tests of a package with an overlay. It returns the first failure; "": the tests pass.
func test(overlay, pkg string, limit time.Duration) (found string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit+time.Minute)
	defer cancel()
	args := []string{"test", "-overlay", overlay, "-failfast", "-timeout", limit.String(), pkg}
	if pkg != simulator {
		args = append(args, "-short")
	}
	c := exec.CommandContext(ctx, "go", args...)
	out, err := c.CombinedOutput()
	text := string(out)
	switch {
	case err == nil:
		return "", nil
	case strings.Contains(text, "[build failed]") || strings.Contains(text, "[setup failed]"):
		return "", fmt.Errorf("it does not compile:\n%s", text)
	}
	return failure(text), nil
}

// failure returns the name of the first test that fails, and its message in one line.
func failure(out string) string {
	lines := strings.Split(out, "\n")
	for i, line := range lines {
		if name, ok := strings.CutPrefix(line, "--- FAIL: "); ok {
			for _, message := range lines[i+1:] {
				if strings.Contains(message, ".go:") {
					return name + " " + short(message)
				}
			}
			return name
		}
		if strings.HasPrefix(line, "panic: ") {
			return short(line)
		}
	}
	return "the tests fail"
}

// short returns a line without the spaces around it, cut to a readable length.
func short(line string) string {
	line = strings.TrimSpace(line)
	if r := []rune(line); len(r) > 160 {
		line = string(r[:160]) + "..."
	}
	return line
}
