package host

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"lightpath/bench"
	"lightpath/cmd/lightpath/cli"
	"lightpath/plans"
	"lightpath/shim/recording"
)

// NewRun returns the command "run".
func NewRun() *cobra.Command {
	var ranks int
	var preload bool
	cmd := &cobra.Command{
		Use:   "run [-n N] -- program [args...]",
		Short: "Start local ranks of a program with Lightpath in place of NCCL",
		Long: `Starts N processes of a program with the variables that torchrun sets (RANK, WORLD_SIZE,
LOCAL_RANK, MASTER_ADDR, MASTER_PORT) and Lightpath's libnccl.so.2 preloaded. Output is
prefixed with the rank. The first rank that fails ends the others. Exit status 1: a rank has failed;
the last line on standard error has its status.

Under srun and without -n, the command becomes the one rank that Slurm says, with the same
variables. Ranks meet at the first node of the step, unless MASTER_ADDR is set.`,
		Args: cli.Arguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cli.Within("-n", ranks, 1, plans.MaxRanks); err != nil {
				return err
			}
			// The recorder of calls is preloaded already, and passes them to Lightpath.
			preload = preload && os.Getenv(recording.FolderVariable) == ""
			if !cmd.Flags().Changed("ranks") {
				if task, err := detectTask(os.Getenv); err != nil || task != nil {
					if err == nil {
						err = become(task, preload, args)
					}
					return err
				}
			}
			return runRanks(cmd.Context(), ranks, preload, args)
		},
	}
	cmd.Flags().IntVarP(&ranks, "ranks", "n", 2, "number of ranks")
	cmd.Flags().BoolVar(&preload, "preload", true, "preload libnccl.so.2 into the program")
	return cmd
}

func runRanks(ctx context.Context, ranks int, preload bool, args []string) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	library, err := preloaded(preload)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	var out sync.Mutex
	var once sync.Once
	var failure error // the first; a rank that is stopped after it has not failed
	for r := range ranks {
		rank, stdout, stderr, err := startRank(args, slices.Concat(os.Environ(), rankVariables(r, ranks, r, ranks), library,
			[]string{"MASTER_ADDR=127.0.0.1", fmt.Sprintf("MASTER_PORT=%d", port)}))
		if err != nil {
			cancel()
			wg.Wait()
			return fmt.Errorf("cannot start %s: %w", args[0], err)
		}
		wg.Go(func() {
			defer context.AfterFunc(ctx, func() { _ = syscall.Kill(-rank.Pid, syscall.SIGKILL) })()
			var copies sync.WaitGroup
			defer copies.Wait() // children of the rank may write longer
			copies.Go(func() { prefix(cli.Stdout, stdout, r, &out) })
			copies.Go(func() { prefix(os.Stderr, stderr, r, &out) })
			state, err := rank.Wait()
			if err == nil && !state.Success() {
				err = &exec.ExitError{ProcessState: state}
			}
			if err != nil {
				once.Do(func() { failure = cli.No(fmt.Errorf("rank %d: %w", r, err)) })
				cancel()
			}
		})
	}
	wg.Wait()
	return failure
}

// startRank starts the program of a rank. The caller reads its output.
func startRank(args, env []string) (rank *os.Process, stdout, stderr io.Reader, err error) {
	c := exec.Command(args[0], args[1:]...)
	// A rank has a process group, so that its children end with it.
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: true}
	c.Env = env
	if stdout, err = c.StdoutPipe(); err != nil {
		return nil, nil, nil, err
	}
	if stderr, err = c.StderrPipe(); err != nil {
		return nil, nil, nil, err
	}
	err = bench.Start(c)
	return c.Process, stdout, stderr, err
}

// rankVariables returns torchrun's variables of a rank, without those of the place at which ranks meet.
func rankVariables(rank, size, localRank, localSize int) []string {
	return []string{
		fmt.Sprintf("RANK=%d", rank), fmt.Sprintf("WORLD_SIZE=%d", size),
		fmt.Sprintf("LOCAL_RANK=%d", localRank), fmt.Sprintf("LOCAL_WORLD_SIZE=%d", localSize),
	}
}

// preloaded returns the variable that preloads libnccl.so.2, none if it is not wanted.
func preloaded(wanted bool) ([]string, error) {
	if !wanted {
		return nil, nil
	}
	library, err := cli.SiblingFile("lib", "libnccl.so.2")
	return []string{cli.Preloading(library)}, err
}

// maxLine is the longest line that prefix copies in one piece.
const maxLine = 1 << 20

// prefix copies lines to w, each with its rank. A longer line is copied in pieces, each on a line of its own.
func prefix(w io.Writer, r io.Reader, rank int, mu *sync.Mutex) {
	lines := bufio.NewReaderSize(r, maxLine)
	for {
		line, err := lines.ReadSlice('\n')
		if len(line) > 0 {
			mu.Lock()
			fmt.Fprintf(w, "[%d] %s\n", rank, bytes.TrimSuffix(line, []byte("\n")))
			mu.Unlock()
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
