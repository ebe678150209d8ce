package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"lightpath/cmd/lightpath/cli"
	"lightpath/internal/require"
)

// writers are commands that write a file, without its name: one of each way.
var writers = [][]string{
	{"plan", "problem", "--collective", "allreduce", "--algorithm", "ring", "--ranks", "4", "--bytes", "4MB",
		"--planes", "2", "--bandwidth", "400Gbps", "--reconfig", "200us", "--out"},
	{"schedule", "export", "--collective", "allreduce", "--algorithm", "ring", "--ranks", "4", "--xml"},
	{"bench", "barrier", "--ranks", "2", "--rounds", "1", "--carrier", "shm", "--json"},
	{"bench", "barrier", "--ranks", "2", "--rounds", "1", "--carrier", "shm", "--svg"},
}

// TestOutputFile writes each kind of file with each command: a FIFO stays a FIFO, a link leads to
// the new content, permissions stay.
func TestOutputFile(t *testing.T) {
	for _, args := range writers {
		dir := t.TempDir()
		path := func(name string) string { return filepath.Join(dir, name) }
		err := errors.Join(unix.Mkfifo(path("fifo"), 0o600), os.WriteFile(path("target"), nil, 0o600),
			os.Symlink("target", path("link")))
		require.NoError(t, err)
		lightpath.Succeed(t, "", append(args[:len(args):len(args)], path("link"))...)
		if link, err := os.Readlink(path("link")); err != nil || link != "target" {
			t.Errorf("%v: the link: %q, %v", args, link, err)
		}
		info, err := os.Stat(path("target"))
		if err != nil || info.Size() == 0 || info.Mode() != 0o600 {
			t.Errorf("%v: the target: %+v, %v", args, info, err)
		}

		read := make(chan string)
		go func() {
			text, err := os.ReadFile(path("fifo"))
			if err != nil {
				t.Error(err)
			}
			read <- string(text)
		}()
		lightpath.Succeed(t, "", append(args[:len(args):len(args)], path("fifo"))...)
		if info, err = os.Lstat(path("fifo")); err != nil || info.Mode().Type() != fs.ModeNamedPipe {
			t.Fatalf("%v: the FIFO has become %v, %v", args, info, err)
		}
		if text := <-read; text == "" {
			t.Errorf("%v: nothing came through the FIFO", args)
		}
	}
}

// endless is a FIFO out of which ever more of a text can be read. It returns its path and, once
// the reader has gone, how much was read.
func endless(t *testing.T, text string) (path string, taken func() int) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "endless")
	require.NoError(t, unix.Mkfifo(path, 0o600))
	count := make(chan int, 1)
	go func() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Error(err)
			count <- 0
			return
		}
		defer f.Close()
		block, n := []byte(strings.Repeat(text, 1<<16/len(text))), 0
		for err == nil && n < 128<<20 { // no test takes all memory
			var m int
			m, err = f.Write(block)
			n += m
		}
		count <- n
	}()
	return path, func() int { return <-count }
}

// TestEndlessInput gives commands files without an end.
func TestEndlessInput(t *testing.T) {
	defer func(old int64) { cli.MaxInput = old }(cli.MaxInput)
	cli.MaxInput = 1 << 20
	for _, args := range [][]string{
		{"plan", "solve", "--in"},
		{"ranks", "merge"},
		{"ocs", "status", "--fabric"},
		{"ocsd", "--config"},
		{"ocs", "emulate", "--scpi", "127.0.0.1:0", "--faults"},
		{"topology", "lumos", "simulate", "--trace"},
		{"bench", "alltoallv", "--matrix"},
		{"bench", "allreduce", "--fabric"},
	} {
		path, taken := endless(t, "# comment\n")
		lightpath.Refuse(t, "", []string{path, "bytes"}, append(args, path)...)
		if n := taken(); n > 32<<20 {
			t.Errorf("%v: %d bytes were read", args, n)
		}
	}
}

// TestFullOutput: a command whose text cannot be written ends with 2.
func TestFullOutput(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer full.Close()
	defer func(old *os.File) { os.Stdout = old }(os.Stdout)
	os.Stdout = full
	for _, line := range []string{"doctor --env", "figure --list", "plan cache ls", "schema plan", "--help",
		"--version", "run -n 1 --preload=false -- echo text"} {
		if got := cli.Run(t.Context(), lightpath(), strings.Fields(line)); got != cli.ExitUsage {
			t.Errorf("lightpath %s: status %d, want %d", line, got, cli.ExitUsage)
		}
	}
}
