package shim_test

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/bootstrap"
	"lightpath/shim/calls"
	"lightpath/shim/endpoints"
	"lightpath/shim/errdefs"
	"lightpath/shim/settings"
	"lightpath/shim/shimtest"
)

// TestTransportOfNCCLPaths: what carries the packet planes, by where ranks are and what is set.
func TestTransportOfNCCLPaths(t *testing.T) {
	tables := map[string][]bootstrap.Hello{
		"process": {{Process: 1, Host: "a"}, {Process: 1, Host: "a"}},
		"host":    {{Process: 1, Host: "a"}, {Process: 2, Host: "a"}},
		"hosts":   {{Process: 1, Host: "a"}, {Process: 2, Host: "b"}},
	}
	for _, k := range []struct {
		env                  []string
		process, host, hosts string
	}{
		{nil, "inproc", "shm", "tcp"},
		{[]string{"NCCL_SHM_DISABLE", "1"}, "inproc", "tcp", "tcp"},
		{[]string{"NCCL_NET", "Socket"}, "inproc", "shm", "tcp"},
		{[]string{"NCCL_NET", "IB"}, "inproc", "shm", "rdma"},
		{[]string{"NCCL_NET", "IB", "NCCL_SHM_DISABLE", "1"}, "inproc", "rdma", "rdma"},
		{[]string{"NCCL_NET", "IB", "NCCL_SHM_DISABLE", "1", "LIGHTPATH_TRANSPORT", "ebpf"}, "inproc", "rdma", "rdma"},
		{[]string{"NCCL_IB_DISABLE", "1"}, "inproc", "shm", "tcp"},
		{[]string{"NCCL_NET", "IB", "NCCL_SHM_DISABLE", "1", "LIGHTPATH_TRANSPORT", "tcp"}, "tcp", "tcp", "tcp"},
	} {
		c, err := settings.Of(k.env...)
		require.NoError(t, err)
		for where, want := range map[string]string{"process": k.process, "host": k.host, "hosts": k.hosts} {
			if got, err := endpoints.ChooseTransport(tables[where], c); got != want || err != nil {
				t.Errorf("%v in one %s: %s, %v, want %s", k.env, where, got, err, want)
			}
		}
	}
}

// TestNCCLPathsDiffer: ranks of which some have a network's setting and others not refuse each other by its name.
func TestNCCLPathsDiffer(t *testing.T) {
	for _, k := range [][2]string{{"NCCL_SHM_DISABLE", "1"}, {"NCCL_NET", "IB"}, {"NCCL_NET", "Socket"}} {
		shimtest.WantErrors(t, ranksWith(t, 2, func(r int) []string {
			if r == 1 {
				return k[:]
			}
			return nil
		}), errdefs.ErrInvalidUsage, k[0]+"="+k[1], "rank 0", "rank 1")
	}
}

// ranksWith makes a communicator whose ranks have variables of their own, and destroys it; it returns what ranks say.
func ranksWith(t *testing.T, n int, environment func(r int) []string) []error {
	t.Helper()
	id, err := shim.NewUniqueID()
	require.NoError(t, err)
	comms := make([]*shim.Comm, n)
	errs := shimtest.Concurrently(t, n, func(r int) error {
		cfg, err := settings.Of(append(environment(r), "LIGHTPATH_TIMEOUT", "60s")...)
		if err != nil {
			return err
		}
		c, err := shimtest.InitOne(shim.InitArgs{ID: id, Ranks: n, Rank: r, Device: r}, cfg)
		if err != nil {
			return err
		}
		comms[r] = c
		if calls.FactsOf(c).Launches == calls.ByPeers {
			err = errors.New("the devices reach each other")
		}
		return errors.Join(err, c.Destroy())
	})
	for _, c := range comms {
		if c != nil {
			<-c.Released() // it uses the driver until then
		}
	}
	return errs
}

// TestNoDirectOnOneRank: where one rank may not have its device reached, none has.
func TestNoDirectOnOneRank(t *testing.T) {
	shimtest.UsePeers(t, 2, 1)
	for _, off := range []bool{false, true} {
		for r, err := range ranksWith(t, 2, func(r int) []string {
			env := []string{"LIGHTPATH_DEVICE_EXCHANGE", "1M"}
			if off && r == 1 {
				env = append(env, "NCCL_P2P_DISABLE", "1")
			}
			return env
		}) {
			if direct := err != nil && strings.Contains(err.Error(), "reach each other"); err != nil &&
				!direct || direct == off {
				t.Errorf("off %v, rank %d: %v", off, r, err)
			}
		}
	}
}

// TestNoSharedMemory: processes of one host with NCCL_SHM_DISABLE=1 go on, over tcp; with NCCL_NET=IB too, where
// nothing can be RDMA, they say so.
func TestNoSharedMemory(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	for name, value := range map[string]string{"NCCL_SHM_DISABLE": "1", "NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": log,
		"LIGHTPATH_TIMEOUT": "60s"} {
		t.Setenv(name, value)
	}
	shimtest.StartRanks(t, 2)
	text, err := os.ReadFile(log)
	if err != nil || strings.Count(string(text), "transport tcp planes 1") != 2 {
		t.Errorf("the log is %s, %v", text, err)
	}
	t.Setenv("NCCL_NET", "IB")
	id, err := shim.NewUniqueID()
	require.NoError(t, err)
	exe, err := os.Executable()
	require.NoError(t, err)
	said := shimtest.Concurrently(t, 2, func(r int) error {
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), "LP_TEST_PROGRAM=rank", fmt.Sprintf("LP_TEST_RANK=%d 2", r),
			"LP_TEST_ID="+hex.EncodeToString(id[:]))
		out, _ := cmd.CombinedOutput()
		return errors.New(string(out))
	})
	// One that goes may take its last words with it: the first to fail has its own.
	why := "transport rdma (NCCL_NET=IB): this program holds no RDMA verbs"
	if !strings.Contains(said[0].Error()+said[1].Error(), why) {
		t.Errorf("ranks say %v and %v", said[0], said[1])
	}
	for r, err := range said {
		if !strings.Contains(err.Error(), "init: ") {
			t.Errorf("rank %d says %v", r, err)
		}
	}
}
