package shimtest

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"testing"
)

// Main runs the tests of a package, and exits. Where LP_TEST_PROGRAM names a program, Main runs that program instead:
// one of programs, or "rank", which is a rank that calls AllReduce until it fails (see [StartRanks]).
func Main(m *testing.M, programs map[string]func() int) {
	all := map[string]func() int{"rank": runRank}
	maps.Copy(all, programs)
	if run := all[os.Getenv("LP_TEST_PROGRAM")]; run != nil {
		os.Exit(run())
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
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}
