package kernel

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"lightpath/internal/require"
)

// listed returns what List says of a fabric; zero if nothing.
func listed(t *testing.T, name string) Presence {
	t.Helper()
	all, err := List()
	require.NoError(t, err)
	for _, p := range all {
		if p.Name == name {
			return p
		}
	}
	return Presence{}
}

func TestTemporary(t *testing.T) {
	t.Parallel()
	needRoot(t)
	f := fabricFile(t, 2, 1, "1Gbps", false)
	s, down, err := Temporary(f, Options{})
	require.NoError(t, err)
	if got, want := listed(t, s.Name), (Presence{Name: s.Name, Ranks: 2, Complete: true,
		Owner: os.Getpid()}); got != want {
		t.Errorf("listed as %+v, want %+v", got, want)
	}
	if removed, err := Sweep(); err != nil || slices.Contains(removed, s.Name) {
		t.Errorf("swept while its owner lives: %v, %v", removed, err)
	}
	if _, _, err := Temporary(f, Options{}); err == nil {
		t.Error("a fabric has two owners")
	}
	if _, err := Down(s.Name, false); !errors.Is(err, ErrBusy) {
		t.Errorf("taken down while its owner lives: %v", err)
	}
	if err := down(); err != nil {
		t.Error(err)
	}
	nothing(t, s.Name)
}

// TestOwnerKilled: the fabric of a process that was killed is listed as left over, and swept.
func TestOwnerKilled(t *testing.T) {
	t.Parallel()
	needRoot(t)
	f := fabricFile(t, 2, 1, "1Gbps", false)
	name := Name(f)
	t.Cleanup(func() { _, _ = Down(name, true) })
	file := filepath.Join(t.TempDir(), "fabric.yaml")
	require.NoError(t, os.WriteFile(file, f.Encode(), 0o600))
	for _, remove := range []func() error{
		func() error { _, err := Sweep(); return err },
		func() error { _, err := Down(name, false); return err },
	} {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), owned+"="+file)
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		if _, err := out.Read(make([]byte, 3)); err != nil {
			t.Fatal(err)
		}
		if p := listed(t, name); p.Owner != cmd.Process.Pid || p.Left {
			t.Errorf("listed as %+v while process %d lives", p, cmd.Process.Pid)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it has been killed
		in.Close()
		// Another test's process may sweep first.
		if p := listed(t, name); p.Name != "" && !p.Left {
			t.Errorf("listed as %+v", p)
		}
		if err := remove(); err != nil && !errors.Is(err, ErrBusy) {
			t.Error(err)
		}
		wait(t, func() bool { return listed(t, name).Name == "" }, "still there")
		nothing(t, name)
	}
}
