package schedule

// Packets returns what a schedule asks of packet planes, which join all ranks. rounds is the longest chain of transfers
// of which each sends what the one before has brought; steps that do not depend on each other overlap there. chunks is
// the [Schedule.Volume].
func (s *Schedule) Packets() (rounds, chunks int) {
	d := newDepths(s)
	d.local(s.Pre)
	for i := range s.Steps {
		d.transfers(s.Steps[i].Transfers)
		d.local(s.Steps[i].Post)
	}
	return d.most, s.Volume()
}

// PacketLoad returns the rounds of [Schedule.Packets], and the bytes of the busiest rank. The bytes of the call are as
// nccl-tests counts them (see [Schedule.ChunkBytes]).
func (s *Schedule) PacketLoad(bytes float64) (rounds int, busiest float64) {
	rounds, chunks := s.Packets()
	return rounds, s.ChunkBytes(chunks, bytes)
}

// Volume returns the sum over steps of the chunks that the busiest rank sends or receives.
func (s *Schedule) Volume() (chunks int) {
	sent, received := make([]int, s.Ranks), make([]int, s.Ranks)
	for i := range s.Steps {
		clear(sent)
		clear(received)
		most := 0
		for _, m := range s.Steps[i].Transfers {
			sent[m.Src] += m.Count
			received[m.Dst] += m.Count
			most = max(most, sent[m.Src], received[m.Dst])
		}
		chunks += most
	}
	return chunks
}

// depths counts, for each chunk of each buffer, the transfers that have made it, one after the other.
type depths struct {
	at   [][NumBuffers][]int // by rank, buffer and chunk
	most int
}

func newDepths(s *Schedule) *depths {
	d := &depths{at: make([][NumBuffers][]int, s.Ranks)}
	for r := range d.at {
		for b := range d.at[r] {
			d.at[r][b] = make([]int, s.Blocks[b]*s.Sub)
		}
	}
	return d
}

// transfers moves chunks between ranks. All read the state before the step.
func (d *depths) transfers(moves []Move) {
	type arrival struct {
		at    *int
		depth int
	}
	var all []arrival
	for i := range moves {
		m := &moves[i]
		from, to := d.at[m.Src][m.From.Buf][m.From.Chunk:], d.at[m.Dst][m.To.Buf][m.To.Chunk:]
		for k := range m.Count {
			depth := from[k] + 1
			if m.Reduce {
				depth = max(depth, to[k])
			}
			all = append(all, arrival{&to[k], depth})
			d.most = max(d.most, depth)
		}
	}
	for _, a := range all {
		*a.at = a.depth
	}
}

// local moves chunks inside ranks, one move after the other.
func (d *depths) local(moves []Move) {
	for i := range moves {
		m := &moves[i]
		from, to := d.at[m.Src][m.From.Buf][m.From.Chunk:], d.at[m.Dst][m.To.Buf][m.To.Chunk:]
		for k := range m.Count {
			depth := from[k]
			if m.Reduce {
				depth = max(depth, to[k])
			}
			to[k] = depth
		}
	}
}
