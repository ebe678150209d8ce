package shimtest

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"testing"
)

// Main is [Run], and exits.
func Main(m *testing.M, programs map[string]func() int) { os.Exit(Run(m, programs)) }

// Run runs the tests of a package, and returns the exit status. Where LP_TEST_PROGRAM names a program, Run runs that
// program instead: one of programs, or "rank", which is a rank that calls AllReduce until it fails (see [StartRanks]).
func Run(m *testing.M, programs map[string]func() int) int {
	all := map[string]func() int{"rank": runRank}
	maps.Copy(all, programs)
	if run := all[os.Getenv("LP_TEST_PROGRAM")]; run != nil {
		return run()
	}
	// Tests that run in parallel mostly wait.
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	// Communicators of a test neither report to other programs of this machine nor take the port of RAS.
	dir, err := os.MkdirTemp("", "lp")
	if err != nil {
		panic(err)
	}
	for name, value := range map[string]string{"LIGHTPATH_STATUS_DIR": filepath.Join(dir, "s"), "NCCL_RAS_ENABLE": "0"} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	defer os.RemoveAll(dir)
	return m.Run()
}
