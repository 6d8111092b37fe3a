# Headstart. `make help` lists the targets.
BIN := $(CURDIR)/out/bin
GO  := go
# The commit, and whether it has been changed since. Pages and figures do not count: no program is
# made of them, and one benchmark's must not make the next one's results those of no commit.
VERSION := $(shell commit=$$(git describe --tags --always 2>/dev/null) || { echo dev; exit; }; \
	git diff --quiet HEAD -- . ':!*.md' ':!docs/results' && echo $$commit || echo $$commit-dirty)
# The version comes from LDFLAGS. Go's own look at the working copy fails when it belongs
# to another user, as it does for root.
BUILD := -trimpath -buildvcs=false
LDFLAGS := -s -w -X github.com/headstart-mesh/headstart/shim/nodeapi.Version=$(VERSION)
# Tests against real Envoy, containerd and S3 find them here.
export HEADSTART_BIN := $(BIN)

.DEFAULT_GOAL := help

## help: this list
help:
	@sed -n 's/^## \([a-z-]*\): \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

## setup: install what is missing on this machine (root, Debian)
setup:
	@e2e/setup.sh $(BIN)

## build: all programs and the filters, into out/bin
PROGRAMS := control-plane/cmd/headstart control-plane/cmd/headstart-controlplane shim/cmd/headstart-node \
	shim/cmd/containerd-shim-headstart-v2 shim/cmd/headstart-installer e2e/linkemu/cmd/linkemu \
	e2e/functions/fire e2e/functions/witness e2e/functions/media e2e/functions/handoff e2e/functions/workflow e2e/functions/worker \
	e2e/functions/reader e2e/functions/query e2e/functions/client e2e/demo e2e/prefetch/cmd/bench-prefetch e2e/routing/cmd/bench-routing \
	e2e/cache/cmd/bench-cache e2e/connections/cmd/bench-connections e2e/speculation/cmd/bench-speculation \
	e2e/functions/chain e2e/routing/cmd/bench-xds e2e/trust/cmd/trust e2e/sdks/cmd/sdk-go
build: $(addprefix build-,$(notdir $(PROGRAMS))) $(BIN)/filters.wasm
	@:

# One program after the other: the compiler uses all cores by itself.
.NOTPARALLEL:
define program
build-$(notdir $(1)): FORCE
	@echo "· building $(notdir $(1))" >&2
	@CGO_ENABLED=0 $(GO) build $(BUILD) -ldflags '$(LDFLAGS)' -o $(BIN)/ ./$(1)
endef
$(foreach p,$(PROGRAMS),$(eval $(call program,$(p))))
$(BIN)/filters.wasm: FORCE
	@echo "· building the filters" >&2
	@GOOS=wasip1 GOARCH=wasm $(GO) build $(BUILD) -ldflags '-s -w' -buildmode=c-shared -o $@ ./filters/wasm
FORCE:

## demo: the main job on real parts, off and on; INPUT=video.mjpeg adds your own
demo: setup build
	@exec $(BIN)/demo -bin $(BIN) -out $(CURDIR)/out/demo $(if $(INPUT),-input '$(INPUT)')

# Packages with tests that need root and other programs.
INTEGRATION_TESTS = $(sort $(dir $(shell grep -rl --include='*_test.go' '^//go:build.*integration' control-plane e2e filters manifests shim)))

## test: all tests, also those against real Envoy, containerd and S3 (root)
test: setup build test-unit
	@echo "· tests with other programs" >&2
	HEADSTART_NEIGHBOUR=$$(e2e/replicas/neighbour.sh $(CURDIR)/out/neighbour) && export HEADSTART_NEIGHBOUR && \
	e2e/failures.sh $(GO) test -count=1 -p 1 -timeout 20m -tags integration $(addprefix ./,$(INTEGRATION_TESTS))
	HEADSTART_SCHEDULES=100000 $(GO) test -count=1 -run TestRunningAheadChangesNothing ./shim/workflow
	@$(MAKE) --no-print-directory test-trust

## test-trust: the tests that play an attacker, into out/trust.json; a part of `make test` (root)
test-trust: setup build
	@echo "· tests that play an attacker" >&2
	@$(BIN)/trust

## test-ktls: the tests on a kernel that has TLS, in QEMU (root, Debian; 5 minutes at most)
test-ktls:
	@e2e/ktls/test.sh $(CURDIR)/out/ktls -test.v

# What starts no goroutine has nothing for the race detector to find, and takes five times as long
# with it: filters, which have one thread each, and computations of many seconds.
SEQUENTIAL = filters/... e2e/geography e2e/routing/simulator e2e/functions/mjpeggen e2e/functions/workflow/content

# The race detector crashes when two goroutines of one bubble set timers that are due at once (golang/go#78156), so packages with
# such tests get one processor.
BUBBLES = $(filter-out $(subst ...,%,$(SEQUENTIAL)),$(sort $(patsubst %/,%,$(dir $(shell grep -rl --include='*_test.go' '^	"testing/synctest"' \
	control-plane e2e filters manifests shim)))))
alternatives = $(subst $() ,|,$(subst ...,.*,$(strip $(1))))

## test-unit: the tests that need neither root nor other programs, with the race detector (a C compiler)
test-unit:
	@echo "· tests with the race detector" >&2
	e2e/failures.sh $(GO) test -race $$($(GO) list ./... | grep -vE '/($(call alternatives,$(SEQUENTIAL) $(BUBBLES)))$$')
	e2e/failures.sh $(GO) test -race -cpu 1 $(addprefix ./,$(BUBBLES))
	@echo "· tests of what is sequential" >&2
	e2e/failures.sh $(GO) test $(addprefix ./,$(SEQUENTIAL))

# How long, and by which plan: another one each time, unless you name it.
SOAK_DURATION ?= 30m
SOAK_SEED ?= $(shell date +%s)

# How often a daemon that keeps objects is killed, or loses its power: 10 minutes.
CRASHES ?= 10000

# How many sessions tenants open while servers and the daemon are killed: 40 minutes.
HANDOVERS ?= 100000

# How many random runs of workflows are compared with what they come to in turn: half an hour.
SCHEDULES ?= 1000000

# How many runs of a workflow are compared likewise while programs and daemons are killed: 10 minutes.
FAULT_RUNS ?= 2000

## soak: requests through real daemons while everything around them fails; SOAK_DURATION=8h, SOAK_SEED=7 (root)
soak: setup build
	@echo "· building the daemon with the race detector" >&2
	@$(GO) build -race $(BUILD) -o $(BIN)/headstart-node-race ./shim/cmd/headstart-node
	$(GO) test -v -count=1 -timeout 0 -tags integration ./e2e/soak -args -node $(BIN)/headstart-node-race -duration $(SOAK_DURATION) -seed $(SOAK_SEED)
	HEADSTART_CRASHES=$(CRASHES) $(GO) test -v -count=1 -timeout 0 -tags integration \
		-run 'TestKilledDaemons|TestKilledNodes|TestPowerCuts|TestSimulation|TestTheProtocol' ./shim/objects ./shim/writeback
	HEADSTART_SCHEDULES=$(SCHEDULES) $(GO) test -v -count=1 -timeout 0 -run TestRunningAheadChangesNothing ./shim/workflow
	HEADSTART_FAULT_RUNS=$(FAULT_RUNS) $(GO) test -v -count=1 -timeout 0 -tags integration -run TestRunsUnderFaults ./e2e/local
	$(GO) test -v -count=1 -timeout 0 -tags integration ./e2e/connections/tenants -args -handovers $(HANDOVERS)

# How long each target is fuzzed. What is found is kept in the package's testdata/fuzz, and is a test from then on.
FUZZ_TIME ?= 10m
## fuzz: each fuzz target for a while, 12 hours in all; FUZZ_TIME=30s, FUZZ=FuzzSizeIn for one (root: one is of a real Envoy)
fuzz: setup
	@for file in $$(git grep -lE '^func Fuzz$(patsubst Fuzz%,%,$(FUZZ))' -- '*_test.go'); do \
		for target in $$(sed -nE 's/^func (Fuzz$(patsubst Fuzz%,%,$(FUZZ))[A-Za-z]*)\(.*/\1/p' $$file); do \
			echo "· $$target in $$(dirname $$file), $(FUZZ_TIME)" >&2; \
			$(GO) test -tags integration -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZ_TIME) ./$$(dirname $$file) || exit 1; \
		done; \
	done

# Packages with tests that need a cluster's programs, or a cluster.
CLUSTER_TESTS = $(sort $(dir $(shell grep -rl --include='*_test.go' '^//go:build.*cluster' control-plane e2e manifests shim)))
# build.sh makes the programs that are missing, and prints where they are.
WITH_CLUSTER = HEADSTART_CLUSTER_BIN=$$(e2e/cluster/build.sh) && export HEADSTART_CLUSTER_BIN &&
# Built, and not by `go run`, which a SIGTERM ends without its program: nobody would take the
# cluster down.
CLUSTER_PROGRAM = $(WITH_CLUSTER) $(GO) build $(BUILD) -ldflags '$(LDFLAGS)' -o $(BIN)/cluster-$(1) ./e2e/cluster/cmd/$(1) && exec $(BIN)/cluster-$(1)

## test-cluster: the tests on a real cluster: Kubernetes, Istio, three nodes (root; the first time 20 minutes more); HEADSTART_CLUSTER=oldest takes the oldest versions
test-cluster: setup build
	@e2e/cluster/test.sh $(addprefix ./,$(CLUSTER_TESTS))

# The commit at which all tests on a cluster passed last; without one all count as touched. Write yours there when `make
# test-cluster` has passed.
CLUSTER_TESTED = $(shell cat e2e/cluster/tested 2>/dev/null)
# Without building the cluster's programs.
CLUSTER_TIME = 15m
## test-cluster-changed: those of them that can be touched by what changed since all passed, as many as fit into 15 minutes (root)
test-cluster-changed: setup build
	@packages=$$($(GO) run ./e2e/cluster/cmd/affected -since '$(CLUSTER_TESTED)' -within $(CLUSTER_TIME) $(CLUSTER_TESTS)) && e2e/cluster/test.sh -short $$packages

## bench-cluster: measure on a real cluster, into out/bench (root)
bench-cluster: setup build
	@$(call CLUSTER_PROGRAM,bench) -source . -out out/bench

## demo-cluster: the main job on a real cluster (root)
demo-cluster: setup build
	@$(call CLUSTER_PROGRAM,demo)

## cluster: a Kubernetes cluster on this machine, without Headstart, until Ctrl-C (root)
cluster:
	@$(call CLUSTER_PROGRAM,cluster) up

# Some of its parts, and more or fewer repetitions; docs/results tells, and has the figures of what
# is measured whole.
ONLY =
REPETITIONS =
FIGURES = $(if $(ONLY)$(REPETITIONS),,docs/results)
BENCH_OPTIONS = -bin $(BIN) -out $(CURDIR)/out/bench $(if $(REPETITIONS),-repetitions $(REPETITIONS)) $(if $(ONLY),-only '$(ONLY)') $(if $(FIGURES),-figures '$(FIGURES)')
## bench-prefetch: measure what prefetching is worth, into out/bench (root; 90 minutes); ONLY=hot,chain REPETITIONS=3 FIGURES=docs/results
bench-prefetch: setup build
	@exec $(BIN)/bench-prefetch $(BENCH_OPTIONS)

## bench-routing: measure what routing by distance and load is worth, into out/bench (root; 165 minutes); ONLY=cases REPETITIONS=4 FIGURES=docs/results
bench-routing: setup build
	@exec $(BIN)/bench-routing $(BENCH_OPTIONS)

# A published trace for the part trace; docs/results/cache.md has the formats.
TRACE =
## bench-cache: measure what the node's cache is worth, into out/bench (root; two hours); ONLY=trace TRACE=file
bench-cache: setup build
	@e2e/cache/setup.sh
	@exec $(BIN)/bench-cache $(BENCH_OPTIONS) $(if $(TRACE),-trace '$(TRACE)')

## bench-connections: measure what connections are worth that are there before the function starts, into out/bench (root; 90 minutes)
bench-connections: setup build
	@exec $(BIN)/bench-connections $(BENCH_OPTIONS)

## bench-speculation: measure what it is worth that workflows run ahead, into out/bench (root; 20 minutes)
bench-speculation: setup build
	@e2e/speculation/setup.sh $(BIN)
	@exec $(BIN)/bench-speculation $(BENCH_OPTIONS)

## images: the container images, into out/images; IMAGE_REGISTRY=host/path pushes them
images:
	$(GO) run ./manifests/images -out out/images -tag '$(VERSION)' -version '$(VERSION)'

## release: images for amd64 and arm64, chart, and command lines, into out/images and out/release; VERSION=v1.2.0, and IMAGE_REGISTRY as above
release:
	$(GO) run ./manifests/release -check -version '$(VERSION)'
	manifests/images/sysroot.sh amd64 out/sysroots/amd64
	manifests/images/sysroot.sh arm64 out/sysroots/arm64
	$(GO) run ./manifests/images -out out/images -arch amd64,arm64 -sysroots out/sysroots -tag '$(VERSION)' -version '$(VERSION)'
	$(GO) run ./manifests/release -out out/release -images out/images -registry '$(IMAGE_REGISTRY)' -version '$(VERSION)'

# The test cluster's helm, else yours.
HELM ?= $(or $(wildcard $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/headstart/cluster-1.36.3/helm),helm)
RENDER = '$(HELM)' template headstart manifests/charts/headstart --namespace headstart-system \
	$(addprefix -f ,$(wildcard out/images/values.yaml)) $(if $(VALUES),-f '$(VALUES)')

## manifests: the chart as YAML, into out/manifests, with the images made last; VALUES=values.yaml adds your own
manifests:
	@mkdir -p out/manifests
	$(RENDER) --no-hooks >out/manifests/headstart.yaml
	$(RENDER) --show-only templates/uninstall.yaml >out/manifests/uninstall.yaml

## lint: golangci-lint, with the rules of who may import whom
lint:
	$(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0 run --build-tags integration,cluster ./...

# The Go vulnerability database; file:///DIRECTORY for a copy of it.
VULNDB = https://vuln.go.dev
## vuln: govulncheck, known vulnerabilities in what the programs call (Internet); VULNDB=file:///DIRECTORY for a copy of the database
vuln:
	$(GO) run golang.org/x/vuln/cmd/govulncheck@v1.9.0 -db '$(VULNDB)' -tags kubernetes ./...

## generate: the code from node.proto; pages and manifests from the code
generate:
	$(GO) generate ./shim/nodeapi ./docs

## publish: results of demo and benchmarks from out/ into docs/results; makes the pages' tables and the README's picture from them
publish:
	$(GO) run ./e2e/published/publish -from out -to docs/results
	$(GO) test ./docs -run 'Of(Its|Their)Results' -update

## clean: remove what was built
clean:
	rm -rf out

.PHONY: FORCE help setup build demo test test-trust test-ktls test-unit fuzz soak test-cluster test-cluster-changed \
	bench-cluster bench-prefetch bench-routing bench-cache bench-connections bench-speculation demo-cluster cluster images release manifests lint vuln \
	generate publish clean
