package shim_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lightpath/internal/assert"
	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/bootstrap"
	"lightpath/shim/calls"
	"lightpath/shim/errdefs"
	"lightpath/shim/membership"
	"lightpath/shim/shimtest"
)

// TestMissingFabric: the error names the variable.
func TestMissingFabric(t *testing.T) {
	t.Setenv("LIGHTPATH_FABRIC", filepath.Join(t.TempDir(), "missing.yaml"))
	if _, err := shim.Init(nil); err == nil || !strings.Contains(err.Error(), "LIGHTPATH_FABRIC") {
		t.Errorf("missing fabric file: %v", err)
	}
}

// TestNoLogFile checks that a log file that cannot be opened is no error.
func TestNoLogFile(t *testing.T) {
	t.Setenv("NCCL_DEBUG", "VERSION")
	t.Setenv("NCCL_DEBUG_FILE", filepath.Join(t.TempDir(), "no", "such", "directory"))
	shimtest.NewWorld(t, 1)
}

// TestLogKeepsSecrets: a communicator's log, however detailed, has nothing of its id.
func TestLogKeepsSecrets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	t.Setenv("NCCL_DEBUG", "TRACE")
	t.Setenv("NCCL_DEBUG_SUBSYS", "ALL")
	t.Setenv("NCCL_DEBUG_FILE", path)
	w := shimtest.NewWorld(t, 2)
	w.Must(func(c *shim.Comm) error { return shim.Run([]calls.Call{shimtest.AllReduce(c, make([]float32, 5))}) })
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Contains(t, string(text), "Lightpath version "+shim.Version, "nranks 2", "transport inproc", "algorithm")
	if exe, err := os.Executable(); err != nil || !strings.Contains(string(text),
		"Lightpath version "+shim.Version+", "+exe+"\n") {
		t.Errorf("the log does not say that the library is in %q (%v):\n%s", exe, err, text)
	}
	_, s, err := bootstrap.ParseID(&membership.Of(w.Comms[0]).Args.ID)
	require.NoError(t, err)
	if bytes.Contains(text, s[:]) || strings.Contains(string(text), fmt.Sprintf("%x", s[:])) {
		t.Error("the log has the secret")
	}
}

// TestVariablesInLog checks that the log names the variables that are set, and the ones among them that are not read.
func TestVariablesInLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	for name, value := range map[string]string{
		"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": path, "LIGHTPATH_PLANES": "2", "NCCL_P2P_LEVEL": "SYS",
		"NCCL_CUMEM_ENABLE": "1", "NCCL_NTHREADS": "", "NCCL_NO_SUCH": "1",
	} {
		t.Setenv(name, value)
	}
	shimtest.NewWorld(t, 1)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Contains(t, string(text), "NCCL INFO LIGHTPATH_PLANES set by environment to 2.\n",
		"NCCL INFO NCCL_P2P_LEVEL set by environment to SYS.\n",
		"NCCL INFO NCCL_CUMEM_ENABLE set by environment to 1: ignored, LIGHTPATH_DEVICE_PATH says",
		"NCCL INFO NCCL_NO_SUCH set by environment to 1: ignored, Lightpath has no such variable.\n")
	if strings.Contains(string(text), "NCCL_NTHREADS") {
		t.Error("an empty variable is named")
	}
}

// TestCommID: with NCCL_COMM_ID ranks find each other without an id being sent.
func TestCommID(t *testing.T) {
	t.Setenv("NCCL_COMM_ID", fmt.Sprintf("127.0.0.1:%d", shimtest.FreePort(t)))
	for range 2 {
		shimtest.NoErrors(t, shimtest.Concurrently(t, 2, func(r int) error {
			id, err := shim.NewUniqueID()
			if err != nil {
				return err
			}
			comms, err := shim.Init([]shim.InitArgs{{ID: id, Ranks: 2, Rank: r}})
			if err != nil {
				return err
			}
			defer func() { _ = comms[0].Destroy() }()
			return shim.Run([]calls.Call{shimtest.AllReduce(comms[0], make([]float32, 5))})
		}))
	}
	t.Setenv("NCCL_COMM_ID", "nowhere")
	_, err := shim.NewUniqueID()
	shimtest.WantError(t, err, errdefs.ErrInvalidUsage, "NCCL_COMM_ID")
}
