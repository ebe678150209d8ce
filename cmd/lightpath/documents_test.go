package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"lightpath/cmd/lightpath/cli/clitest"
	"lightpath/internal/require"
)

const repository = "../.."

// documentedCommand is a command line of lightpath in a document.
type documentedCommand struct {
	document string   // path in the repository
	args     []string // after "lightpath"
}

func (c documentedCommand) String() string {
	return c.document + ": lightpath " + strings.Join(c.args, " ")
}

var (
	// withCommands matches the names of files whose commands are tested.
	withCommands = regexp.MustCompile(`\.(md|py)$|^README\.Debian$`)
	// commandStart is a line of a code block that runs lightpath, perhaps with variables, after sudo or nice.
	commandStart = regexp.MustCompile(`^(?:    |\t|\$ )?(?:\$ )?` +
		`(?:[A-Z_]+=\S+ |sudo |nice -n -15 |chrt -f 5 )*(?:bin/)?lightpath (\S.*)$`)
	// shellEnd begins what is no argument: a comment, a pipe, a list, or a redirection.
	shellEnd = regexp.MustCompile(`\s+(?:#|[|&;<>]).*$`)
)

// documentedCommands returns every command line of lightpath in the code blocks of the Markdown files, of Python's
// docstrings and of the Debian package's README.
func documentedCommands(t *testing.T) []documentedCommand {
	t.Helper()
	var all []documentedCommand
	err := filepath.WalkDir(repository, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() && path != repository && (strings.HasPrefix(name, ".") || name == "build" || name == "shared") {
			return filepath.SkipDir
		}
		if withCommands.MatchString(name) && name != "CHANGELOG.md" {
			relative, _ := filepath.Rel(repository, path)
			all = append(all, commandsOf(relative, clitest.Content(t, path))...)
		}
		return nil
	})
	require.NoError(t, err)
	return all
}

func commandsOf(document, text string) []documentedCommand {
	var all []documentedCommand
	fenced := false
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		m := commandStart.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil || !fenced && !strings.HasPrefix(line, "    ") {
			continue
		}
		args := word.FindAllString(shellEnd.ReplaceAllString(m[1], ""), -1)
		all = append(all, documentedCommand{document, args})
	}
	return all
}

// word is an argument of a command; double quotes join words.
var word = regexp.MustCompile(`(?:"[^"]*"|[^\s"])+`)

// placeholder is a word that stands for another one: [optional], a|b, NAME, ...
var placeholder = regexp.MustCompile(`^\[|^\.\.\.$|\|`)

// TestDocumentedCommands parses each command of each document: the command exists, has these flags, and accepts these
// arguments.
func TestDocumentedCommands(t *testing.T) {
	all := documentedCommands(t)
	if len(all) < 60 {
		t.Errorf("%d commands in the documents, want at least 60", len(all))
	}
	for _, c := range all {
		args := slices.Clone(c.args)
		for i, arg := range args {
			if strings.HasPrefix(arg, "[") {
				args = args[:i] // what follows is optional
				break
			}
			if placeholder.MatchString(arg) && !strings.HasPrefix(arg, "-") {
				args[i] = strings.Split(arg, "|")[0]
			}
		}
		cmd, rest, err := lightpath().Find(args)
		if err == nil {
			err = cmd.ParseFlags(rest)
		}
		if errors.Is(err, pflag.ErrHelp) {
			continue
		}
		if err == nil {
			err = errors.Join(cmd.ValidateArgs(cmd.Flags().Args()), cmd.ValidateRequiredFlags())
		}
		if err != nil {
			t.Errorf("%v: %v", c, err)
		}
	}
}

// inputs are the flags of files that a command reads.
var inputs = []string{"fabric", "config", "in", "plan", "core", "topology", "check", "map"}

// outputs are the flags of files that a command writes.
var outputs = []string{"out", "fabric", "ocsd", "steps", "maps"}

// TestDocumentedFiles: each file that a command of the README or of docs/kernel.md reads is in the repository, or an
// earlier command writes it.
func TestDocumentedFiles(t *testing.T) {
	directories := map[string]string{"README.md": ".", "docs/kernel.md": "examples"}
	made := map[string]bool{}
	checked := map[string]bool{} // by document
	for _, c := range documentedCommands(t) {
		directory, ok := directories[c.document]
		if !ok {
			continue
		}
		for i, word := range c.args {
			name, isFlag := strings.CutPrefix(word, "--")
			if !isFlag || i+1 == len(c.args) {
				continue
			}
			path := c.args[i+1]
			if slices.Contains(inputs, name) {
				checked[c.document] = true
				if _, err := os.Stat(filepath.Join(repository, directory, path)); err != nil && !made[path] {
					t.Errorf("%v: --%s: no document or command makes this file: %v", c, name, err)
				}
			}
			if slices.Contains(outputs, name) {
				made[path] = true
			}
		}
	}
	if len(checked) != len(directories) {
		t.Errorf("commands of %v name files to read, want some of each of %v", checked, directories)
	}
}

// TestDocumentsRun runs the commands of the README and of docs/planners.md, in order, that need neither root nor rank
// processes.
func TestDocumentsRun(t *testing.T) {
	if testing.Short() {
		t.Skip("short: plans and figures")
	}
	dir := t.TempDir()
	examples, err := filepath.Abs(filepath.Join(repository, "examples"))
	require.NoError(t, err)
	require.NoError(t, os.Symlink(examples, filepath.Join(dir, "examples")))
	commands := documentedCommands(t)
	t.Chdir(dir)
	t.Setenv("LIGHTPATH_PLAN_DIR", filepath.Join(dir, "plans"))
	// bench and run start ranks, figure takes a minute, ocsd and fabric change the host, ocs needs a controller, and
	// doctor and ranks judge this host.
	skip := []string{"bench", "run", "figure", "ocsd", "fabric", "ocs", "doctor", "ranks", "demo"}
	ran := 0
	for _, c := range commands {
		if c.document != "README.md" && c.document != "docs/planners.md" || slices.Contains(skip, c.args[0]) {
			continue
		}
		ran++
		if cmd, _, err := lightpath().Find(c.args); err == nil && cmd.Flags().Lookup("time-limit") != nil {
			c.args = append(c.args, "--time-limit", "100ms")
		}
		if o := lightpath.Run(t, "", c.args...); o.Status != 0 {
			t.Errorf("%v: status %d: %s", c, o.Status, o.Stderr)
		}
	}
	if ran < 8 {
		t.Errorf("%d commands, want at least 8", ran)
	}
}
