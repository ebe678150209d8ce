// Package figure regenerates the figures of HARVEST, SWOT and SPECTRA from the planners of Lightpath: the numbers as
// CSV, the picture as SVG and PNG. Beside every number that a paper prints about a figure stands the number computed
// here. If the cost model cannot give the paper's number, the figure says why.
//
// Layer: bench. It calls planners and draws; it measures nothing and decides nothing about plans. The same [Options]
// give the same figure on every machine: searches count operations and not time. Only [Figure.Write] touches files.
package figure
