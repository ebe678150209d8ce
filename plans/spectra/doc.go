// Package spectra schedules a demand matrix on parallel optical circuit switches. It decides which permutations each
// switch holds and for how long, so that the last switch ends as early as possible. Each permutation costs a
// reconfiguration first.
//
// It holds the algorithms of SPECTRA (Liang, Qiao, Keslassy, Lin, "Scheduling Parallel Optical Circuit Switches for AI
// Training") one by one: [Decompose] (Algorithm 1, with either REFINE), [Schedule], [Equalize], [Bound1], [Bound2]. It
// also holds [Eclipse] and [Baseline], with which the paper compares it. [Improve], an anytime search, and [Bound], a
// stronger lower bound, go beyond the paper. [Solve] answers problems with them.
//
// In this package a demand is time: entry [r][s] is how long the circuit r -> s must be held. It has the unit of the
// reconfiguration delay delta.
//
// Layer: inside plans, above plans/internal/{matching,lp}. It must not import plans/planner, which registers it, nor
// plans/check and plans/sim, which check its results. It performs no I/O. Equal input gives equal results.
package spectra
