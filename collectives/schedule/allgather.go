package schedule

// bruckAllGather is the concatenation algorithm of Bruck et al. 1997: rank r has the
// blocks r, r+1, ..., r+2^k-1 and sends them (at the end only as many as are missing) to
// r-2^k; ceil(log2 n) steps of 1, 2, 4, ... blocks, (n-1)/n of S per rank, any n.
func bruckAllGather(b *builder) {
	b.loadOwn()
	for d := 1; d < b.n; d *= 2 {
		b.step()
		for r := range b.n {
			for j := range min(d, b.n-d) {
				at := Ref{Output, b.mod(r + j)}
				b.send(r, b.mod(r-d), at, at, 1)
			}
		}
	}
}

// pairwiseAllGather: in step i rank r sends its block to r+i; n-1 steps of one block.
func pairwiseAllGather(b *builder) {
	b.loadOwn()
	for i := 1; i < b.n; i++ {
		b.step()
		for r := range b.n {
			b.send(r, b.mod(r+i), Ref{Output, r}, Ref{Output, r}, 1)
		}
	}
}

// directAllGather is one step in which every rank sends its block to all others.
func directAllGather(b *builder) {
	b.loadOwn()
	b.step()
	for r := range b.n {
		for i := 1; i < b.n; i++ {
			b.send(r, b.mod(r+i), Ref{Output, r}, Ref{Output, r}, 1)
		}
	}
}
