package train

// Model is the shape of a transformer.
type Model struct {
	Name   string
	Layers int
	Hidden int
	Vocab  int // rows of the embedding, and of the separate output matrix

	Heads int
	// AttentionParams is the number of parameters of one layer's attention.
	AttentionParams float64
	// HeadDims is the sum of the dimensions of a head that attention multiplies by: query/key plus
	// value.
	HeadDims int

	FFN      int  // inner dimension of a dense layer's MLP
	Gated    bool // three matrices in an MLP instead of two
	Experts  int  // 0: all layers are dense
	TopK     int  // experts that a token visits
	Shared   int  // experts that every token visits, besides
	Expert   int  // inner dimension of an expert
	DenseTop int  // how many of the first layers are dense although there are experts
}

// mlpParams returns the parameters of one MLP of the given inner dimension.
func (m *Model) mlpParams(inner int) float64 {
	matrices := 2
	if m.Gated {
		matrices = 3
	}
	return float64(matrices) * float64(m.Hidden) * float64(inner)
}

// moe reports whether layer i has experts.
func (m *Model) moe(i int) bool { return m.Experts > 0 && i >= m.DenseTop }

// layerParams returns the parameters of layer i, and how many of them a token uses.
func (m *Model) layerParams(i int) (all, active float64) {
	if !m.moe(i) {
		n := m.AttentionParams + m.mlpParams(m.FFN)
		return n, n
	}
	one := m.mlpParams(m.Expert)
	return m.AttentionParams + float64(m.Experts+m.Shared)*one, m.AttentionParams + float64(m.TopK+m.Shared)*one
}

// embeddingParams returns the parameters of the embedding and of the output matrix.
func (m *Model) embeddingParams() float64 { return float64(m.Vocab) * float64(m.Hidden) }

// multiHead returns the parameters of attention with full heads.
func multiHead(hidden int) float64 { return 4 * float64(hidden) * float64(hidden) }

// grouped returns the parameters of attention whose keys and values are shared by groups of heads.
func grouped(hidden, heads, kvHeads int) float64 {
	h := float64(hidden)
	return 2*h*h + 2*h*h*float64(kvHeads)/float64(heads)
}

// models returns the models of DELTA's evaluation and of its example. The shapes are public: GPT-3's and the largest of
// Megatron-LM's benchmark table, with a vocabulary of 131072; Mixtral 8x22B's and DeepSeek-V3's published
// configurations; a GPT of 32 layers.
func models() []Model {
	return []Model{
		{Name: "gpt-7b", Layers: 32, Hidden: 4096, Vocab: 50304, Heads: 32, AttentionParams: multiHead(4096), HeadDims: 256,
			FFN: 4 * 4096},
		{Name: "megatron-177b", Layers: 96, Hidden: 12288, Vocab: 131072, Heads: 96, AttentionParams: multiHead(12288),
			HeadDims: 256, FFN: 4 * 12288},
		{Name: "mixtral-8x22b", Layers: 56, Hidden: 6144, Vocab: 32768, Heads: 48, AttentionParams: grouped(6144, 48, 8),
			HeadDims: 256,
			Gated:    true, Experts: 8, TopK: 2, Expert: 16384},
		{Name: "megatron-462b", Layers: 112, Hidden: 18432, Vocab: 131072, Heads: 96, AttentionParams: multiHead(18432),
			HeadDims: 384, FFN: 4 * 18432},
		{Name: "deepseek-671b", Layers: 61, Hidden: 7168, Vocab: 129280, Heads: 128, AttentionParams: latent,
			HeadDims: 192 + 128,
			FFN:      18432, Gated: true, Experts: 256, TopK: 8, Shared: 1, Expert: 2048, DenseTop: 3},
	}
}

// latent is the parameters of DeepSeek-V3's attention: queries through 1536 dimensions, keys and values
// through 512, 64 of position; heads of 128 + 64 and 128.
const latent = 7168*1536 + 1536*128*(128+64) + 7168*(512+64) + 512*128*(128+128) + 128*128*7168
