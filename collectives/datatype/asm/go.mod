// A module of its own, so that what generates the assembly is no dependency of the library.
module lightpath/collectives/datatype/asm

go 1.26

require (
	github.com/mmcloughlin/avo v0.5.0
	golang.org/x/mod v0.30.0 // indirect
	golang.org/x/sync v0.18.0 // indirect
	golang.org/x/tools v0.39.0 // indirect
)
