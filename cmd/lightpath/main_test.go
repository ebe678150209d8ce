package main

import (
	"strings"
	"testing"

	"lightpath/cmd/lightpath/cli/clitest"
)

// lightpath is the whole tree, for tests.
var lightpath = clitest.Tree(newRoot)

// TestComputesOnly: every command that plans, simulates or draws ends within grace, and no command that runs programs.
func TestComputesOnly(t *testing.T) {
	for _, path := range []string{"plan solve", "plan cache warm", "sim", "figure", "schedule show", "topology delta plan",
		"iteration plan", "iteration record", "bench"} {
		cmd, _, err := lightpath().Find(strings.Fields(path))
		if err != nil {
			t.Fatal(err)
		}
		marked := false
		for ; cmd != nil; cmd = cmd.Parent() {
			marked = marked || cmd.PersistentPreRun != nil
		}
		if want := path != "bench" && path != "iteration record"; marked != want {
			t.Errorf("%s: marked as computing: %v", path, marked)
		}
	}
}
