# make          libraries and commands into lib/ and bin/
# make demo     the main job on this machine, no root, under two minutes
# make check    before each commit: what changed, under 90 s
# make test     what CI runs, 15 to 24 minutes on two cores with a cold cache
# make help     everything else

GO        ?= go
PYTHON    ?= python3
GOLANGCI  ?= .tools/golangci-lint
GOLANGCI_VERSION := v2.15.0
# Tools of PyPI are in one environment: see packaging.mk.
RUFF      := .tools/python/bin/ruff
# gotestsum runs go test and ends with every skipped test and its reason. Many tests wait, so more packages run at once
# than there are processors. make lint runs vet on all packages, so go test does not. Without DWARF (-w) a link takes
# little more than half of the time.
GOTEST    ?= .tools/gotestsum --format pkgname -- -vet=off -ldflags=-w -p $(TEST_PACKAGES)
TEST_PACKAGES ?= 4
GOTESTSUM_VERSION := v1.13.0
TEST_TIMEOUT ?= 20m

# Packages and libraries need -trimpath. All targets have it, so that the compiler works once for them. Programs resolve
# names without libc, also with cgo: then the compiler works once for programs with and without cgo.
NO_LIBC := -tags=netgo,osusergo
export override GOFLAGS := $(filter-out -trimpath $(NO_LIBC),$(GOFLAGS)) -trimpath $(NO_LIBC)

.DEFAULT_GOAL := all
.PHONY: all build lib demo check test test-all test-go test-race test-clients test-rdma test-slurm test-torch test-torch-pypi test-gpu test-long fuzz mutants lint fmt bench bench-kernels bench-peers bench-planes bench-planning gpu-check gpu-model gpu-kit figures reference road clean help

all: build ## libraries and commands

# sources FOLDERS: what the Go compiler reads there: assembly and embedded files, too.
sources = $(shell find $1 -regex '.*\.\(go\|s\|py\|html\|js\|css\|svg\|json\)' ! -name '*_test.go' \
  ! -path '*/testdata/*') go.mod go.sum
GO_SOURCES := $(call sources,cmd bench shim collectives plans ocsctl internal docs/schema)

include cgo/build.mk
include packaging/packaging.mk

build: lib bin/lightpath bin/lightpath-rank bin/lightpath-nvml

lib: lib/libnccl.so.2 lib/liblightpath.so lib/liblightpath-record.so

bin/lightpath: $(GO_SOURCES)
	CGO_ENABLED=0 $(GO) build -o $@ ./cmd/lightpath

demo: build ## run the main job: AllReduce and All-to-All over an emulated optical fabric
	bin/lightpath demo

check: build .tools/gotestsum $(GOLANGCI) $(RUFF) ## before a commit: format, lint and test what changed since HEAD (BASE=main: since main), ABI
	.ci/check $(BASE)
	@$(MAKE) --no-print-directory abi-check

# Targets that wait, for a virtual machine or for processes, run beside those that compute. The longest begin first.
# The output of each comes in one piece when it ends.
TEST_TARGETS ?= 3
test: build .tools/gotestsum ## everything CI checks
	@$(MAKE) --no-print-directory -j$(TEST_TARGETS) --output-sync=target test-all
test-all: test-rdma test-go test-race test-c lint test-cgo test-torch test-clients test-slurm test-gpu test-packages test-chart test-wheel abi-check

WITHOUT_CGO = $$($(GO) list -f '{{.Dir}}' ./... | sed 's|^$(CURDIR)/|./|; /^.\/cgo\//d')
# All but cgo/ is tested as it is built without a C compiler.
test-go: build .tools/gotestsum ## unit, property and multi-process tests
	CGO_ENABLED=0 $(GOTEST) -timeout $(TEST_TIMEOUT) $(WITHOUT_CGO)

test-cgo: build .tools/gotestsum ## unit tests of cgo/
	$(GOTEST) -timeout $(TEST_TIMEOUT) ./cgo/...

# The race detector slows the engine twentyfold: the packages with concurrency, in short form. Tests of RACE_FREE start
# no goroutine in any package, or only goroutines that share nothing. Tests of RACE_LONG bring much of others with them:
# etcd's server, a browser. test-long has them.
RACE_FREE := ocsctl ocsctl/driver/gnmi/dialect ocsctl/driver/netconf/wire ocsctl/kernel/loss \
  collectives/codesign collectives/datatype collectives/program collectives/schedule% collectives/sharedmem% \
  collectives/transport/internal/counts collectives/transport/internal/nic collectives/transport/messages \
  collectives/transport/netplugin collectives/wire \
  shim/arbiter/sequence shim/flight% shim/log shim/planeset shim/topology
RACE_LONG := ocsctl/controller/journal/etcd ocsctl/controller/web
test-race: .tools/gotestsum ## race detector
	$(GOTEST) -race -short -timeout $(TEST_TIMEOUT) \
	  $(filter-out $(addprefix lightpath/,$(RACE_FREE) $(RACE_LONG)),$(shell $(GO) list ./ocsctl/... ./collectives/... ./shim/...))

test-clients: build ## the C and Python clients of examples/, several ranks
	examples/run.sh

test-slurm: build ## jobs of Debian's Slurm over planes in the kernel, in network namespaces; skipped without root or Slurm
	examples/slurm/test.sh

test-torch: build ## PyTorch training over Lightpath and Gloo, 2 and 4 ranks; skipped without PyTorch
	examples/torch/test.sh

# What depends on the version of PyTorch, with that of PyPI: 7 GB with the CUDA libraries that it cannot do without.
test-torch-pypi: build ## PyTorch of PyPI over Lightpath; installs it into .tools/torch
	[ -x .tools/torch/bin/python ] || $(PYTHON) -m venv .tools/torch
	.tools/torch/bin/pip install -q --no-cache-dir torch==2.15.0 numpy
	PYTHON="$(CURDIR)/.tools/torch/bin/python" examples/torch/test.sh test_backend test_parallel test_compile test_pytorch \
	  test_elastic

# What gpu-check needs. Tests build it first, since gpu-check limits the time of its build.
GPU_PARTS := bin/lightpath-kernels build/gpu/cuda.test build/gpu/libcuda/libcuda.so.1 build/gpu/mpi/lib/libmpi.so
test-gpu: build $(GPU_PARTS) ## tests of the GPU check, and its parts that need no GPU
	cd bench/gpu && $(PYTHON) -m unittest -q
	$(PYTHON) bench/gpu/check.py --stub --skip stub,symbols,kernel-tests --out build/gpu/dry-run

test-rdma: build ## RDMA planes: soft-RoCE in a virtual machine; skipped if none can run
	cgo/verbs/vm/test.sh

test-long: build ## soak and long fuzzing
	LIGHTPATH_TEST_LONG=1 $(GO) test -timeout 3h -count=1 ./...
	$(GO) test -race -short -timeout 3h $(RACE_LONG:%=./%)
	LIGHTPATH_TEST_LONG=1 $(MAKE) test-c
	$(MAKE) fuzz FUZZTIME=10m

FUZZTIME ?= 10s
fuzz: ## every fuzz target for FUZZTIME
	@set -e; for pkg in $$($(GO) list ./plans/... ./collectives/... ./ocsctl/... ./shim/... ./bench/...); do \
	  for target in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "fuzz $$pkg $$target"; $(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) $$pkg; \
	  done; done

mutants: ## break the protocols on purpose, one break at a time, and name the test that finds each (MUTANTS=regexp)
	$(GO) run ./bench/protocols/mutants -run '$(MUTANTS)'

# The linter opens files of cgo/ that the compiler's cache keeps, and they name a checkout. CGO_CPPFLAGS names it, too, so
# the cache has other files for each checkout. GOGC saves a sixth of the time and takes twice the memory, 4 GB.
lint: $(GOLANGCI) $(RUFF) ## golangci-lint with the layer arrows, ruff, formatting
	GOGC=400 CGO_CPPFLAGS="'-I$(CURDIR)'" $(GOLANGCI) run --allow-parallel-runners ./...
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo "run make fmt"; exit 1; }
	$(RUFF) check -q
	$(RUFF) format -q --check || { echo "run make fmt"; exit 1; }

$(GOLANGCI):
	CGO_ENABLED=0 GOBIN="$(CURDIR)/.tools" $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)

.tools/gotestsum:
	CGO_ENABLED=0 GOBIN="$(CURDIR)/.tools" $(GO) install gotest.tools/gotestsum@$(GOTESTSUM_VERSION)

fmt: $(RUFF) ## format Go and Python sources
	gofmt -w $$(git ls-files '*.go')
	$(RUFF) format -q

road: ## which files of shim a call passes from shim.Run to its first byte
	@mkdir -p build/road/counters
	$(GO) build -cover -covermode=atomic -coverpkg=./shim/... -o build/road/road ./shim/shimtest/road
	GOCOVERDIR=build/road/counters build/road/road -test.v

bench: build ## allreduce and alltoall over shm and tcp at 2, 4 and 8 ranks
	bench/run.sh

# To measure a part: make bench-peers PEERS_FLAGS="--collective allreduce -n 2 --sizes 8,1M".
# It begins no point after 15 minutes and keeps its results. The next call continues there.
PEERS_FLAGS ?= --transport shm -e 256M --budget 15m --resume
bench-peers: build peers ## Lightpath beside Open MPI, MPICH, UCC and Gloo, into build/peers/
	bin/lightpath bench peers --out build/peers $(PEERS_FLAGS)

bench-kernels: bin/lightpath bin/lightpath-stream ## reductions beyond the caches beside STREAM
	bin/lightpath bench kernels $(KERNELS_FLAGS)

bench-planes: build ## share of the line rate over shaped TCP planes between network namespaces (root)
	bench/planes.sh

# Parts alone: make gpu-check GPU_FLAGS="--only kernels,collectives". docs/gpu.md has the parts and what they need.
gpu-check: ## check and time everything on a GPU in under 10 minutes; without a GPU, check over the stub
	$(PYTHON) bench/gpu/check.py $(GPU_FLAGS)

# Before and after: make gpu-model GPU_MODEL_FLAGS="--before OLD/table.json". All points take 7 minutes.
gpu-model: build build/gpu/libcuda/libcuda.so.1 ## modelled times of collectives on a device beside their limits
	$(PYTHON) bench/gpu/modelled.py $(GPU_MODEL_FLAGS)

gpu-kit: build $(GPU_PARTS) ## what gpu-check needs where there is no Go, into build/gpu-kit.tar.xz
	bench/gpu/kit.sh build/gpu-kit.tar.xz

FIGURES_OUT ?= figures
# Draws the figures of a part of figure --list.
DRAW = while read -r paper name _; do bin/lightpath figure "$$paper" "$${name%:}" --out $(FIGURES_OUT); done
figures: bin/lightpath ## the papers' figures as CSV, SVG and PNG into figures/
	@set -e; bin/lightpath figure --list | grep -v '^lightpath ' | $(DRAW)

reference: ## the generated pages of docs/: commands and environment variables
	$(GO) run ./cmd/lightpath reference docs

bench-planning: bin/lightpath ## planners beside the papers and CBC, on an idle machine, into figures/
	@set -e; bin/lightpath figure --list | grep '^lightpath ' | $(DRAW)

clean: ## remove what was built
	rm -rf bin lib include build dist

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'
