// Package schedule describes collective algorithms as data: ordered steps of transfers between ranks, over symbolic
// chunks. It builds schedules ([Build]), proves them correct by symbolic execution ([Verify]), and derives the planning
// problem of a schedule on an optical fabric ([Problem]).
//
// It imports plans and plans/circuit. It must not move bytes or know transports.
//
// The table lists the algorithms for n ranks and a call of S bytes as nccl-tests counts them. log is the base-2
// logarithm, rounded up. Bytes count what the busiest rank sends or receives.
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
//	AllGather      all of ReduceScatter except rabenseifner, reversed; bruck: Bruck et al. 1997
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
// (a) On the largest power of two. If n is not a power of two, a step before folds the other ranks into the first ones,
// and a step after sends them their results. (b) For any even n; if n is odd, the last rank is folded into the first.
// (c) Only for powers of two. (d) n steps if n is odd.
//
// # Parameters and orders
//
// A name may have a parameter and an order, as in bruck:4, swing:4x4 or pairwise:2@1.7.2.6.3.5.4. The parameters, with
// their defaults in parentheses:
//
//	ring (not Broadcast, Reduce)  :d  directions, 1 or 2 (1): with 2, half of the data in each
//	pairwise, pairwise-xor, round-robin  :k  exchanges per step (1): k permutations at once
//	bruck                   :r  radix (2): log_r n steps of r-1 flows per rank, r-1 = ports
//	swing                   :AxB...  a torus: 2 ports per dimension, all at once
//	hierarchical-ring, pod-pairwise  :g  ranks per group (the largest divisor up to the root of n)
//	binary-tree, double-binary-tree  :C  chunks of a block, or of half a block (2 log n)
//
// "@" and a list is the order of the offsets, bits or digits of an algorithm that allows any ([StepOrder],
// [Neighbours]). Optical planes are faster with orders in which circuits recur.
//
// "~" and a list assigns ranks to positions ([Seated]): ring~0.2.1.3 is the ring 0, 2, 1, 3. SendRecv has no seats.
//
// The schedule fixes the order in which values are combined, so every plan of it gives the same bits in every run. With
// other parameters, orders or seats, floating-point results may differ. So they are part of the name
// ([Schedule.Algorithm]), which keys and signatures include. In an AllReduce, all ranks get the same bits.
package schedule
