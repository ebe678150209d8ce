package bench

import (
	"strings"
	"testing"
)

func environ(vars map[string]string) func(string) string {
	return func(name string) string { return vars[name] }
}

func TestDetectWorld(t *testing.T) {
	type env = map[string]string
	for _, c := range []struct {
		name string
		env  env
		want World
		ok   bool
	}{
		{"none", env{}, World{}, false},
		{"Open MPI", env{"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "PMIX_NAMESPACE": "7"}, World{1, 4, "7", true, "Open MPI"}, true},
		{"MPICH (PMI)", env{"PMI_RANK": "3", "PMI_SIZE": "4", "PMI_FD": "9"}, World{3, 4, "", false, "PMI"}, true},
		{"Slurm", env{"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_STEP_ID": "5", "SLURM_JOB_ID": "77"}, World{0, 2, "77/5", true, "Slurm"}, true},
		{"old Slurm", env{"SLURM_PROCID": "1", "SLURM_NPROCS": "2", "SLURM_JOB_ID": "77"}, World{1, 2, "77", false, "Slurm"}, true},
		{"torchrun", env{"RANK": "7", "WORLD_SIZE": "8", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "none"}, World{7, 8, "none/29500", false, "torchrun"}, true},
		{"one rank", env{"RANK": "0", "WORLD_SIZE": "1"}, World{0, 1, "", false, "torchrun"}, true},
		{"mpirun within a Slurm allocation", env{"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"},
			World{1, 4, "", false, "Open MPI"}, true},
		{"an allocation is no job", env{"SLURM_NTASKS": "8"}, World{}, false},
		{"a rank of nothing", env{"RANK": "3"}, World{}, false},
		{"a size alone hides no other launcher", env{"WORLD_SIZE": "8", "PMI_RANK": "1", "PMI_SIZE": "2"}, World{1, 2, "", false, "PMI"}, true},
	} {
		got, ok, err := DetectWorld(environ(c.env))
		if err != nil || ok != c.ok || got != c.want {
			t.Errorf("%s: %+v, %t, %v; want %+v, %t", c.name, got, ok, err, c.want, c.ok)
		}
	}
}

func TestDetectWorldNamesNonsense(t *testing.T) {
	type env = map[string]string
	for _, c := range []struct {
		env  env
		says string
	}{
		{env{"RANK": "x", "WORLD_SIZE": "8"}, `RANK="x"`},
		{env{"RANK": "-1", "WORLD_SIZE": "8"}, `RANK="-1"`},
		{env{"RANK": "1.5", "WORLD_SIZE": "8"}, `RANK="1.5"`},
		{env{"OMPI_COMM_WORLD_RANK": "8", "OMPI_COMM_WORLD_SIZE": "8"}, `OMPI_COMM_WORLD_SIZE="8"`},
		{env{"PMI_RANK": "0", "PMI_SIZE": "0"}, `PMI_SIZE="0"`},
		{env{"PMI_RANK": "0", "PMI_SIZE": "many"}, `PMI_SIZE="many"`},
		{env{"SLURM_PROCID": "0", "SLURM_NTASKS": "9999999999999999999999"}, "SLURM_NTASKS"},
	} {
		if w, ok, err := DetectWorld(environ(c.env)); err == nil || ok || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %+v, %t, %v; want an error with %s", c.env, w, ok, err, c.says)
		}
	}
}

func TestRendezvous(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	name := func(w World) string {
		path, err := rendezvous(&w)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	first := name(World{Rank: 0, Size: 4, Job: "a", Launcher: "Open MPI"})
	if other := name(World{Rank: 3, Size: 4, Job: "a", Launcher: "Open MPI"}); other != first {
		t.Errorf("ranks of one job meet at %s and %s", first, other)
	}
	for _, w := range []World{{Size: 4, Job: "b", Launcher: "Open MPI"}, {Size: 2, Job: "a", Launcher: "Open MPI"}, {Size: 4, Job: "a", Launcher: "PMI"}} {
		if name(w) == first {
			t.Errorf("%+v meets where another job does", w)
		}
	}
	// A job that is not known by its name alone is known by its parent, too.
	if name(World{Size: 4, Job: "a", Launcher: "Open MPI", Unique: true}) == first {
		t.Error("the parent of a job without a name of its own makes no difference")
	}
}
