package dispatch

import (
	"lightpath/collectives/schedule"
	"lightpath/shim/settings"
)

// choice is a row of the table of algorithms.
type choice struct {
	pow2      bool  // row is for powers of two only
	ranks     int   // row is for at most so many ranks; 0: for any number
	min, max  int64 // bytes of a block; that of an AllReduce is the whole message
	part      int64 // at most so many bytes of a block, divided by the ranks; 0: any number
	algorithm string
}

const anySize = 1<<63 - 1

// Choices has rows in order for each collective; the first that fits is taken. They are pure functions of what every
// rank knows (collective, bytes, ranks, transport), so ranks cannot differ.
type Choices [schedule.NumCollectives][]choice

// PacketChoices returns the choices on packet planes of a transport.
//
//   - Small messages take the fewest rounds.
//   - AllGather and ReduceScatter send larger blocks straight to their ranks, in one round. AllToAll sends all so:
//     nothing orders its steps. Bruck's algorithm saves messages, which pays if they are many more than the rounds.
//   - Large messages take the ring, where a port receives from one rank only. In other algorithms ranks change their
//     peers, and a rank that is ahead sends to a port that still receives from another rank. That delays the rank
//     behind, so ranks drift apart, and ports stand idle (bench/RESULTS.md, TCP planes).
//
// Rounds count for larger messages on a faster network. The size for RDMA and network plugins is not measured: it
// follows from the rough costs of packet planes.
func PacketChoices(transport string) *Choices {
	if transport == settings.TransportRDMA || transport == settings.TransportNet {
		return fastChoices
	}
	return tcpChoices
}

var tcpChoices, fastChoices = onPackets(32 << 10), onPackets(128 << 10)

// onPackets returns the choices on packet planes. few is the largest block per rank for which rounds count.
func onPackets(few int64) *Choices {
	return &Choices{
		schedule.AllReduce: {
			{pow2: true, max: 16 << 10, algorithm: "recursive-doubling-xor"},
			{pow2: true, part: few, max: anySize, algorithm: "rabenseifner"},
			{max: 32 << 10, algorithm: "recursive-doubling-xor"}, {max: anySize, algorithm: "ring"},
		},
		schedule.AllGather: {{ranks: 4, max: few, algorithm: "direct"}, {max: few / 2, algorithm: "bruck"},
			{max: few, algorithm: "direct"}, {max: anySize, algorithm: "ring"}},
		schedule.ReduceScatter: {{ranks: 4, max: few, algorithm: "pairwise"},
			{ranks: 2, max: anySize, algorithm: "pairwise"},
			{pow2: true, max: few / 2, algorithm: "rabenseifner"}, {max: few, algorithm: "pairwise"},
			{max: anySize, algorithm: "ring"}},
		schedule.AllToAll: {{ranks: 16, max: anySize, algorithm: "pairwise"}, {max: 2 << 10, algorithm: "bruck"},
			{max: anySize, algorithm: "pairwise"}},
		schedule.Broadcast: {{max: 64 << 10, algorithm: "binomial"}, {max: anySize, algorithm: "ring"}},
		schedule.Reduce:    {{max: 64 << 10, algorithm: "binomial"}, {max: anySize, algorithm: "ring"}},
		schedule.Gather:    {{max: 16 << 10, algorithm: "binomial"}, {max: anySize, algorithm: "direct"}},
		schedule.Scatter:   {{max: 16 << 10, algorithm: "binomial"}, {max: anySize, algorithm: "direct"}},
	}
}

// Circuits is the choice on planes with circuits. Steps should be permutations that recur: halving and doubling (SWOT
// 2.1.2) on powers of two, else the ring, which needs no switching.
var Circuits = &Choices{
	schedule.AllReduce: {{pow2: true, max: anySize, algorithm: "rabenseifner"}, {max: anySize, algorithm: "ring"}},
	schedule.AllGather: {{pow2: true, max: anySize, algorithm: "recursive-doubling"},
		{max: anySize, algorithm: "ring"}},
	schedule.ReduceScatter: {{pow2: true, max: anySize, algorithm: "rabenseifner"}, {max: anySize, algorithm: "ring"}},
	schedule.AllToAll:      {{max: anySize, algorithm: "pairwise"}},
	schedule.Broadcast:     {{max: anySize, algorithm: "binomial"}},
	schedule.Reduce:        {{max: anySize, algorithm: "binomial"}},
	schedule.Gather:        {{max: anySize, algorithm: "binomial"}},
	schedule.Scatter:       {{max: anySize, algorithm: "binomial"}},
}

// Choose returns the algorithm of a collective on blocks of the given bytes. override is LIGHTPATH_ALGORITHM, which all
// ranks share; it counts if it is defined for this number of ranks.
func Choose(coll schedule.Collective, blockBytes int64, ranks int, from *Choices, override map[string]string) string {
	if name, ok := override[coll.String()]; ok && schedule.Defined(coll, name, ranks) {
		return name
	}
	for _, row := range from[coll] {
		if blockBytes >= row.min && blockBytes <= row.max && (row.part == 0 || blockBytes <= row.part*int64(ranks)) &&
			(!row.pow2 || ranks&(ranks-1) == 0) && (row.ranks == 0 || ranks <= row.ranks) {
			return row.algorithm
		}
	}
	return schedule.Algorithms(coll)[0]
}
