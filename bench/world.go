package bench

import (
	"fmt"
	"strconv"
)

// World is a rank's place in a job that somebody else started.
type World struct {
	Rank, Size int
	// Job is common to the ranks of the job and to no other job of this user on the host;
	// "" where the launcher says nothing of the kind.
	Job      string
	Launcher string
}

// launchers lists the variables of those that users have, most specific first.
var launchers = []struct {
	name            string
	rank, size, job []string
}{
	{"Open MPI", []string{"OMPI_COMM_WORLD_RANK"}, []string{"OMPI_COMM_WORLD_SIZE"}, []string{"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}},
	{"torchrun", []string{"RANK"}, []string{"WORLD_SIZE"}, []string{"TORCHELASTIC_RUN_ID", "MASTER_PORT"}},
	{"Slurm", []string{"SLURM_PROCID"}, []string{"SLURM_NTASKS", "SLURM_NPROCS"}, []string{"SLURM_STEP_ID", "SLURM_JOB_ID"}},
	{"PMI", []string{"PMI_RANK"}, []string{"PMI_SIZE"}, []string{"PMI_ID_JOB", "HYDI_CONTROL_FD"}},
}

// DetectWorld reads the launcher's variables through getenv; false without a launcher. A rank
// without a size, or a size alone, is no rank of a job; values that make no sense are an error
// that names the variable.
func DetectWorld(getenv func(string) string) (World, bool, error) {
	for _, l := range launchers {
		rank, rankName := firstSet(getenv, l.rank)
		size, sizeName := firstSet(getenv, l.size)
		// A lone WORLD_SIZE or SLURM_NTASKS is an allocation, not a rank of a job.
		if rank == "" || size == "" {
			continue
		}
		w := World{Launcher: l.name}
		var err error
		if w.Rank, err = strconv.Atoi(rank); err != nil || w.Rank < 0 {
			return World{}, false, fmt.Errorf("%s=%q is not a rank", rankName, rank)
		}
		if w.Size, err = strconv.Atoi(size); err != nil || w.Size <= w.Rank {
			return World{}, false, fmt.Errorf("%s=%q does not go with %s=%s", sizeName, size, rankName, rank)
		}
		w.Job, _ = firstSet(getenv, l.job)
		return w, true, nil
	}
	return World{}, false, nil
}

func firstSet(getenv func(string) string, names []string) (value, name string) {
	for _, n := range names {
		if v := getenv(n); v != "" {
			return v, n
		}
	}
	return "", ""
}
