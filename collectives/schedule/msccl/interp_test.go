package msccl_test

import (
	"encoding/xml"
	"errors"
	"fmt"
	"math/rand/v2"

	"lightpath/collectives/schedule"
)

// The interpreter runs a file on numbers, as a runtime would. It shares no code with the package. Each thread block has
// a program counter, and each connection has a queue with a number of slots.

type xmlAlgo struct {
	Coll          string   `xml:"coll,attr"`
	ChunksPerLoop int      `xml:"nchunksperloop,attr"`
	InPlace       int      `xml:"inplace,attr"`
	GPUs          []xmlGPU `xml:"gpu"`
}

type xmlGPU struct {
	ID      int     `xml:"id,attr"`
	Scratch int     `xml:"s_chunks,attr"`
	TBs     []xmlTB `xml:"tb"`
}

type xmlTB struct {
	ID    int       `xml:"id,attr"`
	Send  int       `xml:"send,attr"`
	Recv  int       `xml:"recv,attr"`
	Chan  int       `xml:"chan,attr"`
	Steps []xmlStep `xml:"step"`
}

type xmlStep struct {
	Type   string `xml:"type,attr"`
	SrcBuf string `xml:"srcbuf,attr"`
	SrcOff int    `xml:"srcoff,attr"`
	DstBuf string `xml:"dstbuf,attr"`
	DstOff int    `xml:"dstoff,attr"`
	Cnt    int    `xml:"cnt,attr"`
	DepID  int    `xml:"depid,attr"`
	Deps   int    `xml:"deps,attr"`
	HasDep int    `xml:"hasdep,attr"`
}

type pipe struct{ src, dst, channel int }

type runtime struct {
	algo  xmlAlgo
	slots int
	mem   []map[string][]int64 // per GPU: i, o, s
	fifo  map[pipe][][]int64
	done  []map[int]int // per GPU and thread block: number of steps that have ended
	// tail holds the data to be sent by a fused step whose receiving half has ended.
	tail []map[int][]int64
}

var errStuck = errors.New("deadlock")

// interpret runs a file on random inputs, with a random order of thread blocks. It returns the inputs and outputs by
// GPU.
func interpret(text []byte, c schedule.Collective, root int, slots int, rng *rand.Rand) (in, out [][]int64, err error) {
	m := &runtime{slots: slots, fifo: map[pipe][][]int64{}}
	if err := xml.Unmarshal(text, &m.algo); err != nil {
		return nil, nil, err
	}
	m.allocate(c, root, rng)
	for r := range m.algo.GPUs {
		in = append(in, append([]int64(nil), m.mem[r]["i"]...))
	}
	for {
		moved, left := false, false
		for _, r := range rng.Perm(len(m.algo.GPUs)) {
			g := &m.algo.GPUs[r]
			for _, k := range rng.Perm(len(g.TBs)) {
				tb := &g.TBs[k]
				for range 1 + rng.IntN(3) {
					if m.done[g.ID][tb.ID] < len(tb.Steps) && m.step(g.ID, tb) {
						moved = true
					}
				}
				left = left || m.done[g.ID][tb.ID] < len(tb.Steps)
			}
		}
		if !left {
			break
		}
		if !moved {
			return nil, nil, errStuck
		}
	}
	for p, q := range m.fifo {
		if len(q) > 0 {
			return nil, nil, fmt.Errorf("%d messages from %d to %d were not received", len(q), p.src, p.dst)
		}
	}
	for r := range m.algo.GPUs {
		out = append(out, m.mem[r]["o"])
	}
	return in, out, nil
}

// allocate allocates the buffers with random contents. In place, input and output overlap.
func (m *runtime) allocate(c schedule.Collective, root int, rng *rand.Rand) {
	n := len(m.algo.GPUs)
	size := m.algo.ChunksPerLoop
	in, out := size, size
	switch c {
	case schedule.AllGather, schedule.Gather:
		in = size / n
	case schedule.ReduceScatter, schedule.Scatter:
		out = size / n
	}
	fill := func(k int) []int64 {
		v := make([]int64, k)
		for i := range v {
			v[i] = rng.Int64N(1 << 40)
		}
		return v
	}
	for r := range n {
		mem := map[string][]int64{"i": fill(in), "o": fill(out)}
		if m.algo.InPlace == 1 {
			switch {
			case c == schedule.AllGather || c == schedule.Gather && r == root:
				mem["i"] = mem["o"][r*in : (r+1)*in]
			case c == schedule.ReduceScatter || c == schedule.Scatter && r == root:
				mem["o"] = mem["i"][r*out : (r+1)*out]
			case c == schedule.AllReduce || c == schedule.AllToAll || r == root:
				mem["o"] = mem["i"]
			}
		}
		m.mem = append(m.mem, mem)
		m.done = append(m.done, map[int]int{})
		m.tail = append(m.tail, map[int][]int64{})
	}
	for k := range m.algo.GPUs {
		g := &m.algo.GPUs[k]
		m.mem[g.ID]["s"] = fill(g.Scratch)
	}
}

// step runs a step of a thread block, or one half of a fused step. It returns false if the step must wait.
func (m *runtime) step(r int, tb *xmlTB) bool {
	st := &tb.Steps[m.done[r][tb.ID]]
	if st.DepID >= 0 && m.done[r][st.DepID] <= st.Deps {
		return false
	}
	to, from := pipe{r, tb.Send, tb.Chan}, pipe{tb.Recv, r, tb.Chan}
	at := func(buf string, off int) []int64 { return m.mem[r][buf][off : off+st.Cnt] }
	sends := st.Type == "s" || st.Type == "rcs" || st.Type == "rrs" || st.Type == "rrcs"
	if st.Type[0] == 'r' && st.Type != "re" && m.tail[r][tb.ID] == nil {
		if len(m.fifo[from]) == 0 {
			return false
		}
		v := m.fifo[from][0]
		m.fifo[from] = m.fifo[from][1:]
		if len(v) != st.Cnt {
			panic("a message of another size")
		}
		if st.Type != "r" && st.Type != "rcs" {
			sum := make([]int64, st.Cnt)
			for i, own := range at(st.DstBuf, st.DstOff) {
				sum[i] = own + v[i]
			}
			v = sum
		}
		if st.Type != "rrs" {
			copy(at(st.DstBuf, st.DstOff), v)
		}
		if sends {
			m.tail[r][tb.ID] = v
			return true
		}
	}
	switch {
	case sends:
		if len(m.fifo[to]) >= m.slots {
			return false
		}
		v := m.tail[r][tb.ID]
		if v == nil {
			v = append([]int64(nil), at(st.SrcBuf, st.SrcOff)...)
		}
		m.fifo[to] = append(m.fifo[to], v)
		delete(m.tail[r], tb.ID)
	case st.Type == "cpy":
		copy(at(st.DstBuf, st.DstOff), at(st.SrcBuf, st.SrcOff))
	case st.Type == "re":
		dst := at(st.DstBuf, st.DstOff)
		for i, v := range at(st.SrcBuf, st.SrcOff) {
			dst[i] += v
		}
	}
	m.done[r][tb.ID]++
	return true
}

// wrong returns an error if the outputs are not those of the collective for the inputs.
func wrong(c schedule.Collective, root int, in, out [][]int64) error {
	n := len(in)
	sum := func(chunk int) (v int64) {
		for r := range in {
			v += in[r][chunk]
		}
		return v
	}
	for r := range out {
		for k, got := range out[r] {
			var want int64
			switch c {
			case schedule.AllReduce:
				want = sum(k)
			case schedule.Reduce:
				if want = sum(k); r != root {
					continue
				}
			case schedule.ReduceScatter:
				want = sum(r*len(out[r]) + k)
			case schedule.AllGather:
				want = in[k/len(in[r])][k%len(in[r])]
			case schedule.Gather:
				if want = in[k/len(in[r])][k%len(in[r])]; r != root {
					continue
				}
			case schedule.AllToAll:
				sub := len(out[r]) / n
				want = in[k/sub][r*sub+k%sub]
			case schedule.Broadcast:
				want = in[root][k]
			case schedule.Scatter:
				want = in[root][r*len(out[r])+k]
			case schedule.SendRecv:
				want = in[(r+n-1)%n][k]
			}
			if got != want {
				return fmt.Errorf("rank %d chunk %d: %d, want %d", r, k, got, want)
			}
		}
	}
	return nil
}
