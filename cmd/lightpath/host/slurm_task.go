package host

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// slurmTask is the place of this process in a step that srun started.
type slurmTask struct {
	rank, size           int
	localRank, localSize int
	first                string // node of rank 0
	job, step            int
}

// detectTask reads more of srun's variables than bench.DetectWorld, for a process that becomes a rank. It returns nil
// outside a step of srun: in a batch script, SLURM_PROCID alone is an allocation and no rank. Variables that contradict
// each other are an error that names both.
func detectTask(getenv func(string) string) (*slurmTask, error) {
	if getenv("SLURM_PROCID") == "" || getenv("SLURM_STEP_NUM_TASKS") == "" {
		return nil, nil
	}
	t := &slurmTask{first: firstNode(getenv("SLURM_STEP_NODELIST"))}
	node := 0
	for _, v := range []struct {
		name string
		to   *int
	}{
		{"SLURM_PROCID", &t.rank}, {"SLURM_STEP_NUM_TASKS", &t.size}, {"SLURM_LOCALID", &t.localRank},
		{"SLURM_NODEID", &node}, {"SLURM_JOB_ID", &t.job}, {"SLURM_STEP_ID", &t.step},
	} {
		n, err := strconv.Atoi(getenv(v.name))
		if err != nil || n < 0 {
			return nil, fmt.Errorf("%s=%q: srun sets a number", v.name, getenv(v.name))
		}
		*v.to = n
	}
	tasks := getenv("SLURM_STEP_TASKS_PER_NODE")
	t.localSize = tasksOn(tasks, node)
	rank, size, local := strconv.Itoa(t.rank), strconv.Itoa(t.size), strconv.Itoa(t.localRank)
	for _, v := range []struct {
		name, other, want string
	}{
		{"SLURM_NTASKS", "SLURM_STEP_NUM_TASKS", size}, {"SLURM_NPROCS", "SLURM_STEP_NUM_TASKS", size},
		{"RANK", "SLURM_PROCID", rank}, {"WORLD_SIZE", "SLURM_STEP_NUM_TASKS", size},
		{"LOCAL_RANK", "SLURM_LOCALID", local}, {"SLURM_JOBID", "SLURM_JOB_ID", strconv.Itoa(t.job)},
	} {
		if have := getenv(v.name); have != "" && have != v.want {
			return nil, fmt.Errorf("%s=%s contradicts %s=%s", v.name, have, v.other, v.want)
		}
	}
	switch {
	case t.rank >= t.size:
		return nil, fmt.Errorf("SLURM_PROCID=%d contradicts SLURM_STEP_NUM_TASKS=%d", t.rank, t.size)
	case t.localRank >= t.localSize:
		return nil, fmt.Errorf("SLURM_LOCALID=%d contradicts SLURM_STEP_TASKS_PER_NODE=%s of SLURM_NODEID=%d", t.localRank,
			tasks, node)
	case t.first == "":
		return nil, fmt.Errorf("SLURM_STEP_NODELIST=%q: no list of nodes", getenv("SLURM_STEP_NODELIST"))
	}
	return t, nil
}

// nodeList matches the first node of a list such as "rack1-n[07-12,15],login"; the brackets are optional.
var nodeList = regexp.MustCompile(`^([^\[\],]+)(?:\[([0-9]+)[-,0-9]*\]([^\[\],]*))?(?:,|$)`)

// firstNode returns the first node of a list of Slurm; "" if it is none.
func firstNode(list string) string {
	m := nodeList.FindStringSubmatch(list)
	if m == nil {
		return ""
	}
	return m[1] + m[2] + m[3]
}

// tasksOn returns how many tasks a node has, from a text such as "2(x3),1"; 0 if the text does not say.
func tasksOn(text string, node int) int {
	for part := range strings.SplitSeq(text, ",") {
		count, times, repeated := strings.Cut(part, "(x")
		n, err := strconv.Atoi(count)
		if err != nil {
			return 0
		}
		same := 1
		if repeated {
			if same, err = strconv.Atoi(strings.TrimSuffix(times, ")")); err != nil {
				return 0
			}
		}
		if node -= same; node < 0 {
			return n
		}
	}
	return 0
}
