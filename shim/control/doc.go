// Package control is the network between the ranks of a communicator beside its planes. Both ends of a connection prove
// that they know the communicator's secret. The package has the connections, their messages, and the star: the
// connections between the leader, rank 0, and all other ranks.
//
// Layer: below bootstrap and shim, which give messages their meaning. This package reads only the messages that make
// and end the star.
package control
