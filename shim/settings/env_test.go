package settings

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/shim/errdefs"
	"lightpath/shim/log"
)

func TestConfig(t *testing.T) {
	c, err := Of(
		"LIGHTPATH_TRANSPORT", "SHM", "LIGHTPATH_PLANES", " 3 ", "LIGHTPATH_TIMEOUT", "1m30s", "LIGHTPATH_FABRIC_RANK", "5",
		"LIGHTPATH_ALGORITHM", "allreduce:ring, alltoall:bruck", "LIGHTPATH_FAULT", "skip-drain:1:4,plan-delay:2s",
		"LIGHTPATH_PLAN_INITIAL", "current", "NCCL_DEBUG", "info", "OMPI_COMM_WORLD_RANK", "7", "RANK", "",
		"LIGHTPATH_PLANNER", "swot", "LIGHTPATH_METRICS", "json:/m",
	)
	require.NoError(t, err)
	if c.Transport != "shm" || c.Planes != 3 || c.Timeout != 90*time.Second || c.FabricRank != 5 ||
		c.Algorithms["alltoall"] != "bruck" || !c.Plan.Current || c.Log.Level != log.Info || c.LauncherRank != 7 ||
		c.Plan.Planner != "swot" || c.Metrics != (Metrics{"/m", true}) ||
		c.Fault != (Fault{SkipDrain: true, Plane: 1, Epoch: 4, PlanDelay: 2 * time.Second}) {
		t.Errorf("%+v", c)
	}
	if c, err = Of(); err != nil || c.Timeout != 10*time.Minute || c.Planes != 1 || c.Spin != -1 || c.FabricRank != -1 {
		t.Errorf("defaults: %+v, %v", c, err)
	}
}

// TestBadConfig: every unusable value is refused with the name of its variable.
func TestBadConfig(t *testing.T) {
	for _, k := range [][2]string{
		{"LIGHTPATH_TRANSPORT", "carrier pigeon"}, {"LIGHTPATH_PLANES", "0"}, {"LIGHTPATH_PLANES", "many"},
		{"LIGHTPATH_TIMEOUT", "5"}, {"LIGHTPATH_TIMEOUT", "-1s"}, {"LIGHTPATH_PLAN_LIMIT", "soon"},
		{"LIGHTPATH_PLAN_WAIT", "yes"},
		{"LIGHTPATH_PLAN_INITIAL", "dark"}, {"LIGHTPATH_PLANNER", "guess"}, {"LIGHTPATH_SPIN", "-2"},
		{"LIGHTPATH_FABRIC_RANK", "-1"},
		{"LIGHTPATH_ALGORITHM", "allreduce"}, {"LIGHTPATH_ALGORITHM", "allreduce:pairwise-xor"},
		{"LIGHTPATH_ALGORITHM", "sort:ring"},
		{"LIGHTPATH_PLAN_TOLERANCE", "2"}, {"LIGHTPATH_PLAN_TOLERANCE", "1%"},
		{"LIGHTPATH_FALLBACK", "perhaps"}, {"LIGHTPATH_FAULT", "explode"}, {"LIGHTPATH_FAULT", "skip-drain:0"},
		{"LIGHTPATH_FAULT", "plan-delay:x"}, {"LIGHTPATH_METRICS", "json:"},
	} {
		_, err := Of(k[0], k[1])
		refused(t, err, k[0])
	}
}

// refused checks that settings were refused with words that say so.
func refused(t *testing.T, err error, words ...string) {
	t.Helper()
	for _, w := range words {
		if !errors.Is(err, errdefs.ErrInvalidUsage) || !strings.Contains(err.Error(), w) {
			t.Errorf("%v, want %q", err, w)
		}
	}
}

// TestIgnoredVars: a variable is either read, by the core or the front, or in exactly one group of ignored variables.
func TestIgnoredVars(t *testing.T) {
	seen := map[string]bool{}
	for _, g := range ignoredVars {
		for _, name := range g.Names {
			read := slices.ContainsFunc(Vars(), func(v Var) bool { return v.Name == name })
			if seen[name] || read {
				t.Errorf("%s is in two groups, or is read", name)
			}
			seen[name] = true
		}
	}
}

// TestVariablesOfC: every variable that the C of the libraries asks for by name is in the table.
func TestVariablesOfC(t *testing.T) {
	asks := regexp.MustCompile(`(?:getenv|lp_env)\("((?:LIGHTPATH|NCCL)_\w+)"\)`)
	found := 0
	for _, folder := range []string{"front", "record"} {
		sources, err := filepath.Glob("../../cgo/" + folder + "/*.c")
		require.NoError(t, err)
		for _, path := range sources {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			for _, m := range asks.FindAllSubmatch(text, -1) {
				found++
				if !slices.ContainsFunc(Vars(), func(v Var) bool { return v.Name == string(m[1]) }) {
					t.Errorf("%s reads %s, which is not in the table", path, m[1])
				}
			}
		}
	}
	if found < len(frontVars) {
		t.Errorf("C asks for %d variables, want %d at least", found, len(frontVars))
	}
}

// TestLogFailsNobody: what only says how to log is no reason to refuse a communicator, and is told in the log. Levels
// that NCCL has and Lightpath has not are levels.
func TestLogFailsNobody(t *testing.T) {
	for _, k := range [][2]string{
		{"NCCL_DEBUG", "LOUD"}, {"NCCL_DEBUG_TIMESTAMP_FORMAT", "%Q"}, {"NCCL_DEBUG_TIMESTAMP_FORMAT", "%"},
		{"NCCL_DEBUG_TIMESTAMP_FORMAT", "%0f"},
		{"NCCL_DEBUG_TIMESTAMP_LEVELS", "LOUD"},
	} {
		path := filepath.Join(t.TempDir(), "log")
		c, err := Of(k[0], k[1], "NCCL_DEBUG", "WARN", "NCCL_DEBUG_FILE", path)
		if err != nil {
			t.Errorf("%v: %v", k, err)
			continue
		}
		c.NewLog(0).Close()
		if text, err := os.ReadFile(path); err != nil ||
			!bytes.Contains(text, []byte("NCCL WARN environment variable "+k[0]+": ")) {
			t.Errorf("%v: the log is %q, %v", k, text, err)
		}
	}
	for word, want := range map[string]log.Level{"attn": log.Warn, "ABORT": log.Info} {
		c, err := Of("NCCL_DEBUG", word)
		if err != nil || c.Log.Level != want || len(c.Warnings()) != 0 {
			t.Errorf("%s is level %d, %v, %v", word, c.Log.Level, c.Warnings(), err)
		}
	}
}

// TestMisspeltVariables: a variable that looks like one of ours and is none is a warning, one of NCCL's is not.
func TestMisspeltVariables(t *testing.T) {
	t.Setenv("LIGHTPATH_TRANSPOR", "tcp")
	t.Setenv("LIGHTPATH_TEST_SOMETHING", "1")
	t.Setenv("NCCL_NO_SUCH", "1")
	c, err := Load()
	require.NoError(t, err)
	if w := c.Warnings(); len(w) != 1 ||
		!strings.Contains(w[0], "LIGHTPATH_TRANSPOR set by environment to tcp: ignored, Lightpath has no such variable") {
		t.Errorf("%q", w)
	}
}

// TestControlInterfaces: NCCL_OOB_NET_IFNAME comes before NCCL_SOCKET_IFNAME.
func TestControlInterfaces(t *testing.T) {
	for _, k := range [][3]string{{"eth", "", "eth"}, {"eth", "=lo", "=lo"}, {"", "lo", "lo"}} {
		c, err := Of("NCCL_SOCKET_IFNAME", k[0], "NCCL_OOB_NET_IFNAME", k[1])
		if err != nil || c.ControlInterfaces() != k[2] {
			t.Errorf("%v: %q, %v", k, c.ControlInterfaces(), err)
		}
	}
}
