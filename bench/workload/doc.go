// Package workload makes demand matrices: the benchmark of the optical-switch literature, synthetic workloads, and
// matrices read from text. The synthetic workloads replace traces of a GPT and of a Mixture-of-Experts model that the
// SPECTRA paper does not publish.
//
// Layer: bench; it imports nothing of the project. A matrix is rows of columns, [source]
// [destination], in whatever unit its maker states; a generator's depends on nothing but its
// arguments.
package workload
