package schedule

// entry is one algorithm of one collective.
type entry struct {
	name    string
	build   func(*builder)
	pow2    bool                          // defined only for powers of two
	param   *parameter                    // nil: the algorithm has none
	orderOf func(n int, args []int) []int // default order of its steps; nil if the order is fixed
	halves  bool                          // an AllReduce whose two halves have separate orders
}

// parameter describes the parameter of an algorithm.
type parameter struct {
	what     string // for errors
	maxCount int    // of numbers
	minValue int    // of each number
	// defaultValue returns the only number if the name has none; nil: there is no default.
	defaultValue func(n int) int
	valid        func(n int, args []int) bool // nil: valid for all numbers of ranks
}

// algorithms lists the algorithms of Build; the first of a collective is the simplest.
var algorithms = [NumCollectives][]entry{
	AllReduce: {
		{name: "ring", build: ringAllReduce, param: directions},
		{name: "recursive-doubling", build: cyclicAllReduce, orderOf: digits, halves: true},
		{name: "recursive-doubling-xor", build: xorAllReduce, orderOf: cubeBits},
		{name: "rabenseifner", build: rabenseifnerAllReduce, orderOf: cubeBits, halves: true},
		{name: "swing", build: swingAllReduce, param: torus},
		{name: "bruck", build: bruckAllReduce, param: radix, orderOf: downDigits, halves: true},
		{name: "hierarchical-ring", build: hierarchicalAllReduce, param: group},
		{name: "double-binary-tree", build: doubleTreeAllReduce, param: chunks},
		{name: "direct", build: directAllReduce},
	},
	Broadcast: {
		{name: "ring", build: ringBroadcast},
		{name: "binomial", build: binomialBroadcast},
		{name: "binary-tree", build: binaryTree, param: chunks},
		{name: "double-binary-tree", build: doubleTreeRooted, param: chunks},
		{name: "direct", build: directBroadcast},
	},
	Reduce: {
		{name: "ring", build: ringReduce},
		{name: "binomial", build: binomialReduce},
		{name: "binary-tree", build: binaryTree, param: chunks},
		{name: "double-binary-tree", build: doubleTreeRooted, param: chunks},
		{name: "direct", build: directReduce},
	},
	AllGather: {
		{name: "ring", build: ringAllGather, param: directions},
		{name: "recursive-doubling", build: cyclicAllGather, orderOf: downDigits},
		{name: "recursive-doubling-xor", build: xorAllGather, orderOf: cubeBits},
		{name: "swing", build: swingAllGather, param: torus},
		{name: "bruck", build: bruckAllGather, param: radix, orderOf: digits},
		{name: "hierarchical-ring", build: hierarchicalAllGather, param: group},
		{name: "pairwise", build: pairwiseAllGather, param: width, orderOf: offsets},
		{name: "pairwise-xor", build: xorPairAllGather, pow2: true, param: width, orderOf: offsets},
		{name: "round-robin", build: roundAllGather, param: width, orderOf: rounds},
		{name: "direct", build: directAllGather},
	},
	ReduceScatter: {
		{name: "ring", build: ringReduceScatter, param: directions},
		{name: "recursive-doubling", build: cyclicReduceScatter, orderOf: digits},
		{name: "recursive-doubling-xor", build: rabenseifnerReduceScatter, orderOf: downBits},
		{name: "rabenseifner", build: rabenseifnerReduceScatter, orderOf: cubeBits},
		{name: "swing", build: swingReduceScatter, param: torus},
		{name: "bruck", build: bruckReduceScatter, param: radix, orderOf: downDigits},
		{name: "hierarchical-ring", build: hierarchicalReduceScatter, param: group},
		{name: "pairwise", build: pairwiseReduceScatter, param: width, orderOf: offsets},
		{name: "pairwise-xor", build: xorPairReduceScatter, pow2: true, param: width, orderOf: offsets},
		{name: "round-robin", build: roundReduceScatter, param: width, orderOf: rounds},
		{name: "direct", build: directReduceScatter},
	},
	AllToAll: {
		{name: "pairwise", build: pairwiseAllToAll, param: width, orderOf: offsets},
		{name: "pairwise-xor", build: xorAllToAll, pow2: true, param: width, orderOf: offsets},
		{name: "round-robin", build: roundAllToAll, param: width, orderOf: rounds},
		{name: "pod-pairwise", build: podAllToAll, param: group},
		{name: "bruck", build: bruckAllToAll, param: radix, orderOf: digits},
		{name: "direct", build: directAllToAll},
	},
	Gather: {
		{name: "binomial", build: binomialGather},
		{name: "direct", build: directGather},
	},
	Scatter: {
		{name: "binomial", build: binomialScatter},
		{name: "direct", build: directScatter},
	},
	SendRecv: {
		{name: "direct", build: shiftSendRecv},
		{name: "pairwise", build: shiftSendRecv},
	},
}
