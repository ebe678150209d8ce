// Package schedule describes collective algorithms as data: ordered steps of transfers
// between ranks, over symbolic chunks. It builds them ([Build]), proves them right by
// symbolic execution ([Verify]), and states the planning problem that each poses to an
// optical fabric ([Problem]).
//
// Layer: inside collectives; it imports plans only. It moves no bytes.
//
// The algorithms, for n ranks and a call of S bytes as nccl-tests counts it; log is the
// base-2 logarithm rounded up, and bytes are those that the busiest rank sends or receives:
//
//	collective     algorithm               steps        bytes          source
//	AllReduce      ring                    2(n-1)       2S(n-1)/n      Patarasuk and Yuan 2009
//	               recursive-doubling      2 log n      2S(n-1)/n      HARVEST 3.2, 5.1 (cyclic)
//	               recursive-doubling-xor  log n (a)    S log n        Thakur et al. 2005
//	               rabenseifner            2 log n(a)   2S(n-1)/n (a)  SWOT Fig. 3, 5
//	               swing                   2 log n(b)   2S(n-1)/n (b)  De Sensi et al. 2024
//	               bruck                   2 log n      2S(n-1)/n      Bruck et al. 1997, mirrored
//	               hierarchical-ring       2(g+n/g-2)   2S(n-1)/n      LumosCore A.5.2
//	               double-binary-tree      2C+O(log n)  2S             Sanders et al. 2009
//	               direct                  1            S(n-1)
//	ReduceScatter  ring, pairwise          n-1          S(n-1)/n
//	               recursive-doubling      log n        S(n-1)/n       HARVEST 5.1
//	               recursive-doubling-xor  log n (a)    S(n-1)/n (a)   Thakur et al. 2005
//	               rabenseifner            log n (a)    S(n-1)/n (a)   SWOT Fig. 3
//	               swing                   log n (b)    S(n-1)/n (b)   De Sensi et al. 2024
//	               bruck                   log n        S(n-1)/n       Bruck et al. 1997, mirrored
//	               hierarchical-ring       g+n/g-2      S(n-1)/n       LumosCore A.5.2
//	               pairwise-xor            n-1 (c)      S(n-1)/n
//	               round-robin             n-1 (d)      S(n-1)/n       circle method
//	               direct                  1            S(n-1)/n
//	AllGather      all of ReduceScatter but rabenseifner, mirrored; bruck: Bruck et al. 1997
//	AllToAll       pairwise                n-1          S(n-1)/n       SWOT 2.1.2
//	               pairwise-xor            n-1 (c)      S(n-1)/n
//	               round-robin             n-1 (d)      S(n-1)/n       circle method
//	               pod-pairwise            n            S(n-1)/n       LumosCore Eq. 44
//	               bruck                   log n        S/2 log n      Bruck et al. 1997
//	               direct                  1            S(n-1)/n       total exchange
//	Broadcast,     ring                    2n-2         S              pipeline of n chunks
//	Reduce         binomial                log n        S log n        Thakur et al. 2005
//	               binary-tree             C+O(log n)   2S             pipeline of C chunks
//	               double-binary-tree      C+O(log n)   S              Sanders et al. 2009
//	               direct                  1            S(n-1)
//	Gather,        binomial                log n        S(n-1)/n       Thakur et al. 2005
//	Scatter        direct                  1            S(n-1)/n
//	SendRecv       direct, pairwise        1            S              r -> r+1
//
// (a) on the largest power of two; where n is not one, the other ranks fold into the first
// ones in a step before and get their results in a step after. (b) any even n; where n is odd
// the last rank folds into the first. (c) powers of two only. (d) n where n is odd.
//
// # Parameters and orders
//
// A name may say more, as in bruck:4, swing:4x4 or pairwise:2@1.7.2.6.3.5.4:
//
//	ring (not Broadcast, Reduce)  :d  directions, 1 or 2 (1): with 2, half of the data each way
//	pairwise, pairwise-xor, round-robin  :k  exchanges a step (1): k permutations at once
//	bruck                   :r  radix (2): log_r n steps of r-1 flows a rank, r-1 = ports
//	swing                   :AxB...  a torus: 2 ports a dimension, all at once
//	hierarchical-ring, pod-pairwise  :g  ranks a group (the largest divisor up to the root of n)
//	binary-tree, double-binary-tree  :C  chunks of a block, or of half a block (2 log n)
//
// "@" and a list is the order in which an algorithm takes what its meaning allows it to take
// in any: offsets, bits or digits ([WithOrder], [StepOrder], [Neighbours]). Orders that
// make circuits recur are cheaper on optical planes.
//
// "~" and a list say which rank takes which part ([Seated]): ring~0.2.1.3 goes round 0, 2, 1, 3.
//
// Values are combined in an order that the schedule fixes, so every plan of it gives the
// same bits on every run. Other parameters, orders and seats may give others, in floating point;
// that is why they are in the name ([Schedule.Algorithm]), which keys and signatures hold. In an
// AllReduce all ranks get the same bits.
package schedule
