package iteration

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"lightpath/bench"
	"lightpath/cmd/lightpath/cli"
	"lightpath/internal/files"
	"lightpath/plans/iteration"
	"lightpath/plans/iteration/learn"
	"lightpath/shim/recording"
)

// recordFlags say what iteration record does.
type recordFlags struct {
	out, library, merge, keep string
}

func newRecord() *cobra.Command {
	var f recordFlags
	cmd := &cobra.Command{
		Use:   "record [-o trace.json] [--library libnccl.so.2] -- program [args...]",
		Short: "Record the calls of NCCL that a program makes, over any library, and make the trace of its iteration",
		Long: `Starts a program with a library preloaded that passes each call of NCCL on unchanged, and keeps its shape and
time. The calls go to Lightpath, or to the library of --library. When the program has ended, its calls become a trace,
as import makes one. Each process keeps its last 32768 calls, and keeps them when it is killed.

For programs that a launcher starts on several hosts, set LIGHTPATH_ITERATION_RECORD to a folder that they share or that
you collect, and LD_PRELOAD to liblightpath-record.so. --merge makes the trace of the files in the folder.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cli.CheckOutput("out", f.out); err != nil {
				return err
			}
			switch {
			case f.merge != "" && len(args) > 0:
				return errors.New("--merge reads files, and starts no program")
			case f.merge != "" && (f.library != "" || f.keep != ""):
				return errors.New("--merge goes with --out only")
			case f.merge != "":
				return f.deliver(f.merge, filepath.Base(f.merge))
			case len(args) == 0:
				return errors.New("want a program after --, or --merge FOLDER")
			}
			return f.record(cmd.Context(), args)
		},
	}
	fl := cmd.Flags()
	fl.StringVarP(&f.out, "out", "o", "", "trace file to write (standard output by default)")
	fl.StringVar(&f.library, "library", "", "libnccl.so.2 that makes the calls (Lightpath's by default)")
	fl.StringVar(&f.keep, "keep", "", "new folder for the files of the processes, which are kept")
	fl.StringVar(&f.merge, "merge", "", "make the trace of the files in this folder")
	return cmd
}

// record runs a program, and makes the trace of its calls.
func (f *recordFlags) record(ctx context.Context, args []string) (err error) {
	preload, err := cli.SiblingFile("lib", "liblightpath-record.so")
	if err != nil {
		return err
	}
	env := []string{"VLLM_NCCL_SO_PATH=" + preload, cli.Preloading(preload)}
	if f.library != "" {
		library, err := filepath.Abs(f.library)
		if err == nil {
			_, err = os.Stat(library)
		}
		if err != nil {
			return fmt.Errorf("--library: %w", err)
		}
		env = append(env, "LIGHTPATH_ITERATION_LIBRARY="+library)
	}
	folder := f.keep
	if folder == "" {
		if folder, err = os.MkdirTemp("", "lightpath-record-"); err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(folder) }()
	} else if folder, err = filepath.Abs(folder); err == nil {
		err = os.Mkdir(folder, 0o755)
	}
	if err != nil {
		return fmt.Errorf("--keep: %w", err)
	}
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = 30 * time.Second
	c.Env = append(os.Environ(), append(env, recording.FolderVariable+"="+folder)...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := bench.Start(c); err != nil {
		return fmt.Errorf("cannot start %s: %w", args[0], err)
	}
	ended := c.Wait()
	err = f.deliver(folder, strings.Join(args, " "))
	switch {
	case cli.StoppedBy(ctx) != nil: // the program had to end
		return cli.Deliver(ctx, "trace", func() error { return err })
	case ended == nil:
		return err
	case err != nil:
		return fmt.Errorf("%s: %w: %w", args[0], ended, err)
	}
	return cli.No(fmt.Errorf("%s: %w", args[0], ended))
}

// deliver merges the files of a folder, and writes the trace.
func (f *recordFlags) deliver(folder, name string) error {
	list, err := readRecordings(folder)
	if err != nil {
		return err
	}
	m, err := recording.Merge(list)
	if errors.Is(err, learn.ErrNoPeriod) || errors.Is(err, recording.ErrJob) {
		return cli.No(err)
	}
	if err != nil {
		return err
	}
	m.Trace.Name = name
	fmt.Fprintf(os.Stderr, "%d processes over %s made %d calls: %d iterations of %d calls, after %d others\n", len(list),
		list[0].Library, m.Calls, m.Repeats(), m.Period(), m.Left)
	fmt.Fprintf(os.Stderr, "%d calls on %d ranks, communicators: %d; an iteration took %s, %s of it in calls\n",
		len(m.Trace.Calls), m.Trace.Ranks, len(m.Trace.Communicators), iteration.Millis(m.IterationUS),
		iteration.Millis(m.InCallsUS))
	warnRecording(m)
	return cli.WriteOutput("out", f.out, m.Trace.Encode())
}

func warnRecording(m *recording.Merged) {
	if m.Streams > 0 {
		cli.Warn(fmt.Sprintf("%d of %d calls are on streams: their times are those of issuing them. Computation between "+
			"calls is unknown unless the program ran with CUDA_LAUNCH_BLOCKING=1", m.Streams, m.Calls))
	}
	if m.Varied {
		cli.Warn("sizes of sends change from iteration to iteration: the trace has their means")
	}
	if m.Partial > 0 {
		cli.Warn(fmt.Sprintf("%d calls are left out: not all of their ranks have them", m.Partial))
	}
	if m.Unknown > 0 {
		cli.Warn(fmt.Sprintf("%d calls are left out: of grown communicators, or of more than 1024 in a process", m.Unknown))
	}
}

// readRecordings reads the files of a folder.
func readRecordings(folder string) ([]*recording.File, error) {
	if _, err := os.ReadDir(folder); err != nil {
		return nil, fmt.Errorf("--merge: %w", err)
	}
	var list []*recording.File
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".record" {
			return err
		}
		text, err := files.Read(path, cli.MaxInput)
		if err != nil {
			return err
		}
		file, err := recording.Decode(text)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		list = append(list, file)
		return nil
	})
	if err == nil && len(list) == 0 {
		err = cli.No(errors.New("no process has recorded a communicator: is NCCL linked into the program, or does the " +
			"program open libnccl.so.2 by a path? Some programs take the path from VLLM_NCCL_SO_PATH"))
	}
	return list, err
}
