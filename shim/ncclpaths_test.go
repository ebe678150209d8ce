package shim

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestNCCLPaths: values of NCCL's variables mean what they mean to NCCL, and those that mean nothing to it are told.
func TestNCCLPaths(t *testing.T) {
	for _, k := range []struct {
		name, value string
		want        ncclPaths
		warns       bool
	}{
		{"NCCL_SHM_DISABLE", "1", ncclPaths{noShared: "NCCL_SHM_DISABLE=1"}, false},
		{"NCCL_SHM_DISABLE", "0x1", ncclPaths{noShared: "NCCL_SHM_DISABLE=1"}, false},
		{"NCCL_SHM_DISABLE", "0", ncclPaths{}, false},
		{"NCCL_SHM_DISABLE", "2", ncclPaths{}, false},
		{"NCCL_SHM_DISABLE", "true", ncclPaths{}, true},
		{"NCCL_IB_DISABLE", "2", ncclPaths{noRDMA: "NCCL_IB_DISABLE=2"}, false},
		{"NCCL_IB_DISABLE", "0", ncclPaths{}, false},
		{"NCCL_NET", "socket", ncclPaths{net: netSocket}, false},
		{"NCCL_NET", "ib", ncclPaths{net: netIB}, false},
		{"NCCL_P2P_DISABLE", "1", ncclPaths{noDirect: "NCCL_P2P_DISABLE=1"}, false},
		{"NCCL_P2P_LEVEL", "LOC", ncclPaths{noDirect: "NCCL_P2P_LEVEL=LOC"}, false},
		{"NCCL_P2P_LEVEL", "0", ncclPaths{noDirect: "NCCL_P2P_LEVEL=0"}, false},
		{"NCCL_P2P_LEVEL", "NVL", ncclPaths{}, false},
		{"NCCL_P2P_LEVEL", "1", ncclPaths{}, false},
		{"NCCL_P2P_LEVEL", "99", ncclPaths{}, false},
		{"NCCL_P2P_LEVEL", "loc", ncclPaths{}, true},
		{"NCCL_P2P_LEVEL", "-1", ncclPaths{}, true},
		{"NCCL_P2P_LEVEL", "0LOC", ncclPaths{}, true},
		{"NCCL_NET_GDR_LEVEL", "LOC", ncclPaths{noRemote: "NCCL_NET_GDR_LEVEL=LOC"}, false},
		{"NCCL_NET_GDR_LEVEL", "C2C", ncclPaths{noRemote: "NCCL_NET_GDR_LEVEL=C2C"}, false},
		{"NCCL_NET_GDR_LEVEL", "0", ncclPaths{noRemote: "NCCL_NET_GDR_LEVEL=0"}, false},
		{"NCCL_NET_GDR_LEVEL", "PIX", ncclPaths{}, false},
		{"NCCL_NET_GDR_LEVEL", "SYS", ncclPaths{}, false},
		{"NCCL_NET_GDR_LEVEL", "1", ncclPaths{}, false},
		{"NCCL_NET_GDR_LEVEL", "FAR", ncclPaths{}, true},
		{"NCCL_NET_GDR_READ", "0", ncclPaths{noRemote: "NCCL_NET_GDR_READ=0"}, false},
		{"NCCL_NET_GDR_READ", "1", ncclPaths{}, false},
		{"NCCL_DMABUF_ENABLE", "0", ncclPaths{noRemote: "NCCL_DMABUF_ENABLE=0"}, false},
		{"NCCL_DMABUF_ENABLE", "1", ncclPaths{}, false},
		{"NCCL_DMABUF_ENABLE", "no", ncclPaths{}, true},
	} {
		c, err := loadConfig(environmentOf(k.name, k.value))
		if err != nil || c.nccl != k.want {
			t.Errorf("%s=%s: %+v, %v", k.name, k.value, c.nccl, err)
			continue
		}
		if w := c.Warnings(); k.warns != (len(w) == 1 && strings.Contains(w[0], k.name) && strings.Contains(w[0], k.value)) {
			t.Errorf("%s=%s: warnings %q", k.name, k.value, w)
		}
	}
	_, err := loadConfig(environmentOf("NCCL_NET", "AWS Libfabric"))
	wantError(t, err, ErrInvalidUsage, "NCCL_NET", "AWS Libfabric", "no network plugins")
	c, err := loadConfig(environmentOf("NCCL_NET", "AWS Libfabric", "LIGHTPATH_NCCL_FALLBACK_LIB", "/other"))
	if err != nil || c.nccl.net != "" || len(c.Warnings()) != 1 {
		t.Errorf("a network of the other library: %+v, %v", c, err)
	}
	_, err = loadConfig(environmentOf("NCCL_NET", "IB", "NCCL_IB_DISABLE", "1"))
	wantError(t, err, ErrInvalidUsage, "NCCL_NET=IB", "NCCL_IB_DISABLE=1")
}

// TestOwnVariablesFirst: what Lightpath's variables say, NCCL's do not change; where they contradict, that is told once.
func TestOwnVariablesFirst(t *testing.T) {
	for _, k := range []struct{ own, value, name, other, warns string }{
		{"LIGHTPATH_TRANSPORT", "shm", "NCCL_SHM_DISABLE", "1", "NCCL_SHM_DISABLE=1 is not used: LIGHTPATH_TRANSPORT=shm comes before it."},
		{"LIGHTPATH_TRANSPORT", "tcp", "NCCL_NET", "IB", "NCCL_NET=IB is not used: LIGHTPATH_TRANSPORT=tcp"},
		{"LIGHTPATH_TRANSPORT", "rdma", "NCCL_NET", "Socket", "NCCL_NET=Socket is not used: LIGHTPATH_TRANSPORT=rdma"},
		{"LIGHTPATH_TRANSPORT", "rdma", "NCCL_IB_DISABLE", "1", "NCCL_IB_DISABLE=1 is not used: LIGHTPATH_TRANSPORT=rdma"},
		{"LIGHTPATH_TRANSPORT", "tcp", "NCCL_SHM_DISABLE", "1", ""},
		{"LIGHTPATH_TRANSPORT", "tcp", "NCCL_NET", "Socket", ""},
		{"LIGHTPATH_TRANSPORT", "rdma", "NCCL_NET", "IB", ""},
		{"LIGHTPATH_TRANSPORT", "inproc", "NCCL_NET", "IB", ""},
		{"LIGHTPATH_DEVICE_PATH", "direct", "NCCL_P2P_LEVEL", "LOC", "NCCL_P2P_LEVEL=LOC is not used: LIGHTPATH_DEVICE_PATH=direct"},
		{"LIGHTPATH_DEVICE_PATH", "rdma", "NCCL_DMABUF_ENABLE", "0", "NCCL_DMABUF_ENABLE=0 is not used: LIGHTPATH_DEVICE_PATH=rdma"},
		{"LIGHTPATH_DEVICE_PATH", "rdma", "NCCL_P2P_DISABLE", "1", ""},
		{"LIGHTPATH_DEVICE_PATH", "staged", "NCCL_P2P_DISABLE", "1", ""},
	} {
		c, err := loadConfig(environmentOf(k.own, k.value, k.name, k.other))
		if err != nil || c.nccl != (ncclPaths{}) {
			t.Errorf("%+v: %+v, %v", k, c.nccl, err)
			continue
		}
		w := c.Warnings()
		if k.warns == "" && len(w) != 0 || k.warns != "" && (len(w) != 1 || !strings.HasPrefix(w[0], k.warns)) {
			t.Errorf("%+v: warnings %q", k, w)
		}
		plain, err := loadConfig(environmentOf(k.own, k.value))
		if err != nil || plain.settings() != c.settings() {
			t.Errorf("%+v: ranks would differ, %q and %q, %v", k, plain.settings(), c.settings(), err)
		}
	}
}

// TestTransportOfNCCLPaths: what carries the packet planes, by where ranks are and what is set.
func TestTransportOfNCCLPaths(t *testing.T) {
	tables := map[string][]hello{
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
		c, err := loadConfig(environmentOf(k.env...))
		if err != nil {
			t.Fatal(err)
		}
		for where, want := range map[string]string{"process": k.process, "host": k.host, "hosts": k.hosts} {
			if got, err := chooseTransport(tables[where], c); got != want || err != nil {
				t.Errorf("%v in one %s: %s, %v, want %s", k.env, where, got, err, want)
			}
		}
	}
	ib, err := loadConfig(environmentOf("NCCL_NET", "IB"))
	if err != nil {
		t.Fatal(err)
	}
	table := []hello{{Rank: 0, Identity: "a", Host: "a"}, {Rank: 1, Identity: "b", Host: "b", Process: 1}}
	if why := whyNotGPUDirect(table, ib, false); why != "" {
		t.Errorf("NCCL_NET=IB between hosts: %s", why)
	}
}

// TestNCCLPathsDiffer: ranks of which some have a network's setting and others not refuse each other by its name.
func TestNCCLPathsDiffer(t *testing.T) {
	for _, k := range [][2]string{{"NCCL_SHM_DISABLE", "1"}, {"NCCL_NET", "IB"}, {"NCCL_NET", "Socket"}} {
		for _, err := range ranksWith(t, 2, func(r int) []string {
			if r == 1 {
				return k[:]
			}
			return nil
		}) {
			wantError(t, err, ErrInvalidUsage, k[0]+"="+k[1], "rank 0", "rank 1")
		}
	}
}

// ranksWith makes a communicator whose ranks have variables of their own, and destroys it; it returns what ranks say.
func ranksWith(t *testing.T, n int, environment func(r int) []string) []error {
	t.Helper()
	id, err := NewUniqueID()
	if err != nil {
		t.Fatal(err)
	}
	return concurrently(t, n, func(r int) error {
		cfg, err := loadConfig(environmentOf(append(environment(r), "LIGHTPATH_TIMEOUT", "60s")...))
		if err != nil {
			return err
		}
		c, err := initOne(InitArgs{ID: id, Ranks: n, Rank: r, Device: r}, cfg, nil)
		if err != nil {
			return err
		}
		if c.dev != nil && c.dev.direct != nil {
			err = errors.New("the devices reach each other")
		}
		return errors.Join(err, c.Destroy())
	})
}

// TestNoDirectOnOneRank: where one rank may not have its device reached, none has.
func TestNoDirectOnOneRank(t *testing.T) {
	usePeers(t, 2, 1)
	for _, off := range []bool{false, true} {
		for r, err := range ranksWith(t, 2, func(r int) []string {
			env := []string{"LIGHTPATH_DEVICE_EXCHANGE", "1M"}
			if off && r == 1 {
				env = append(env, "NCCL_P2P_DISABLE", "1")
			}
			return env
		}) {
			if direct := err != nil && strings.Contains(err.Error(), "reach each other"); err != nil && !direct || direct == off {
				t.Errorf("off %v, rank %d: %v", off, r, err)
			}
		}
	}
}

// TestNoSharedMemory: processes of one host with NCCL_SHM_DISABLE=1 go on, over tcp; with NCCL_NET=IB too, where nothing can be
// RDMA, they say so.
func TestNoSharedMemory(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	for name, value := range map[string]string{"NCCL_SHM_DISABLE": "1", "NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": log, "LIGHTPATH_TIMEOUT": "60s"} {
		t.Setenv(name, value)
	}
	rankProcesses(t, 2)
	text, err := os.ReadFile(log)
	if err != nil || strings.Count(string(text), "transport tcp planes 1") != 2 {
		t.Errorf("the log is %s, %v", text, err)
	}
	t.Setenv("NCCL_NET", "IB")
	id, err := NewUniqueID()
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	said := concurrently(t, 2, func(r int) error {
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), "LP_TEST_PROGRAM=rank", fmt.Sprintf("LP_TEST_RANK=%d 2", r), "LP_TEST_ID="+hex.EncodeToString(id[:]))
		out, _ := cmd.CombinedOutput()
		return errors.New(string(out))
	})
	// One that goes may take its last words with it: the first to fail has its own.
	if why := "transport rdma (NCCL_NET=IB): this program holds no RDMA verbs"; !strings.Contains(said[0].Error()+said[1].Error(), why) {
		t.Errorf("ranks say %v and %v", said[0], said[1])
	}
	for r, err := range said {
		if !strings.Contains(err.Error(), "init: ") {
			t.Errorf("rank %d says %v", r, err)
		}
	}
}
