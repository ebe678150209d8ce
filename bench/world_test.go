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
		want *World // nil: no launcher
	}{
		{"none", env{}, nil},
		{
			"Open MPI", env{"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "PMIX_NAMESPACE": "7"},
			&World{Rank: 1, Size: 4, Job: "7", Unique: true, Launcher: "Open MPI", RankVariable: "OMPI_COMM_WORLD_RANK"},
		},
		{
			"MPICH (PMI)", env{"PMI_RANK": "3", "PMI_SIZE": "4", "PMI_FD": "9"},
			&World{Rank: 3, Size: 4, Launcher: "PMI", RankVariable: "PMI_RANK"},
		},
		{
			"Slurm", env{"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_ID": "5", "SLURM_JOB_ID": "77"},
			&World{Rank: 0, Size: 2, Job: "77/5", Unique: true, Launcher: "Slurm", RankVariable: "SLURM_PROCID"},
		},
		{
			"a batch script of Slurm",
			env{"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_NPROCS": "4", "SLURM_JOB_ID": "77"}, nil,
		},
		{
			"torchrun", env{"RANK": "7", "WORLD_SIZE": "8", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "none"},
			&World{Rank: 7, Size: 8, Job: "none/29500", Launcher: "torchrun", RankVariable: "RANK"},
		},
		{
			"one rank", env{"RANK": "0", "WORLD_SIZE": "1"},
			&World{Rank: 0, Size: 1, Launcher: "torchrun", RankVariable: "RANK"},
		},
		{
			"mpirun within a Slurm allocation",
			env{"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"},
			&World{Rank: 1, Size: 4, Launcher: "Open MPI", RankVariable: "OMPI_COMM_WORLD_RANK"},
		},
		{"an allocation is no job", env{"SLURM_NTASKS": "8"}, nil},
		{"a rank without a size", env{"RANK": "3"}, nil},
		{
			"a size alone hides no other launcher", env{"WORLD_SIZE": "8", "PMI_RANK": "1", "PMI_SIZE": "2"},
			&World{Rank: 1, Size: 2, Launcher: "PMI", RankVariable: "PMI_RANK"},
		},
	} {
		got, ok, err := DetectWorld(environ(c.env))
		want := World{}
		if c.want != nil {
			want = *c.want
		}
		if err != nil || ok != (c.want != nil) || got != want {
			t.Errorf("%s: %+v, %t, %v; want %+v", c.name, got, ok, err, c.want)
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
		{env{"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "9999999999999999999999"}, "SLURM_STEP_NUM_TASKS"},
	} {
		if w, ok, err := DetectWorld(environ(c.env)); err == nil || ok || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %+v, %t, %v; want an error with %s", c.env, w, ok, err, c.says)
		}
	}
}

func TestRendezvous(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	name := func(w World) string {
		path, err := w.rendezvous()
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	first := name(World{Rank: 0, Size: 4, Job: "a", Launcher: "Open MPI"})
	if other := name(World{Rank: 3, Size: 4, Job: "a", Launcher: "Open MPI"}); other != first {
		t.Errorf("ranks of one job meet at %s and %s", first, other)
	}
	for _, w := range []World{
		{Size: 4, Job: "b", Launcher: "Open MPI"}, {Size: 2, Job: "a", Launcher: "Open MPI"},
		{Size: 4, Job: "a", Launcher: "PMI"},
	} {
		if name(w) == first {
			t.Errorf("%+v has the rendezvous of another job", w)
		}
	}
	// The parent distinguishes jobs whose names are not unique.
	if name(World{Size: 4, Job: "a", Launcher: "Open MPI", Unique: true}) == first {
		t.Error("the parent of a job without a unique name makes no difference")
	}
}
