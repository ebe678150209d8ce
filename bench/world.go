package bench

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// World is the place of this process in a job that a launcher started.
type World struct {
	Rank, Size int
	Launcher   string
	// RankVariable is the variable that states Rank.
	RankVariable string
	// Job is the name that the launcher gives all ranks of the job; "": none.
	Job string
	// Unique says that no other job has the same Job. Otherwise a job is known by its name and by the common parent
	// of its ranks, and a script must not start them one by one.
	Unique bool
}

// launcher is a program that starts ranks, with the variables by which it tells them.
type launcher struct {
	name       string
	rank, size string
	job        []string // together they name the job
	unique     bool     // these names are never used again
}

// launchers lists the most specific variables first.
var launchers = []launcher{
	{
		name: "Open MPI", rank: "OMPI_COMM_WORLD_RANK", size: "OMPI_COMM_WORLD_SIZE",
		job: []string{"PMIX_NAMESPACE"}, unique: true,
	},
	{
		name: "torchrun", rank: "RANK", size: "WORLD_SIZE",
		job: []string{"TORCHELASTIC_RUN_ID", "MASTER_PORT"},
	},
	{
		// A batch script has SLURM_NTASKS instead of a size.
		name: "Slurm", rank: "SLURM_PROCID", size: "SLURM_STEP_NUM_TASKS",
		job: []string{"SLURM_JOB_ID", "SLURM_STEP_ID"}, unique: true,
	},
	{name: "PMI", rank: "PMI_RANK", size: "PMI_SIZE"},
}

// DetectWorld reads the launchers' variables through getenv. It returns false without a launcher: a lone WORLD_SIZE is
// an allocation and no rank of a job. So is a batch script of Slurm, which has SLURM_PROCID and SLURM_NTASKS. A value
// that makes no sense is an error that names its variable.
func DetectWorld(getenv func(string) string) (World, bool, error) {
	for _, l := range launchers {
		rank, size := getenv(l.rank), getenv(l.size)
		if rank == "" || size == "" {
			continue
		}
		w := World{Launcher: l.name, RankVariable: l.rank, Unique: l.unique}
		var err error
		if w.Rank, err = strconv.Atoi(rank); err != nil || w.Rank < 0 {
			return World{}, false, fmt.Errorf("%s=%q is not a rank", l.rank, rank)
		}
		if w.Size, err = strconv.Atoi(size); err != nil || w.Size <= w.Rank {
			return World{}, false, fmt.Errorf("%s=%q does not go with %s=%s", l.size, size, l.rank, rank)
		}
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

// rendezvous returns the file through which ranks of a launcher's job find each other on this host. All ranks of
// a job get the same file, and every job gets another one.
func (w *World) rendezvous() (string, error) {
	dir := cmp.Or(os.Getenv("XDG_RUNTIME_DIR"), os.TempDir())
	dir = filepath.Join(dir, fmt.Sprintf("lightpath-%d", os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	parent := 0
	if !w.Unique {
		parent = os.Getppid()
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%d/%d", w.Launcher, w.Job, parent, w.Size))
	return filepath.Join(dir, hex.EncodeToString(sum[:8])), nil
}
