package settings

import "slices"

// Ignored is a group of NCCL's variables that Lightpath knows and does not read, with the reason.
type Ignored struct {
	Why   string
	Names []string
}

// IgnoredVars returns all groups. If one of their variables is set, the log says that it is ignored and why.
func IgnoredVars() []Ignored { return slices.Clone(ignoredVars) }

var ignoredVars = []Ignored{
	{"plans and LIGHTPATH_ALGORITHM choose the algorithm", []string{
		"NCCL_ALGO", "NCCL_PROTO", "NCCL_LL_THRESHOLD", "NCCL_TREE_THRESHOLD", "NCCL_SINGLE_RING_THRESHOLD",
		"NCCL_P2P_LL_THRESHOLD",
		"NCCL_CROSS_NIC", "NCCL_GRAPH_FILE",
	}},
	{"there are no channels, thread blocks or staging buffers to size", []string{
		"NCCL_BUFFSIZE", "NCCL_NTHREADS", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_MIN_CTAS", "NCCL_MAX_CTAS",
		"NCCL_CGA_CLUSTER_SIZE",
		"NCCL_CTA_POLICY", "NCCL_NCHANNELS_PER_NET_PEER", "NCCL_NVLS_NCHANNELS", "NCCL_P2P_NET_CHUNKSIZE",
		"NCCL_ALLOC_P2P_NET_LL_BUFFERS",
		"NCCL_NUM_RMA_CTX", "NCCL_MAX_P2P_PEERS",
	}},
	{"LIGHTPATH_DEVICE_PATH says how ranks exchange device memory", []string{
		"NCCL_COLLNET_ENABLE", "NCCL_COLLNET_NODE_THRESHOLD", "NCCL_CUMEM_ENABLE", "NCCL_CUMEM_HOST_ENABLE",
		"NCCL_GRAPH_MIXING_SUPPORT", "NCCL_GRAPH_REGISTER", "NCCL_GRAPH_STREAM_ORDERING", "NCCL_IB_CUDA_SUPPORT",
		"NCCL_LAUNCH_MODE",
		"NCCL_LAUNCH_ORDER_IMPLICIT", "NCCL_LAUNCH_RACE_FATAL", "NCCL_LEGACY_CUDA_REGISTER", "NCCL_LOCAL_REGISTER",
		"NCCL_MEM_SYNC_DOMAIN",
		"NCCL_MNNVL_CLIQUE_ID", "NCCL_MNNVL_ENABLE", "NCCL_MNNVL_UUID", "NCCL_NET_GDR_C2C",
		"NCCL_NVB_DISABLE", "NCCL_NVLS_ENABLE", "NCCL_P2P_DIRECT_DISABLE",
		"NCCL_PXN_C2C", "NCCL_PXN_DISABLE", "NCCL_P2P_PXN_LEVEL", "NCCL_SET_STACK_SIZE", "NCCL_SYM_GIN_KERNELS_ENABLE",
		"NCCL_WIN_ENABLE",
		"NCCL_IGNORE_COLLNET_MISMATCH",
	}},
	{"ranks may share a device without a setting", []string{"NCCL_MULTI_RANK_GPU_ENABLE"}},
	{"LIGHTPATH_TRANSPORT and LIGHTPATH_PLANES choose the data path", []string{
		"NCCL_GIN_PLUGIN", "NCCL_RMA_PLUGIN", "NCCL_NETDEVS_POLICY",
		"NCCL_NET_MERGE_POLICY", "NCCL_IB_MERGE_NICS", "NCCL_NET_SHARED_BUFFERS", "NCCL_NET_SHARED_COMMS",
		"NCCL_IGNORE_NET_MISMATCH",
		"NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD", "NCCL_RUNTIME_CONNECT", "NCCL_OOB_NET_ENABLE",
	}},
	{"a plane has one queue pair per pair of ranks, set up by the NCCL_IB_ variables that are read", []string{
		"NCCL_IB_ADAPTIVE_ROUTING", "NCCL_IB_ADDR_FAMILY", "NCCL_IB_ADDR_RANGE", "NCCL_IB_AR_THRESHOLD", "NCCL_IB_ECE_ENABLE",
		"NCCL_IB_FIFO_TC",
		"NCCL_IB_OOO_RQ", "NCCL_IB_PCI_RELAXED_ORDERING", "NCCL_IB_QPS_PER_CONNECTION", "NCCL_IB_RETURN_ASYNC_EVENTS",
		"NCCL_IB_ROCE_VERSION_NUM", "NCCL_IB_SPLIT_DATA_ON_QPS",
	}},
	{"LIGHTPATH_TIMEOUT bounds every wait, and the rendezvous needs no tuning", []string{
		"NCCL_SOCKET_FAMILY", "NCCL_SOCKET_MAGIC", "NCCL_SOCKET_POLL_TIMEOUT_MSEC", "NCCL_SOCKET_RETRY_CNT",
		"NCCL_SOCKET_RETRY_SLEEP_MSEC",
		"NCCL_UID_STAGGER_RATE", "NCCL_UID_STAGGER_THRESHOLD", "NCCL_RAS_TIMEOUT_FACTOR", "NCCL_IPC_USE_ABSTRACT_SOCKET",
	}},
	{"arguments are always checked, on all ranks too", []string{
		"NCCL_CHECKS_DISABLE", "NCCL_CHECK_MODE", "NCCL_CHECK_POINTERS",
	}},
	{"a fabric file and lightpath topo describe the network", []string{
		"NCCL_TOPO_FILE", "NCCL_TOPO_DUMP_FILE", "NCCL_HOSTID",
	}},
	{"a child shares nothing with its parent", []string{
		"NCCL_COMM_SPLIT_SHARE_RESOURCES", "NCCL_COMM_SHRINK_SHARE_RESOURCES",
	}},
	{"variables come from the environment and nccl.conf files only", []string{"NCCL_ENV_PLUGIN"}},
	{"the Go runtime manages its threads, which are few and mostly asleep",
		[]string{"NCCL_SET_THREAD_NAME", "NCCL_IGNORE_CPU_AFFINITY"}},
}

// whyIgnored says why a variable of NCCL's is not read.
func whyIgnored(name string) string {
	for _, g := range ignoredVars {
		if slices.Contains(g.Names, name) {
			return g.Why
		}
	}
	return "Lightpath has no such variable"
}
