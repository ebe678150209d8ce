package settings

// frontVars are the variables that C reads: libnccl.so.2 itself (cgo/front) and the recorder of calls (cgo/record).
var frontVars = []Var{
	{Name: "LIGHTPATH_CORE", Type: "path",
		Doc: "the core that libnccl.so.2 loads. Empty: liblightpath.so beside it"},
	{Name: "LIGHTPATH_NCCL_VERSION", Type: "int", Default: "23203",
		Doc: "version that ncclGetVersion returns"},
	{Name: "LIGHTPATH_DEVICE_QUEUES", Type: "int", Default: "32",
		Doc: "value that libnccl.so.2 gives CUDA_DEVICE_MAX_CONNECTIONS when it is loaded, if that variable is unset and " +
			"the process has one thread. 0: it sets nothing. No effect after cuInit"},
	{Name: "LIGHTPATH_ITERATION_RECORD", Type: "path",
		Doc: "folder of the files of the recorder of calls (iteration.md)"},
	{Name: "LIGHTPATH_ITERATION_LIBRARY", Type: "path",
		Doc: "libnccl.so.2 that makes the calls that the recorder records"},
	{Name: "NCCL_COMM_BLOCKING", Type: "0|1",
		Doc: "whether communicators block, whatever their configurations say. Other values have no effect"},
	{Name: "NCCL_CONF_FILE", Type: "path",
		Doc: "file of lines NAME=value for variables that the environment lacks, as in NCCL. Empty: ~/.nccl.conf. " +
			"/etc/nccl.conf comes last"},
}
