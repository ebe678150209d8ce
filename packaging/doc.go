// Package packaging holds what turns the build into packages (packaging.mk, deb), units and a
// container, and the tests that install them. It has no code of its own.
//
// Layer: top; nothing imports it.
package packaging
