package shim

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"lightpath/shim/log"
)

func environmentOf(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func TestConfig(t *testing.T) {
	c, err := loadConfig(environmentOf(
		"LIGHTPATH_TRANSPORT", "SHM", "LIGHTPATH_PLANES", " 3 ", "LIGHTPATH_TIMEOUT", "1m30s", "LIGHTPATH_FABRIC_RANK", "5",
		"LIGHTPATH_ALGORITHM", "allreduce:ring, alltoall:bruck", "LIGHTPATH_FAULT", "skip-drain:1:4,plan-delay:2s",
		"LIGHTPATH_BARRIER", "Time", "LIGHTPATH_BARRIER_SLACK", "50%+2ms",
		"LIGHTPATH_PLAN_INITIAL", "current", "NCCL_DEBUG", "info", "OMPI_COMM_WORLD_RANK", "7", "RANK", "", "LIGHTPATH_PLANNER", "swot",
	))
	if err != nil {
		t.Fatal(err)
	}
	if c.Transport != "shm" || c.Planes != 3 || c.Timeout != 90*time.Second || c.FabricRank != 5 ||
		c.Algorithms["alltoall"] != "bruck" || !c.PlanCurrent || c.Log.Level != log.Info || c.launcherRank != 7 || c.Planner != "swot" ||
		!c.BarrierTime || c.BarrierSlack != (Slack{0.5, 2 * time.Millisecond}) || c.BarrierSlack.after(time.Second, 3) != 1506*time.Millisecond ||
		c.Fault != (Fault{SkipDrain: true, Plane: 1, Epoch: 4, PlanDelay: 2 * time.Second}) {
		t.Errorf("%+v", c)
	}
	if c, err = loadConfig(environmentOf()); err != nil || c.Timeout != 10*time.Minute || c.Planes != 1 || c.Spin != -1 || c.FabricRank != -1 || c.BarrierTime {
		t.Errorf("defaults: %+v, %v", c, err)
	}
}

// TestBadConfig: every unusable value is refused with the name of its variable.
func TestBadConfig(t *testing.T) {
	for _, k := range [][2]string{
		{"LIGHTPATH_TRANSPORT", "carrier pigeon"}, {"LIGHTPATH_PLANES", "0"}, {"LIGHTPATH_PLANES", "many"},
		{"LIGHTPATH_TIMEOUT", "5"}, {"LIGHTPATH_TIMEOUT", "-1s"}, {"LIGHTPATH_PLAN_LIMIT", "soon"}, {"LIGHTPATH_PLAN_WAIT", "yes"},
		{"LIGHTPATH_PLAN_INITIAL", "dark"}, {"LIGHTPATH_PLANNER", "guess"}, {"LIGHTPATH_SPIN", "-2"}, {"LIGHTPATH_FABRIC_RANK", "-1"},
		{"LIGHTPATH_ALGORITHM", "allreduce"}, {"LIGHTPATH_ALGORITHM", "allreduce:pairwise-xor"}, {"LIGHTPATH_ALGORITHM", "sort:ring"},
		{"LIGHTPATH_PLAN_TOLERANCE", "2"}, {"LIGHTPATH_PLAN_TOLERANCE", "1%"},
		{"LIGHTPATH_BARRIER", "sometimes"}, {"LIGHTPATH_BARRIER_SLACK", "20"}, {"LIGHTPATH_BARRIER_SLACK", "-1%"}, {"LIGHTPATH_BARRIER_SLACK", "5%+"},
		{"LIGHTPATH_BARRIER_SLACK", "1ms+5%"}, {"LIGHTPATH_BARRIER_SLACK", "NaN%"},
		{"LIGHTPATH_FALLBACK", "perhaps"}, {"LIGHTPATH_FAULT", "explode"}, {"LIGHTPATH_FAULT", "skip-drain:0"}, {"LIGHTPATH_FAULT", "plan-delay:x"},
	} {
		_, err := loadConfig(environmentOf(k[0], k[1]))
		if err == nil {
			t.Errorf("%s=%s: accepted", k[0], k[1])
			continue
		}
		wantError(t, err, ErrInvalidUsage, k[0])
	}
	t.Setenv("LIGHTPATH_FABRIC", filepath.Join(t.TempDir(), "missing.yaml"))
	if _, err := Init(nil); err == nil || !strings.Contains(err.Error(), "LIGHTPATH_FABRIC") {
		t.Errorf("missing fabric file: %v", err)
	}
}

// TestDocumentation keeps docs/environment.md equal to the table in code.
func TestDocumentation(t *testing.T) {
	text, err := os.ReadFile("../docs/environment.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range Vars() {
		row := fmt.Sprintf("| `%s` | %s | %s | %s |", v.Name, strings.ReplaceAll(v.Type, "|", `\|`), strings.ReplaceAll(v.Default, "|", `\|`), v.Doc)
		if !strings.Contains(string(text), row+"\n") {
			t.Errorf("docs/environment.md lacks the row\n%s", row)
		}
	}
	for _, name := range frontVars {
		if !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("docs/environment.md does not say what %s is", name)
		}
	}
	said := map[string]bool{}
	for _, g := range ignoredVars {
		row := fmt.Sprintf("| `%s` | %s |", strings.Join(g.names, "` `"), g.why)
		if !strings.Contains(string(text), row+"\n") {
			t.Errorf("docs/environment.md lacks the row\n%s", row)
		}
		for _, name := range g.names {
			if said[name] || slices.Contains(frontVars, name) || slices.ContainsFunc(vars, func(v Var) bool { return v.Name == name }) {
				t.Errorf("%s is said to be ignored twice, or is read", name)
			}
			said[name] = true
		}
	}
}

// TestLogFailsNobody: what only says how to log is no reason to refuse a communicator, and is told in the log. Levels that
// NCCL has and Lightpath has not are levels.
func TestLogFailsNobody(t *testing.T) {
	for _, k := range [][2]string{
		{"NCCL_DEBUG", "LOUD"}, {"NCCL_DEBUG_TIMESTAMP_FORMAT", "%Q"}, {"NCCL_DEBUG_TIMESTAMP_FORMAT", "%"}, {"NCCL_DEBUG_TIMESTAMP_FORMAT", "%0f"},
		{"NCCL_DEBUG_TIMESTAMP_LEVELS", "LOUD"},
	} {
		path := filepath.Join(t.TempDir(), "log")
		c, err := loadConfig(environmentOf(k[0], k[1], "NCCL_DEBUG", "WARN", "NCCL_DEBUG_FILE", path))
		if err != nil {
			t.Errorf("%v: %v", k, err)
			continue
		}
		c.NewLog(0).Close()
		if text, err := os.ReadFile(path); err != nil || !bytes.Contains(text, []byte("NCCL WARN environment variable "+k[0]+": ")) {
			t.Errorf("%v: the log is %q, %v", k, text, err)
		}
	}
	for word, want := range map[string]log.Level{"attn": log.Warn, "ABORT": log.Info} {
		c, err := loadConfig(environmentOf("NCCL_DEBUG", word))
		if err != nil || c.Log.Level != want || len(c.Warnings()) != 0 {
			t.Errorf("%s is level %d, %v, %v", word, c.Log.Level, c.Warnings(), err)
		}
	}
	t.Setenv("NCCL_DEBUG", "VERSION")
	t.Setenv("NCCL_DEBUG_FILE", filepath.Join(t.TempDir(), "no", "such", "directory"))
	newWorld(t, 1)
}

// TestMisspeltVariables: a variable that looks like one of ours and is none is a warning, one of NCCL's is not.
func TestMisspeltVariables(t *testing.T) {
	t.Setenv("LIGHTPATH_TRANSPOR", "tcp")
	t.Setenv("LIGHTPATH_TEST_SOMETHING", "1")
	t.Setenv("NCCL_NO_SUCH", "1")
	c, err := LoadConfig()
	if err != nil {
		t.Fatal(err)
	}
	if w := c.Warnings(); len(w) != 1 || !strings.Contains(w[0], "LIGHTPATH_TRANSPOR set by environment to tcp: ignored, Lightpath has no such variable") {
		t.Errorf("%q", w)
	}
}

// TestLogKeepsSecrets: a communicator's log, however detailed, has nothing of its id.
func TestLogKeepsSecrets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	t.Setenv("NCCL_DEBUG", "TRACE")
	t.Setenv("NCCL_DEBUG_SUBSYS", "ALL")
	t.Setenv("NCCL_DEBUG_FILE", path)
	w := newWorld(t, 2)
	w.must(func(c *Comm) error { return Run([]Call{allReduce(c, make([]float32, 5))}) })
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Lightpath version " + Version, "nranks 2", "transport inproc", "algorithm"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the log does not say %q:\n%s", want, text)
		}
	}
	if exe, err := os.Executable(); err != nil || libraryPath() != exe {
		t.Errorf("loaded from %q, the test is %q (%v)", libraryPath(), exe, err)
	}
	_, s, err := parseID(&w.comms[0].args.ID)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(text, s[:]) || strings.Contains(string(text), fmt.Sprintf("%x", s[:])) {
		t.Error("the log has the secret")
	}
}

func TestIfaceAllowed(t *testing.T) {
	for _, k := range []struct {
		name, list string
		want       bool
	}{
		{"eth0", "", true}, {"eth0", "eth", true}, {"eth0", "=eth", false}, {"eth0", "=eth0", true}, {"eth0", "^eth", false},
		{"ib0", "^eth", true}, {"ib0", "eth,ib", true}, {"lo", "eth,ib", false}, {"eth1", "^=eth0", true}, {"eth0", "^=eth0", false},
	} {
		if got := ifaceAllowed(k.name, k.list); got != k.want {
			t.Errorf("%s in %q: %v", k.name, k.list, got)
		}
	}
}

func TestIfaceOrder(t *testing.T) {
	names := []string{"lo", "eth10", "eth2", "eth1", "ib0", "ibs1"}
	for list, want := range map[string]string{
		"eth": "eth1 eth2 eth10", "=ib0,eth2": "ib0 eth2", "ib,eth2,eth": "ib0 ibs1 eth2 eth1 eth10",
		"=eth": "", "wl": "", "=lo": "lo", "eth1": "eth1 eth10", "=eth1": "eth1",
	} {
		if got := strings.Join(ifaceOrder(slices.Clone(names), list), " "); got != want {
			t.Errorf("%s: %q, want %q", list, got, want)
		}
	}
}

// TestCommID: with NCCL_COMM_ID ranks find each other without an id being sent.
func TestCommID(t *testing.T) {
	t.Setenv("NCCL_COMM_ID", fmt.Sprintf("127.0.0.1:%d", freePort(t)))
	for range 2 {
		for r, err := range concurrently(t, 2, func(r int) error {
			id, err := NewUniqueID()
			if err != nil {
				return err
			}
			comms, err := Init([]InitArgs{{ID: id, Ranks: 2, Rank: r}})
			if err != nil {
				return err
			}
			defer func() { _ = comms[0].Destroy() }()
			return Run([]Call{allReduce(comms[0], make([]float32, 5))})
		}) {
			if err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		}
	}
	t.Setenv("NCCL_COMM_ID", "nowhere")
	_, err := NewUniqueID()
	wantError(t, err, ErrInvalidUsage, "NCCL_COMM_ID")
}

// TestVariablesInLog: what is set is named, and what is not read is named as that.
func TestVariablesInLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	for name, value := range map[string]string{
		"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": path, "LIGHTPATH_PLANES": "2", "NCCL_P2P_LEVEL": "SYS", "NCCL_CUMEM_ENABLE": "1", "NCCL_NTHREADS": "", "NCCL_NO_SUCH": "1",
	} {
		t.Setenv(name, value)
	}
	newWorld(t, 1)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"NCCL INFO LIGHTPATH_PLANES set by environment to 2.\n", "NCCL INFO NCCL_P2P_LEVEL set by environment to SYS.\n",
		"NCCL INFO NCCL_CUMEM_ENABLE set by environment to 1: ignored, LIGHTPATH_DEVICE_PATH says",
		"NCCL INFO NCCL_NO_SUCH set by environment to 1: ignored, Lightpath has no such variable.\n"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the log lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "NCCL_NTHREADS") {
		t.Error("an empty variable is named")
	}
}

// TestControlInterfaces: NCCL_OOB_NET_IFNAME comes before NCCL_SOCKET_IFNAME.
func TestControlInterfaces(t *testing.T) {
	for _, k := range [][3]string{{"eth", "", "eth"}, {"eth", "=lo", "=lo"}, {"", "lo", "lo"}} {
		c, err := loadConfig(environmentOf("NCCL_SOCKET_IFNAME", k[0], "NCCL_OOB_NET_IFNAME", k[1]))
		if err != nil || c.controlIf() != k[2] {
			t.Errorf("%v: %q, %v", k, c.controlIf(), err)
		}
	}
}
