// Package clitest runs commands in tests: as main does, with files in memory in place of the standard streams.
//
// Layer: for tests of cmd/lightpath and its rooms.
package clitest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"lightpath/cmd/lightpath/cli"
	"lightpath/internal/await"
	"lightpath/internal/require"
)

// Tree makes the commands that a test runs.
type Tree func() *cobra.Command

// Of returns the tree of the commands of rooms, as tests of a room run it.
func Of(rooms ...func() *cobra.Command) Tree {
	return func() *cobra.Command {
		commands := make([]*cobra.Command, len(rooms))
		for i, room := range rooms {
			commands[i] = room()
		}
		return cli.NewRoot(commands...)
	}
}

// Outcome is one run of a command.
type Outcome struct {
	Status         int
	Stdout, Stderr string
}

// Run runs a command as main would, with stdin as its standard input. The process's own streams are replaced meanwhile,
// so such tests of one package do not run in parallel.
func (tree Tree) Run(t *testing.T, stdin string, args ...string) Outcome {
	t.Helper()
	streams := []**os.File{&os.Stdin, &os.Stdout, &os.Stderr}
	files := make([]*os.File, len(streams))
	for i, s := range streams {
		fd, err := unix.MemfdCreate("stream", unix.MFD_CLOEXEC) // a disk would take most of the time of short commands
		require.NoError(t, err)
		f := os.NewFile(uintptr(fd), fmt.Sprintf("/proc/self/fd/%d", fd))
		files[i] = f
		defer f.Close()
		defer func(old *os.File) { *s = old }(*s)
		*s = f
	}
	if _, err := files[0].WriteString(stdin); err != nil {
		t.Fatal(err)
	}
	if _, err := files[0].Seek(0, 0); err != nil {
		t.Fatal(err)
	}
	status := cli.Run(context.Background(), tree(), args)
	return Outcome{status, Content(t, files[1].Name()), Content(t, files[2].Name())}
}

// Content returns the text of a file.
func Content(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

// Succeed runs a command that must end with 0 and returns its standard output.
func (tree Tree) Succeed(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	o := tree.Run(t, stdin, args...)
	if o.Status != 0 {
		t.Fatalf("lightpath %s: status %d: %s", strings.Join(args, " "), o.Status, o.Stderr)
	}
	return o.Stdout
}

// Refuse runs a command that must end with 2 and one line on standard error with every word of
// says, and nothing on standard output.
func (tree Tree) Refuse(t *testing.T, stdin string, says []string, args ...string) {
	t.Helper()
	o := tree.Run(t, stdin, args...)
	line, rest, ended := strings.Cut(o.Stderr, "\n")
	if o.Status != cli.ExitUsage || o.Stdout != "" || !ended || rest != "" || !strings.HasPrefix(line, "lightpath: ") {
		t.Errorf("lightpath %s: status %d, output %q, errors %q; want 2, nothing and one line", strings.Join(args, " "),
			o.Status, o.Stdout, o.Stderr)
	}
	for _, s := range says {
		if !strings.Contains(line, s) {
			t.Errorf("lightpath %s: %q does not say %q", strings.Join(args, " "), line, s)
		}
	}
}

// Write writes a file with this name into a folder of the test, and returns its path.
func Write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// Appears waits for a file.
func Appears(t *testing.T, path string) {
	t.Helper()
	await.Success(t, "wait for a file", func() error {
		_, err := os.Stat(path)
		return err
	})
}
