package exec

import (
	"fmt"
	"testing"

	"lightpath/collectives/datatype"
	"lightpath/collectives/program"
	"lightpath/collectives/program/programtest"
	"lightpath/collectives/schedule"
	"lightpath/collectives/transport/inproc"
	"lightpath/internal/require"
)

// BenchmarkAllReduce drives all ranks from one goroutine. It measures the cost of the engine per call.
func BenchmarkAllReduce(b *testing.B) {
	for _, tc := range []struct {
		n         int
		algorithm string
		count     int64
	}{{2, "recursive-doubling-xor", 2}, {8, "recursive-doubling-xor", 2}, {8, "ring", 2}, {8, "ring", 1 << 18}} {
		b.Run(fmt.Sprintf("%s/%d/%d", tc.algorithm, tc.n, tc.count*4), func(b *testing.B) {
			s, err := schedule.Build(schedule.AllReduce, tc.algorithm, tc.n, 0)
			require.NoError(b, err)
			progs, err := lowerAll(s, nil, program.Args{Planes: 2, Count: tc.count, ElemSize: 4})
			require.NoError(b, err)
			endpoints, err := inproc.NewGroup(tc.n, 2, inproc.Options{})
			require.NoError(b, err)
			tm := assemble(b, programtest.NewCase(s, tc.count, 1, 1), progs, false,
				func(r int, c *Call) { c.Endpoint = endpoints[r] })
			tm.tasks[0].Trace(false)
			op := uint64(3)
			b.ReportAllocs()
			b.SetBytes(tc.count * 4)
			for b.Loop() {
				op++
				for _, task := range tm.tasks {
					c := task.call
					c.Op = op
					require.NoError(b, task.Bind(c))
				}
				require.NoError(b, Run(tm.tasks, patience))
			}
		})
	}
}

// BenchmarkConcurrent runs every rank on a goroutine, similar to one process per rank.
func BenchmarkConcurrent(b *testing.B) {
	for _, n := range []int{2, 8} {
		for _, count := range []int64{2, 1 << 18} {
			b.Run(fmt.Sprintf("%d/%d", n, count*4), func(b *testing.B) {
				algorithm := "recursive-doubling-xor"
				if count > 2 {
					algorithm = "rabenseifner"
				}
				s, err := schedule.Build(schedule.AllReduce, algorithm, n, 0)
				require.NoError(b, err)
				progs, err := lowerAll(s, nil, program.Args{Planes: 1, Count: count, ElemSize: 4})
				require.NoError(b, err)
				endpoints, err := inproc.NewGroup(n, 1, inproc.Options{})
				require.NoError(b, err)
				reduce := datatype.Reduce(datatype.Sum, datatype.Float32)
				tm := assemble(b, programtest.NewCase(s, count, 1, 1), progs, false, func(r int, c *Call) {
					c.Endpoint, c.Reduce = endpoints[r], reduce
				})
				tm.tasks[0].Trace(false)
				b.SetBytes(count * 4)
				errs := make(chan error, n)
				for _, task := range tm.tasks {
					go func() { errs <- repeat(task, b.N) }()
				}
				for range tm.tasks {
					require.NoError(b, <-errs)
				}
			})
		}
	}
}

func repeat(task *Task, times int) error {
	o := &Options{Spin: 50, Yield: 200, Timeout: patience.Timeout}
	for i := range times {
		c := task.call
		c.Op = uint64(4 + i)
		if err := task.Bind(c); err != nil {
			return err
		}
		if err := Run([]*Task{task}, o); err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkLower measures the lowering of a new shape of call.
func BenchmarkLower(b *testing.B) {
	for _, n := range []int{8, 64} {
		for _, algorithm := range []string{"ring", "rabenseifner"} {
			b.Run(fmt.Sprintf("%s/%d", algorithm, n), func(b *testing.B) {
				s, err := schedule.Build(schedule.AllReduce, algorithm, n, 0)
				require.NoError(b, err)
				for b.Loop() {
					if _, err := program.Lower(s, nil, program.Args{Planes: 4, Count: 1 << 24, ElemSize: 4}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
