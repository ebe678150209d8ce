package sharedmem

import (
	"fmt"
	"testing"

	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule"
)

// BenchmarkAlone measures the CPU time of calls without waiting: one goroutine runs two ranks by turns.
func BenchmarkAlone(b *testing.B) {
	for _, count := range []int{2, 256, 1 << 14, 1 << 18} {
		b.Run(fmt.Sprint(4*count), func(b *testing.B) {
			g := newGroup(b, 2, 1)
			j := &job{coll: schedule.AllReduce, typ: datatype.Float32, count: count}
			g.bind(b, j)
			calls := [2]Call{j.ops[0].Call, j.ops[1].Call}
			b.SetBytes(int64(4 * count))
			for b.Loop() {
				for r, op := range j.ops {
					calls[r].Seq++
					op.Bind(g.arenas[r], &calls[r])
				}
				for left := 3; left > 0; {
					for r, op := range j.ops {
						if left&(1<<r) == 0 {
							continue
						}
						_, done, err := op.Poll()
						if err != nil {
							b.Fatal(err)
						}
						if done {
							left &^= 1 << r
						}
					}
				}
			}
		})
	}
}
