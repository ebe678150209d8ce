package exec

import (
	"fmt"
	"testing"

	"lightpath/collectives/program"
	"lightpath/collectives/program/programtest"
	"lightpath/collectives/schedule"
	"lightpath/collectives/transport/inproc"
)

// BenchmarkAllReduce drives all ranks from one goroutine: the engine's own cost a call.
func BenchmarkAllReduce(b *testing.B) {
	for _, tc := range []struct {
		n         int
		algorithm string
		count     int64
	}{{2, "recursive-doubling-xor", 2}, {8, "recursive-doubling-xor", 2}, {8, "ring", 2}, {8, "ring", 1 << 18}} {
		b.Run(fmt.Sprintf("%s/%d/%d", tc.algorithm, tc.n, tc.count*4), func(b *testing.B) {
			s, err := schedule.Build(schedule.AllReduce, tc.algorithm, tc.n, 0)
			if err != nil {
				b.Fatal(err)
			}
			progs, err := program.LowerAll(s, nil, program.Args{Planes: 2, Count: tc.count, ElemSize: 4})
			if err != nil {
				b.Fatal(err)
			}
			endpoints, err := inproc.NewGroup(tc.n, 2, inproc.Options{})
			if err != nil {
				b.Fatal(err)
			}
			tm := assemble(b, programtest.NewCase(s, tc.count, 1, 1), progs, false, func(r int, c *Call) { c.Endpoint = endpoints[r] })
			tm.tasks[0].Trace(false)
			op := uint64(3)
			b.ReportAllocs()
			b.SetBytes(tc.count * 4)
			for b.Loop() {
				op++
				for _, task := range tm.tasks {
					c := task.call
					c.Op = op
					if err := task.Bind(c); err != nil {
						b.Fatal(err)
					}
				}
				if err := Run(tm.tasks, patience); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkLower is what a call shape costs once.
func BenchmarkLower(b *testing.B) {
	for _, n := range []int{8, 64} {
		for _, algorithm := range []string{"ring", "rabenseifner"} {
			b.Run(fmt.Sprintf("%s/%d", algorithm, n), func(b *testing.B) {
				s, err := schedule.Build(schedule.AllReduce, algorithm, n, 0)
				if err != nil {
					b.Fatal(err)
				}
				for b.Loop() {
					if _, err := program.Lower(s, nil, program.Args{Planes: 4, Count: 1 << 24, ElemSize: 4}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
