package host

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
)

// masterPort is the port at which the ranks of a step meet, if MASTER_PORT does not say it. It is below the ports that
// Linux gives to connections. Steps of two jobs on a node have different ones.
func masterPort(t *slurmTask) int { return 20000 + (t.job*8+t.step%8)%10000 }

// taskVariables returns torchrun's variables for the rank. MASTER_ADDR and MASTER_PORT stay if they are set.
func taskVariables(t *slurmTask, getenv func(string) string) []string {
	all := rankVariables(t.rank, t.size, t.localRank, t.localSize)
	if getenv("MASTER_ADDR") == "" {
		all = append(all, "MASTER_ADDR="+t.first)
	}
	if getenv("MASTER_PORT") == "" {
		all = append(all, fmt.Sprintf("MASTER_PORT=%d", masterPort(t)))
	}
	return all
}

// taskEnvironment returns that of the rank. Each variable is there once, since getenv returns the first.
func taskEnvironment(t *slurmTask, library []string) []string {
	c := exec.Cmd{Env: slices.Concat(os.Environ(), taskVariables(t, os.Getenv), library)}
	return c.Environ()
}

// become replaces this process by the program, as the rank of the task.
func become(t *slurmTask, preload bool, args []string) error {
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
