// Package benchtest helps the tests of bench and of the packages inside it.
//
// Layer: inside bench; only tests import it.
package benchtest
