package host

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"

	"lightpath/bench"
)

// masterPort is the port at which the ranks of a step meet, if MASTER_PORT does not say it. It is below the ports that
// Linux gives to connections. Steps of two jobs on a node have different ones.
func masterPort(t *bench.SlurmTask) int { return 20000 + (t.Job*8+t.Step%8)%10000 }

// taskVariables returns torchrun's variables for the rank. MASTER_ADDR and MASTER_PORT stay if they are set.
func taskVariables(t *bench.SlurmTask, getenv func(string) string) []string {
	all := rankVariables(t.Rank, t.Size, t.LocalRank, t.LocalSize)
	if getenv("MASTER_ADDR") == "" {
		all = append(all, "MASTER_ADDR="+t.First)
	}
	if getenv("MASTER_PORT") == "" {
		all = append(all, fmt.Sprintf("MASTER_PORT=%d", masterPort(t)))
	}
	return all
}

// taskEnvironment returns that of the rank. Each variable is there once, since getenv returns the first.
func taskEnvironment(t *bench.SlurmTask, library []string) []string {
	c := exec.Cmd{Env: slices.Concat(os.Environ(), taskVariables(t, os.Getenv), library)}
	return c.Environ()
}

// become replaces this process by the program, as the rank of the task.
func become(t *bench.SlurmTask, preload bool, args []string) error {
	program, err := exec.LookPath(args[0])
	if err != nil {
		return err
	}
	library, err := preloaded(preload)
	if err != nil {
		return err
	}
	return fmt.Errorf("cannot start %s: %w", args[0], syscall.Exec(program, args, taskEnvironment(t, library)))
}
