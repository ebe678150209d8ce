package bench

import (
	"fmt"
	"strconv"
	"strings"
)

// World is a rank's place in a job that somebody else started.
type World struct {
	Rank, Size int
	// Job is what the launcher tells all ranks of the job; "" where it says nothing.
	Job string
	// Unique says that no other job has this Job. Otherwise the ranks of a job are known by
	// their common parent, too, and must not be started through scripts of their own.
	Unique   bool
	Launcher string
}

// launchers lists the variables of those that users have, most specific first. job holds
// variables that together tell jobs apart, for good where unique.
var launchers = []struct {
	name       string
	rank, size []string
	job        []string
	unique     bool
}{
	{"Open MPI", []string{"OMPI_COMM_WORLD_RANK"}, []string{"OMPI_COMM_WORLD_SIZE"}, []string{"PMIX_NAMESPACE"}, true},
	{"torchrun", []string{"RANK"}, []string{"WORLD_SIZE"}, []string{"TORCHELASTIC_RUN_ID", "MASTER_PORT"}, false},
	{"Slurm", []string{"SLURM_PROCID"}, []string{"SLURM_NTASKS", "SLURM_NPROCS"}, []string{"SLURM_JOB_ID", "SLURM_STEP_ID"}, true},
	{"PMI", []string{"PMI_RANK"}, []string{"PMI_SIZE"}, nil, false},
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
		w.Unique = l.unique
		var job []string
		for _, name := range l.job {
			v := getenv(name)
			job = append(job, v)
			w.Unique = w.Unique && v != ""
		}
		w.Job = strings.Trim(strings.Join(job, "/"), "/")
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
