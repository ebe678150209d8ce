package workload

import (
	"math"
	"math/rand/v2"

	"lightpath/plans"
)

// source returns the random generator of a seed.
func source(seed int64) *rand.Rand { return rand.New(rand.NewPCG(uint64(seed), 0x9e3779b97f4a7c15)) }

func square(n int) [][]float64 {
	d, cells := make([][]float64, n), make([]float64, n*n)
	for r := range d {
		d[r] = cells[r*n : (r+1)*n : (r+1)*n]
	}
	return d
}

// addNoise adds Gaussian noise of standard deviation sigma to the nonzero entries. Entries stay positive: an entry that
// noise would erase keeps a hundredth of its size.
func addNoise(d [][]float64, sigma float64, rng *rand.Rand) {
	for _, row := range d {
		for c, v := range row {
			if v > 0 {
				row[c] = math.Max(v/100, v+sigma*rng.NormFloat64())
			}
		}
	}
}

// Noisy returns d with Gaussian noise of standard deviation sigma on its nonzero entries,
// which stay positive. It does not change d.
func Noisy(d [][]float64, sigma float64, seed int64) [][]float64 {
	c := square(len(d))
	for r := range d {
		copy(c[r], d[r])
	}
	addNoise(c, sigma, source(seed))
	return c
}

// Benchmark is SPECTRA's workload 3 (Section V-A), as a share of a port's rate: the sum of m random permutations of n
// ports. A quarter of them (4 of 16) are large and evenly share 0.7 of the rate; the others are small and evenly share
// 0.3. Then noise of standard deviation sigma (0.003 in the paper) is added to all entries except zeros. With m below 4
// one flow is large.
func Benchmark(n, m int, sigma float64, seed int64) [][]float64 {
	rng := source(seed)
	d := square(n)
	large := max(1, m/4)
	small := m - large
	for i := range m {
		w := 1 / float64(m)
		switch {
		case small == 0:
		case i < large:
			w = 0.7 / float64(large)
		default:
			w = 0.3 / float64(small)
		}
		for s, t := range rng.Perm(n) {
			d[s][t] += w
		}
	}
	addNoise(d, sigma, rng)
	return d
}

// GPTOptions place a model on ranks as DeepSpeed does by default: tensor-parallel neighbours first, then data-parallel,
// then pipeline stages.
type GPTOptions struct {
	Tensor, Data, Pipeline int // their product is the number of ranks
	// TensorBytes, DataBytes and PipelineBytes are the relative amounts that a rank sends per iteration in each
	// dimension. Rings carry tensor and data traffic; stages send activations forward and gradients back.
	TensorBytes, DataBytes, PipelineBytes float64
	Sigma                                 float64 // of the noise, as a share of a port's rate
	Seed                                  int64
}

// GPT3B are the options of a synthetic substitute for SPECTRA's workload 1, which is not published: the 32 x 32 matrix
// of a 3-billion-parameter GPT. It has 32 ranks as 4 tensor x 2 data x 4 pipeline, with mostly tensor traffic.
func GPT3B(seed int64) GPTOptions {
	return GPTOptions{Tensor: 4, Data: 2, Pipeline: 4, TensorBytes: 12, DataBytes: 4, PipelineBytes: 1, Sigma: 0.003,
		Seed: seed}
}

// GPT is synthetic traffic of a model trained with tensor, data and pipeline parallelism. It is made doubly stochastic
// as the paper does, then perturbed: sparse and strongly skewed. Within a tensor group, a rank sends to the next rank
// of the ring, and a fifth of that to the previous rank (bidirectional rings of unequal use). The volumes of ranks
// differ by up to 20 %, so no two rows are alike.
func GPT(o GPTOptions) [][]float64 {
	rng := source(o.Seed)
	n := o.Tensor * o.Data * o.Pipeline
	d := square(n)
	rank := func(p, dp, t int) int { return (p*o.Data+dp)*o.Tensor + t }
	add := func(from, to int, bytes float64) {
		if from != to && bytes > 0 {
			d[from][to] += bytes * (0.9 + 0.2*rng.Float64())
		}
	}
	for p := range o.Pipeline {
		for dp := range o.Data {
			for t := range o.Tensor {
				me := rank(p, dp, t)
				add(me, rank(p, dp, (t+1)%o.Tensor), o.TensorBytes)
				add(me, rank(p, dp, (t+o.Tensor-1)%o.Tensor), o.TensorBytes/5)
				add(me, rank(p, (dp+1)%o.Data, t), o.DataBytes)
				if p+1 < o.Pipeline {
					add(me, rank(p+1, dp, t), o.PipelineBytes)
				}
				if p > 0 {
					add(me, rank(p-1, dp, t), o.PipelineBytes)
				}
			}
		}
	}
	sinkhorn(d, 1e-9, 10000)
	addNoise(d, o.Sigma, rng)
	return d
}

// sinkhorn scales rows and columns in turn until every nonempty one sums to 1 within
// tolerance, or for the given number of rounds. If the support of a matrix carries no doubly stochastic matrix, the
// scaling does not converge, and the result is that of the last round.
func sinkhorn(d [][]float64, tolerance float64, rounds int) {
	for range rounds {
		worst := 0.0
		for _, row := range d {
			scale(row, sum(row))
		}
		for c := range d {
			total := 0.0
			for r := range d {
				total += d[r][c]
			}
			if total == 0 {
				continue
			}
			worst = math.Max(worst, math.Abs(total-1))
			for r := range d {
				d[r][c] /= total
			}
		}
		if worst <= tolerance {
			return
		}
	}
}

func sum(row []float64) float64 {
	total := 0.0
	for _, v := range row {
		total += v
	}
	return total
}

func scale(row []float64, by float64) {
	if by == 0 {
		return
	}
	for i := range row {
		row[i] /= by
	}
}

// MoEOptions describe the token traffic of a Mixture-of-Experts layer.
type MoEOptions struct {
	Ranks   int     // one expert each
	TopK    int     // experts per token
	Tokens  int     // per rank
	Spread  float64 // sigma of the log-normal popularity of experts
	Affine  float64 // sigma of the log-normal taste of each rank for each expert
	PerNode int     // ranks per node, whose tokens have a taste in common
	Seed    int64
}

// Qwen2MoE are the options of a synthetic substitute for SPECTRA's workload 2, which is not published: the 64 x 64
// token counts of Qwen2-57B on 8 nodes of 8 ranks. It has 64 experts and 8 per token, and is dense and slightly uneven.
func Qwen2MoE(seed int64) MoEOptions {
	return MoEOptions{Ranks: 64, TopK: 8, Tokens: 1024, Spread: 0.35, Affine: 0.15, PerNode: 8, Seed: seed}
}

// MoE is synthetic token traffic: every token of a rank goes to TopK experts drawn without
// replacement by popularity (log-normal) times the taste of the token's node and rank. An
// entry is a number of tokens, divided by the largest row or column sum, so that the busiest
// port carries 1; the diagonal has the tokens that a rank keeps.
func MoE(o MoEOptions) [][]float64 {
	rng := source(o.Seed)
	n := o.Ranks
	d := square(n)
	popular := make([]float64, n)
	for e := range popular {
		popular[e] = math.Exp(o.Spread * rng.NormFloat64())
	}
	var node []float64
	keys := make([]float64, n)
	for r := range n {
		if o.PerNode > 0 && r%o.PerNode == 0 || node == nil {
			node = make([]float64, n)
			for e := range node {
				node[e] = popular[e] * math.Exp(o.Affine*rng.NormFloat64())
			}
		}
		taste := make([]float64, n)
		for e := range taste {
			taste[e] = node[e] * math.Exp(o.Affine*rng.NormFloat64())
		}
		for range o.Tokens {
			route(d[r], taste, keys, min(o.TopK, n), rng)
		}
	}
	Normalise(d)
	return d
}

// route sends one token to the k experts with the least exponential clocks, which draws
// without replacement in proportion to taste.
func route(row, taste, keys []float64, k int, rng *rand.Rand) {
	for e := range keys {
		keys[e] = rng.ExpFloat64() / taste[e]
	}
	for range k {
		first := 0
		for e := range keys {
			if keys[e] < keys[first] {
				first = e
			}
		}
		row[first]++
		keys[first] = math.Inf(1)
	}
}

// Normalise divides d by its largest row or column sum, so that the busiest port carries 1.
// A matrix of zeros stays as it is.
func Normalise(d [][]float64) {
	most := plans.Busiest(d)
	for _, row := range d {
		scale(row, most)
	}
}
