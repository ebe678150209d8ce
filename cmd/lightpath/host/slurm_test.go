package host

import (
	"slices"
	"strings"
	"testing"

	"lightpath/cmd/lightpath/cli"
)

// TestTaskEnvironment: a variable that the step already has is there once, with the value of the rank.
func TestTaskEnvironment(t *testing.T) {
	t.Setenv("LOCAL_WORLD_SIZE", "7")
	t.Setenv("LD_PRELOAD", "other.so")
	var got []string
	for _, v := range taskEnvironment(&slurmTask{localSize: 2}, []string{cli.Preloading("ours.so")}) {
		if strings.HasPrefix(v, "LOCAL_WORLD_SIZE=") || strings.HasPrefix(v, "LD_PRELOAD=") {
			got = append(got, v)
		}
	}
	slices.Sort(got)
	if want := []string{"LD_PRELOAD=ours.so:other.so", "LOCAL_WORLD_SIZE=2"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestTaskVariables(t *testing.T) {
	task := &slurmTask{rank: 3, size: 5, localRank: 1, localSize: 2, first: "n07", job: 17, step: 2}
	for _, c := range []struct {
		set  map[string]string
		want []string // beside those of the rank
	}{
		{nil, []string{"MASTER_ADDR=n07", "MASTER_PORT=20138"}},
		{map[string]string{"MASTER_ADDR": "a", "MASTER_PORT": "1"}, nil},
	} {
		want := append([]string{"RANK=3", "WORLD_SIZE=5", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2"}, c.want...)
		if got := taskVariables(task, func(name string) string { return c.set[name] }); !slices.Equal(got, want) {
			t.Errorf("%v: %v, want %v", c.set, got, want)
		}
	}
}
