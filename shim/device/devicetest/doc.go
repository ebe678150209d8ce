// Package devicetest has software devices for tests. It is no part of the library.
package devicetest
