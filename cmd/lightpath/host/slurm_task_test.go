package host

import (
	"reflect"
	"strings"
	"testing"
)

// srunEnv is the environment of task 3 of a step of 5 tasks on 3 nodes, with changes.
func srunEnv(changes ...string) func(string) string {
	env := map[string]string{
		"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "5", "SLURM_NTASKS": "5", "SLURM_NPROCS": "5", "SLURM_LOCALID": "1",
		"SLURM_NODEID": "1", "SLURM_JOB_ID": "17", "SLURM_JOBID": "17", "SLURM_STEP_ID": "2",
		"SLURM_STEP_NODELIST": "n[07-09]", "SLURM_STEP_TASKS_PER_NODE": "2(x2),1",
	}
	for _, c := range changes {
		name, value, _ := strings.Cut(c, "=")
		env[name] = value
	}
	return func(name string) string { return env[name] }
}

func TestSlurmTask(t *testing.T) {
	want := &slurmTask{rank: 3, size: 5, localRank: 1, localSize: 2, first: "n07", job: 17, step: 2}
	if task, err := detectTask(srunEnv()); err != nil || !reflect.DeepEqual(task, want) {
		t.Errorf("%+v, %v; want %+v", task, err, want)
	}
	for _, env := range []string{"SLURM_PROCID=", "SLURM_STEP_NUM_TASKS="} { // a batch script, a shell
		if task, err := detectTask(srunEnv(env)); task != nil || err != nil {
			t.Errorf("%s: %v, %v", env, task, err)
		}
	}
}

// TestSlurmContradictions: one line names both variables.
func TestSlurmContradictions(t *testing.T) {
	for _, c := range []struct{ change, says string }{
		{"SLURM_NTASKS=4", "SLURM_NTASKS=4 contradicts SLURM_STEP_NUM_TASKS=5"},
		{"SLURM_NPROCS=4", "SLURM_NPROCS=4 contradicts SLURM_STEP_NUM_TASKS=5"},
		{"RANK=0", "RANK=0 contradicts SLURM_PROCID=3"},
		{"WORLD_SIZE=2", "WORLD_SIZE=2 contradicts SLURM_STEP_NUM_TASKS=5"},
		{"LOCAL_RANK=0", "LOCAL_RANK=0 contradicts SLURM_LOCALID=1"},
		{"SLURM_JOBID=18", "SLURM_JOBID=18 contradicts SLURM_JOB_ID=17"},
		{"SLURM_PROCID=5", "SLURM_PROCID=5 contradicts SLURM_STEP_NUM_TASKS=5"},
		{"SLURM_NODEID=2", "SLURM_LOCALID=1 contradicts SLURM_STEP_TASKS_PER_NODE=2(x2),1 of SLURM_NODEID=2"},
		{"SLURM_NODEID=3", "SLURM_LOCALID=1 contradicts SLURM_STEP_TASKS_PER_NODE=2(x2),1 of SLURM_NODEID=3"},
		{"SLURM_PROCID=-1", `SLURM_PROCID="-1": srun sets a number`},
		{"SLURM_JOB_ID=x", `SLURM_JOB_ID="x": srun sets a number`},
		{"SLURM_STEP_NODELIST=", `SLURM_STEP_NODELIST="": no list of nodes`},
		{"SLURM_STEP_NODELIST=n[", `SLURM_STEP_NODELIST="n[": no list of nodes`},
	} {
		if task, err := detectTask(srunEnv(c.change)); err == nil || err.Error() != c.says {
			t.Errorf("%s: %v, %v, want %q", c.change, task, err, c.says)
		}
	}
}

func TestFirstNode(t *testing.T) {
	for list, want := range map[string]string{
		"n1": "n1", "n1,n2": "n1", "n[07-12,15],login": "n07", "n[3,5]": "n3", "rack[1-2]-x,y": "rack1-x", "[1-2]": "",
	} {
		if got := firstNode(list); got != want {
			t.Errorf("%s: %q, want %q", list, got, want)
		}
	}
}
