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
//	collective     algorithm               steps      bytes          source
//	AllReduce      ring                    2(n-1)     2S(n-1)/n      Patarasuk and Yuan 2009
//	               recursive-doubling      2 log n    2S(n-1)/n      HARVEST 3.2, 5.1 (cyclic)
//	               recursive-doubling-xor  log n (a)  S log n        Thakur et al. 2005
//	               rabenseifner            2 log n(a) 2S(n-1)/n (a)  SWOT Fig. 3, 5
//	ReduceScatter  ring, pairwise          n-1        S(n-1)/n
//	               recursive-doubling      log n      S(n-1)/n       HARVEST 5.1
//	               rabenseifner            log n (a)  S(n-1)/n (a)   SWOT Fig. 3
//	AllGather      ring, pairwise          n-1        S(n-1)/n
//	               recursive-doubling      log n      S(n-1)/n       HARVEST 5.1
//	               recursive-doubling-xor  log n (b)  S(n-1)/n       Thakur et al. 2005
//	               bruck                   log n      S(n-1)/n       Bruck et al. 1997
//	               direct                  1          S(n-1)/n
//	AllToAll       pairwise                n-1        S(n-1)/n       SWOT 2.1.2
//	               pairwise-xor            n-1 (b)    S(n-1)/n
//	               bruck                   log n      S/2 log n      Bruck et al. 1997
//	               direct                  1          S(n-1)/n
//	Broadcast,     ring                    2n-2       S              pipeline of n chunks
//	Reduce         binomial                log n      S log n        Thakur et al. 2005
//	               direct                  1          S(n-1)
//	Gather,        binomial                log n      S(n-1)/n       Thakur et al. 2005
//	Scatter        direct                  1          S(n-1)/n
//	SendRecv       direct, pairwise        1          S              r -> r+1
//
// (a) on the largest power of two; where n is not one, the other ranks fold into the first
// ones in a step before and get their results in a step after. (b) powers of two only.
package schedule
