# The libraries and the C programs: lib/libnccl.so.2 (only C), lib/liblightpath.so (Go), the benchmark worker, the
# program that reads NVML, and their checks. Included by the top-level Makefile.

CC      ?= cc
CSTD    := -std=gnu11 -Wall -Wextra -Werror
CFLAGS  ?= -O2 -g
LP_VERSION := $(shell sed -n 's/^const Version = "\(.*\)"/\1/p' shim/bootstrap/version.go)

# The digest of the interface between the two libraries: two builds of one version may differ in it.
LP_BUILD := $(LP_VERSION)+$(shell cat cgo/core/lp_core.h cgo/core/lp_types.h | sha256sum | cut -c1-12)

FRONT_SOURCES := $(wildcard cgo/front/*.c cgo/front/combine/*.c)
FRONT_HEADERS := $(wildcard cgo/front/*.h cgo/front/*.inc cgo/front/combine/*.h cgo/core/*.h)
CORE_SOURCES  := $(foreach d,core plugins verbs cuda cuda/kernels,$(wildcard $(addprefix cgo/$d/*.,c h map zip))) \
  $(call sources,cgo/core cgo/cuda cgo/plugins cgo/verbs shim collectives plans ocsctl internal)
RANK_SOURCES  := $(wildcard cgo/rank/*.c) cgo/cuda/tests/gpu.c

.PHONY: test-c abi-check

# -z now and -z defs: a missing symbol is an error here and not in a user's program. -z nodelete: fork handlers and
# thread-local state do not survive unloading.
lib/libnccl.so.2: $(FRONT_SOURCES) $(FRONT_HEADERS) cgo/front/libnccl.map shim/bootstrap/version.go
	@mkdir -p lib include
	$(CC) $(CSTD) $(CFLAGS) -O3 -D_GNU_SOURCE -Icgo/front -DLP_VERSION='"$(LP_VERSION)"' -DLP_BUILD='"$(LP_BUILD)"' \
	  -fPIC -fvisibility=hidden -pthread -shared -Wl,-soname,libnccl.so.2 -Wl,-z,now -Wl,-z,defs -Wl,-z,nodelete \
	  -Wl,--version-script=cgo/front/libnccl.map \
	  -o $@.tmp $(FRONT_SOURCES) -ldl
	mv $@.tmp $@
	ln -sf libnccl.so.2 lib/libnccl.so
	cp cgo/front/nccl.h cgo/front/lightpath.h include/

# The recorder of calls is preloaded in place of libnccl.so.2, so it has that soname.
lib/liblightpath-record.so: $(wildcard cgo/record/*.c) cgo/record/record.h $(FRONT_HEADERS) cgo/front/libnccl.map
	@mkdir -p lib
	$(CC) $(CSTD) $(CFLAGS) -D_GNU_SOURCE -Icgo/front -fPIC -fvisibility=hidden -pthread -shared \
	  -Wl,-soname,libnccl.so.2 -Wl,-z,now -Wl,-z,defs -Wl,-z,nodelete -Wl,--version-script=cgo/front/libnccl.map \
	  -o $@.tmp $(wildcard cgo/record/*.c) -ldl
	mv $@.tmp $@

# The Go library exports one symbol. soname and script cannot go through #cgo LDFLAGS. It may ask libc for hosts.
CORE_LDFLAGS := -Wl,-soname,liblightpath.so -Wl,-z,now -Wl,-z,defs \
  \"-Wl,--version-script=$(CURDIR)/cgo/core/liblightpath.map\"
lib/liblightpath.so: $(CORE_SOURCES)
	@mkdir -p lib build
	CGO_ENABLED=1 $(GO) build -tags= -buildmode=c-shared -ldflags "-s -w -extldflags '$(CORE_LDFLAGS)'" \
	  -o build/liblightpath.so ./cgo/core
	mv build/liblightpath.so $@

# New tags: LD_LIBRARY_PATH comes before the path of the build, so that it can time any libnccl.so.2.
bin/lightpath-rank: $(RANK_SOURCES) cgo/rank/rank.h cgo/cuda/tests/gpu.h cgo/cuda/driver.h lib/libnccl.so.2
	@mkdir -p bin
	$(CC) $(CSTD) $(CFLAGS) -Icgo/front -pthread -o $@.tmp $(RANK_SOURCES) -Llib -lnccl -lm -ldl \
	  -Wl,--enable-new-dtags,-rpath,'$$ORIGIN/../lib:$$ORIGIN'
	mv $@.tmp $@

# STREAM, for lightpath bench kernels.
bin/lightpath-stream: cgo/stream/stream.c
	@mkdir -p bin
	$(CC) $(CSTD) $(CFLAGS) -O3 -pthread -o $@.tmp $<
	mv $@.tmp $@

# go-nvml's symbols are resolved when they are called: no -z now here.
bin/lightpath-nvml: $(wildcard cgo/nvml/*.go shim/topology/*.go) go.mod go.sum
	@mkdir -p bin
	CGO_ENABLED=1 $(GO) build -ldflags '-s -w' -o $@ ./cgo/nvml

# Times Lightpath's kernels on a GPU (make gpu-check).
bin/lightpath-kernels: $(CORE_SOURCES) $(wildcard cgo/cuda/speed/*.go)
	@mkdir -p bin
	CGO_ENABLED=1 $(GO) build -ldflags '-s -w' -o $@ ./cgo/cuda/speed

# The tests of kernels as a program, for machines without Go, and the part of MPI that nccl-tests needs.
build/gpu/cuda.test: $(CORE_SOURCES) $(wildcard cgo/cuda/*_test.go cgo/cuda/cudatest/*)
	@mkdir -p build/gpu
	CGO_ENABLED=1 $(GO) test -c -ldflags '-s -w' -o $@ ./cgo/cuda

build/gpu/libcuda/libcuda.so.1: $(wildcard cgo/cuda/stub/*) cgo/cuda/driver.h
	@mkdir -p build/gpu/libcuda
	$(CC) $(CSTD) $(CFLAGS) -fPIC -fvisibility=hidden -shared -pthread -Wl,-soname,libcuda.so.1 -o $@ cgo/cuda/stub/*.c

build/gpu/mpi/lib/libmpi.so: cgo/cuda/mpi/mpi.c cgo/cuda/mpi/mpi.h
	@mkdir -p build/gpu/mpi/lib build/gpu/mpi/include
	cp cgo/cuda/mpi/mpi.h build/gpu/mpi/include/
	$(CC) $(CSTD) $(CFLAGS) -fPIC -shared -pthread -o $@ cgo/cuda/mpi/mpi.c

test-c: lib/libnccl.so.2 lib/liblightpath.so lib/liblightpath-record.so bin/lightpath-rank bin/lightpath ## plain C tests of libnccl.so.2
	cgo/front/tests/run.sh
	cgo/record/tests/run.sh
	cgo/cuda/tests/run.sh
	cgo/cuda/kernels/check.sh
	cgo/cuda/tests/interpose.sh
	cgo/abi/clients.sh

abi-check: lib/libnccl.so.2 ## compare header and symbols with NVIDIA's package
	cgo/abi/check.sh

.PHONY: kernels
kernels: ## compile the reduction kernels for devices (clang 16), and check the machine code that assemblers make
	cgo/cuda/kernels/make.sh
	cgo/cuda/kernels/check.sh

# Ranks of other libraries, for lightpath bench peers: one for each installed MPI compiler, and one for UCC. Debian has
# no package of UCC: variable UCC is its prefix. Ranks of UCC find each other by Open MPI.
PEER_SOURCES := cgo/peers/world.c $(addprefix cgo/rank/,data.c job.c run.c sync.c)
PEER_HEADERS := cgo/peers/peers.h cgo/rank/rank.h cgo/front/nccl.h
UCC ?= /usr
PEERS := $(foreach m,openmpi mpich,$(if $(shell command -v mpicc.$(m)),bin/lightpath-rank-$(m))) \
  $(if $(shell command -v mpicc.openmpi),$(if $(wildcard $(UCC)/include/ucc/api/ucc.h),bin/lightpath-rank-ucc))

.PHONY: peers
peers: $(PEERS) ## ranks of the MPI libraries, and of UCC, that are installed

bin/lightpath-rank-ucc: cgo/peers/ucc.c $(PEER_SOURCES) $(PEER_HEADERS)
	@mkdir -p bin
	mpicc.openmpi $(CSTD) $(CFLAGS) -Icgo/front -I$(UCC)/include -pthread -o $@.tmp cgo/peers/ucc.c $(PEER_SOURCES) \
	  -L$(UCC)/lib -lucc -lm -Wl,-rpath,$(UCC)/lib
	mv $@.tmp $@

bin/lightpath-rank-%: cgo/peers/mpi.c $(PEER_SOURCES) $(PEER_HEADERS)
	@mkdir -p bin
	mpicc.$* $(CSTD) $(CFLAGS) -Icgo/front -pthread -o $@.tmp cgo/peers/mpi.c $(PEER_SOURCES) -lm
	mv $@.tmp $@
