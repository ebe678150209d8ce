package main

import (
	"testing"

	"lightpath/internal/files"
)

// TestMutants checks that each break still replaces one text of its file. If it does not, a change of the code has
// removed the text.
func TestMutants(t *testing.T) {
	t.Chdir("../../..")
	names := map[string]bool{}
	for i := range mutants {
		m := &mutants[i]
		text, err := files.Read(m.file, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.apply(string(text)); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
		if names[m.name] || m.old == m.new {
			t.Errorf("%s: its name or its text is not its own", m.name)
		}
		names[m.name] = true
	}
}

// TestFailure checks which line of a test's output is shown.
func TestFailure(t *testing.T) {
	nested := "ok\n--- FAIL: TestA (0.00s)\n    --- FAIL: TestA/b (0.00s)\n        a_test.go:5: grant twice\nFAIL\n"
	for out, want := range map[string]string{
		nested:                             "TestA (0.00s) a_test.go:5: grant twice",
		"panic: test timed out after 1s\n": "panic: test timed out after 1s",
		"FAIL\n":                           "the tests fail",
	} {
		if got := failure(out); got != want {
			t.Errorf("%q: %q, want %q", out, got, want)
		}
	}
}
