// Package figure regenerates the figures of HARVEST, SWOT and SPECTRA with Lightpath's planners. It writes the numbers
// as CSV, and the picture as SVG and PNG. Each number that a paper prints stands beside the number computed here. If
// the cost model cannot give the paper's number, the figure says why.
//
// Layer: bench. It calls planners and draws; it measures nothing and decides nothing about plans. The same [Options]
// give the same figure on every machine: searches are limited by operations, not by time. Only [Figure.Write] touches
// files.
package figure
