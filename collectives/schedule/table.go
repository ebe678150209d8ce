package schedule

// entry is one algorithm of one collective.
type entry struct {
	name   string
	build  func(*builder)
	pow2   bool // defined for powers of two only
	param  *parameter
	free   func(n int, args []int) []int // what its steps may be taken in any order of; the default
	halves bool                          // an AllReduce that orders its two halves one by one
}

// parameter says what may follow an algorithm's name.
type parameter struct {
	what  string // for errors
	most  int    // numbers
	least int    // of each of them
	// usual is the number that stands in for none; nil: none is none.
	usual func(n int) int
	fits  func(n int, args []int) bool // nil: whatever the ranks
}

// algorithms lists what Build knows; the first of a collective is its plainest.
var algorithms = [NumCollectives][]entry{
	AllReduce: {
		{name: "ring", build: ringAllReduce, param: directions},
		{name: "recursive-doubling", build: cyclicAllReduce, free: digits, halves: true},
		{name: "recursive-doubling-xor", build: xorAllReduce, free: cubeBits},
		{name: "rabenseifner", build: rabenseifnerAllReduce, free: cubeBits, halves: true},
		{name: "swing", build: swingAllReduce, param: torus},
		{name: "bruck", build: bruckAllReduce, param: radix, free: downDigits, halves: true},
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
		{name: "recursive-doubling", build: cyclicAllGather, free: downDigits},
		{name: "recursive-doubling-xor", build: xorAllGather, free: cubeBits},
		{name: "swing", build: swingAllGather, param: torus},
		{name: "bruck", build: bruckAllGather, param: radix, free: digits},
		{name: "hierarchical-ring", build: hierarchicalAllGather, param: group},
		{name: "pairwise", build: pairwiseAllGather, param: width, free: offsets},
		{name: "pairwise-xor", build: xorPairAllGather, pow2: true, param: width, free: offsets},
		{name: "round-robin", build: roundAllGather, param: width, free: rounds},
		{name: "direct", build: directAllGather},
	},
	ReduceScatter: {
		{name: "ring", build: ringReduceScatter, param: directions},
		{name: "recursive-doubling", build: cyclicReduceScatter, free: digits},
		{name: "recursive-doubling-xor", build: rabenseifnerReduceScatter, free: downBits},
		{name: "rabenseifner", build: rabenseifnerReduceScatter, free: cubeBits},
		{name: "swing", build: swingReduceScatter, param: torus},
		{name: "bruck", build: bruckReduceScatter, param: radix, free: downDigits},
		{name: "hierarchical-ring", build: hierarchicalReduceScatter, param: group},
		{name: "pairwise", build: pairwiseReduceScatter, param: width, free: offsets},
		{name: "pairwise-xor", build: xorPairReduceScatter, pow2: true, param: width, free: offsets},
		{name: "round-robin", build: roundReduceScatter, param: width, free: rounds},
		{name: "direct", build: directReduceScatter},
	},
	AllToAll: {
		{name: "pairwise", build: pairwiseAllToAll, param: width, free: offsets},
		{name: "pairwise-xor", build: xorAllToAll, pow2: true, param: width, free: offsets},
		{name: "round-robin", build: roundAllToAll, param: width, free: rounds},
		{name: "pod-pairwise", build: podAllToAll, param: group},
		{name: "bruck", build: bruckAllToAll, param: radix, free: digits},
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
