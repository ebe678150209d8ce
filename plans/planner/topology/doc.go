// Package topology builds the graphs that several ports per rank can form together: rings,
// tori, circulants, generalized Kautz graphs and expanders, as one permutation per port.
//
// Layer: below plans/planner, which offers these graphs as steps. It knows circuits and their
// kinds. It must not know steps, costs or planners; plans/planner/internal/flow rates a graph.
package topology
