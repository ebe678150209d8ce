// Package figure regenerates the figures of HARVEST, SWOT and SPECTRA from the planners of
// Lightpath: the numbers as CSV, the picture as SVG and PNG, and every number that a paper
// prints about a figure beside the one that comes out here, with the reason where the
// paper's cannot follow from the cost model.
//
// Layer: bench. It calls planners and draws; it measures nothing and decides nothing about
// plans. A figure is the same for the same [Options], wherever it is made: searches count
// operations and not time. Only [Figure.Write] touches files.
package figure
