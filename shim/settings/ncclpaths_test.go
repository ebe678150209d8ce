package settings

import (
	"strings"
	"testing"
)

// TestNCCLPaths checks that values of NCCL's variables mean the same as in NCCL, and that values unknown to NCCL cause
// a warning.
func TestNCCLPaths(t *testing.T) {
	for _, k := range []struct {
		name, value string
		want        NCCLPaths
		warns       bool
	}{
		{"NCCL_SHM_DISABLE", "1", NCCLPaths{NoShared: "NCCL_SHM_DISABLE=1"}, false},
		{"NCCL_SHM_DISABLE", "0x1", NCCLPaths{NoShared: "NCCL_SHM_DISABLE=1"}, false},
		{"NCCL_SHM_DISABLE", "0", NCCLPaths{}, false},
		{"NCCL_SHM_DISABLE", "2", NCCLPaths{}, false},
		{"NCCL_SHM_DISABLE", "true", NCCLPaths{}, true},
		{"NCCL_IB_DISABLE", "2", NCCLPaths{NoRDMA: "NCCL_IB_DISABLE=2"}, false},
		{"NCCL_IB_DISABLE", "0", NCCLPaths{}, false},
		{"NCCL_NET", "socket", NCCLPaths{Net: netSocket}, false},
		{"NCCL_NET", "ib", NCCLPaths{Net: netIB}, false},
		{"NCCL_P2P_DISABLE", "1", NCCLPaths{NoDirect: "NCCL_P2P_DISABLE=1"}, false},
		{"NCCL_P2P_LEVEL", "LOC", NCCLPaths{NoDirect: "NCCL_P2P_LEVEL=LOC"}, false},
		{"NCCL_P2P_LEVEL", "0", NCCLPaths{NoDirect: "NCCL_P2P_LEVEL=0"}, false},
		{"NCCL_P2P_LEVEL", "NVL", NCCLPaths{}, false},
		{"NCCL_P2P_LEVEL", "1", NCCLPaths{}, false},
		{"NCCL_P2P_LEVEL", "99", NCCLPaths{}, false},
		{"NCCL_P2P_LEVEL", "loc", NCCLPaths{}, true},
		{"NCCL_P2P_LEVEL", "-1", NCCLPaths{}, true},
		{"NCCL_P2P_LEVEL", "0LOC", NCCLPaths{}, true},
		{"NCCL_NET_GDR_LEVEL", "LOC", NCCLPaths{NoRemote: "NCCL_NET_GDR_LEVEL=LOC"}, false},
		{"NCCL_NET_GDR_LEVEL", "C2C", NCCLPaths{NoRemote: "NCCL_NET_GDR_LEVEL=C2C"}, false},
		{"NCCL_NET_GDR_LEVEL", "0", NCCLPaths{NoRemote: "NCCL_NET_GDR_LEVEL=0"}, false},
		{"NCCL_NET_GDR_LEVEL", "PIX", NCCLPaths{}, false},
		{"NCCL_NET_GDR_LEVEL", "SYS", NCCLPaths{}, false},
		{"NCCL_NET_GDR_LEVEL", "1", NCCLPaths{}, false},
		{"NCCL_NET_GDR_LEVEL", "FAR", NCCLPaths{}, true},
		{"NCCL_NET_GDR_READ", "0", NCCLPaths{NoRemote: "NCCL_NET_GDR_READ=0"}, false},
		{"NCCL_NET_GDR_READ", "1", NCCLPaths{}, false},
		{"NCCL_DMABUF_ENABLE", "0", NCCLPaths{NoRemote: "NCCL_DMABUF_ENABLE=0"}, false},
		{"NCCL_DMABUF_ENABLE", "1", NCCLPaths{}, false},
		{"NCCL_DMABUF_ENABLE", "no", NCCLPaths{}, true},
	} {
		c, err := Of(k.name, k.value)
		if err != nil || c.NCCL != k.want {
			t.Errorf("%s=%s: %+v, %v", k.name, k.value, c.NCCL, err)
			continue
		}
		if w := c.Warnings(); k.warns != (len(w) == 1 && strings.Contains(w[0], k.name) && strings.Contains(w[0], k.value)) {
			t.Errorf("%s=%s: warnings %q", k.name, k.value, w)
		}
	}
	c, err := Of("NCCL_NET", "AWS Libfabric")
	if err != nil || c.Network() != TransportNet || c.PluginNet() != "AWS Libfabric" {
		t.Errorf("a network of a plugin: %+v, %v", c, err)
	}
	c, err = Of("NCCL_NET", "AWS Libfabric", "LIGHTPATH_NCCL_FALLBACK_LIB", "/other")
	if err != nil || c.NCCL.Net != "" || len(c.Warnings()) != 1 {
		t.Errorf("a network of the other library: %+v, %v", c, err)
	}
	_, err = Of("NCCL_NET", "IB", "NCCL_IB_DISABLE", "1")
	refused(t, err, "NCCL_NET=IB", "NCCL_IB_DISABLE=1")
}

// TestOwnVariablesFirst: what Lightpath's variables say, NCCL's do not change; where they contradict, that is told
// once.
func TestOwnVariablesFirst(t *testing.T) {
	for _, k := range []struct{ own, value, name, other, warns string }{
		{"LIGHTPATH_TRANSPORT", "shm", "NCCL_SHM_DISABLE", "1",
			"NCCL_SHM_DISABLE=1 is not used: LIGHTPATH_TRANSPORT=shm comes before it."},
		{"LIGHTPATH_TRANSPORT", "tcp", "NCCL_NET", "IB", "NCCL_NET=IB is not used: LIGHTPATH_TRANSPORT=tcp"},
		{"LIGHTPATH_TRANSPORT", "tcp", "NCCL_NET", "AWS", "NCCL_NET=AWS is not used: LIGHTPATH_TRANSPORT=tcp"},
		{"LIGHTPATH_TRANSPORT", "net", "NCCL_NET", "IB", "NCCL_NET=IB is not used: LIGHTPATH_TRANSPORT=net"},
		{"LIGHTPATH_TRANSPORT", "net", "NCCL_SHM_DISABLE", "1", ""},
		{"LIGHTPATH_TRANSPORT", "rdma", "NCCL_NET", "Socket", "NCCL_NET=Socket is not used: LIGHTPATH_TRANSPORT=rdma"},
		{"LIGHTPATH_TRANSPORT", "rdma", "NCCL_IB_DISABLE", "1", "NCCL_IB_DISABLE=1 is not used: LIGHTPATH_TRANSPORT=rdma"},
		{"LIGHTPATH_TRANSPORT", "tcp", "NCCL_SHM_DISABLE", "1", ""},
		{"LIGHTPATH_TRANSPORT", "tcp", "NCCL_NET", "Socket", ""},
		{"LIGHTPATH_TRANSPORT", "rdma", "NCCL_NET", "IB", ""},
		{"LIGHTPATH_TRANSPORT", "inproc", "NCCL_NET", "IB", ""},
		{"LIGHTPATH_DEVICE_PATH", "direct", "NCCL_P2P_LEVEL", "LOC",
			"NCCL_P2P_LEVEL=LOC is not used: LIGHTPATH_DEVICE_PATH=direct"},
		{"LIGHTPATH_DEVICE_PATH", "rdma", "NCCL_DMABUF_ENABLE", "0",
			"NCCL_DMABUF_ENABLE=0 is not used: LIGHTPATH_DEVICE_PATH=rdma"},
		{"LIGHTPATH_DEVICE_PATH", "rdma", "NCCL_P2P_DISABLE", "1", ""},
		{"LIGHTPATH_DEVICE_PATH", "staged", "NCCL_P2P_DISABLE", "1", ""},
	} {
		c, err := Of(k.own, k.value, k.name, k.other)
		if err != nil || c.NCCL != (NCCLPaths{}) {
			t.Errorf("%+v: %+v, %v", k, c.NCCL, err)
			continue
		}
		w := c.Warnings()
		if k.warns == "" && len(w) != 0 || k.warns != "" && (len(w) != 1 || !strings.HasPrefix(w[0], k.warns)) {
			t.Errorf("%+v: warnings %q", k, w)
		}
		plain, err := Of(k.own, k.value)
		if err != nil || plain.Agreed() != c.Agreed() {
			t.Errorf("%+v: ranks would differ, %q and %q, %v", k, plain.Agreed(), c.Agreed(), err)
		}
	}
}
