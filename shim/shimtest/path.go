package shimtest

import (
	"testing"
)

// UsePath points the environment at a path for the bytes of ranks. For "rdma" the ranks must be goroutines.
func UsePath(t *testing.T, path string, ranks int) {
	t.Helper()
	switch path {
	case "arena":
		t.Setenv("LIGHTPATH_TRANSPORT", "shm")
	case "regions": // as "arena", in memory as ncclMemAlloc makes it
		t.Setenv("LIGHTPATH_TRANSPORT", "shm")
		t.Setenv("LP_TEST_MEMORY", "region")
	case "frames":
		t.Setenv("LIGHTPATH_TRANSPORT", "shm")
		t.Setenv("LIGHTPATH_ALGORITHM", "allreduce:ring")
	case "tcp":
		t.Setenv("LIGHTPATH_TRANSPORT", "tcp")
	case "rdma":
		UseRDMA(t, 2, 2)
	case "circuits":
		UseEmulator(t, ranks, 2, nil)
		t.Setenv("LIGHTPATH_PLANNER", "perstep")
	case "elsewhere":
		UseControllers(t, ranks, 2, SiteOptions{})
	case "kernel":
		UseKernelPlanes(t, ranks, 2, 5e8)
	default:
		t.Fatalf("no path %s", path)
	}
}
