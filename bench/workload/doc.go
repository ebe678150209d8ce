// Package workload makes demand matrices: the benchmark of the optical-switch literature, synthetic workloads, and
// matrices read from text. The synthetic workloads replace traces of a GPT and of a Mixture-of-Experts model that the
// SPECTRA paper does not publish.
//
// Layer: bench; it imports nothing of the project. A matrix is indexed [source][destination]. Its unit is that of the
// function that made it. A generated matrix depends only on the arguments.
package workload
