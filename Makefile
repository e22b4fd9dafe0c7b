# make test        everything that must hold, with the race detector and in random order
# make bench       the counting engine beside other limiters: some five minutes, writes testnet/bench/RESULTS.md
# make bench-doors what each API of a node costs: some four minutes, writes testnet/bench/DOORS.md
# make bench-strict  what a strict check costs Redis and node: some four minutes, writes testnet/bench/STRICT.md
# make accuracy    simulations of every scenario: some minutes, writes testnet/ACCURACY.md
# make sizing      what nodes need in typical deployments, by samples of their keys: some minutes, writes node/SIZING.md
# make abuse       one node under 10,000 idle and stalled connections, long bodies, invalid requests: two minutes
# make microbench  the packages' own benchmarks
# make fuzz        every fuzz target for FUZZTIME each
# make lint        formatting, vet, staticcheck, tidy modules
# make build       the static binary BIN, bin/edgelimit
# make release     archives, packages, SBOMs and SHA256SUMS of VERSION, in dist/: bytes that anybody can build again
# make vuln        known vulnerabilities that the code calls, by govulncheck and the database GOVULNDB
# make image       the container images edgelimit:local and edgelimit:ratelimit, by Docker

GO       ?= go
FUZZTIME ?= 20s
# What the binary does without: gRPC's traces, which bring html/template along, and manual pages of the command line.
TAGS     = grpcnotrace,urfave_cli_no_docs
# What edgelimit version prints; empty where git cannot say: then what the go command knows.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null)
BIN      ?= bin/edgelimit
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2

# The benchmarks are a module of their own, so that nobody who uses edgelimit inherits its rivals.
BENCH = testnet/bench
# So is the test of the manifests, which decodes them as Kubernetes does.
MANIFESTS = testnet/manifests
# And what writes releases, with the libraries of packages and SBOMs.
RELEASE = node/deploy/release

# Packages whose tests compute, or wait for an answer however long it takes, keep the machine busy; the others, which run
# real programs in real time, have it to themselves afterwards, one at a time; in the processor time that they leave, the
# next one is linked, and what the other modules test is compiled. The time that go prints for each has the wait for the
# one before. Where a test plays many random worlds, with the race detector it is a tenth of them, and all without.
# SEQUENTIAL packages start no goroutine, but for tests that are named Concurrent: make test plays those with the detector,
# and all without.
COMPUTING = ./gossip/... ./testnet/accuracy ./node/actions ./node/answer ./node/certs ./node/client ./node/clock \
	./node/decisionlog ./node/files ./node/limits ./node/middleware/... ./node/ratelimit/... ./node/status \
	./testnet/cluster ./testnet/conformance ./testnet/evasion ./testnet/oracle ./testnet/parsers ./testnet/plot \
	./testnet/record ./testnet/scenario
SEQUENTIAL = ./counters/... ./node/replay ./testnet/sim ./testnet/judge ./testnet/plan ./testnet/sizing
# Tests that play the same with the detector as without it run once: SLOW ones, whose code others of them run or which play
# everything in one goroutine, without it, the rest of the SAME with it.
SAME      = ^Test(Cluster|Gateways|AllGateways)
SLOW      = ^Test(GatewaysP|GatewaysOf|ClusterRestartElsewhere|ClusterRejoin|ClusterStart|ClusterTwins|$(ALONE))
ALONE     = OutOfReach|NoViewExceedsTheTruth|UnsettledNodesAgree|ASmallRegionWaits|AnOwnerGoesWhile|CommittedCurve
SEEDED    = ./gossip ./testnet/accuracy
# vet is for make lint.
TESTFLAGS = -shuffle=on -timeout 40m -vet=off
IDLE      = nice -n 19
# Compiles the tests of the other modules, and what make fuzz runs.
COMPILE   = for m in $(MANIFESTS) $(RELEASE); do $(GO) -C $$m list -test -export ./...; done >/dev/null; \
	$(GO) -C $(BENCH) list -race -test -export ./... >/dev/null; \
	for p in $(FUZZED); do $(GO) test -c -vet=off -fuzz . -o /dev/null $$p; done
FUZZED    = $(sort $(dir $(shell grep -rl --include=*_test.go '^func Fuzz' ./*/)))

.PHONY: test bench bench-doors bench-strict accuracy sizing abuse microbench fuzz lint build release vuln image programs

test: programs
	@echo "make test needs: Go ($$($(GO) version)), a C compiler for the race detector ($$($(GO) env CC)), Redis ($$(redis-server --version)), nginx, HAProxy, Caddy, curl, nftables, ipset, promtool, Chromium and systemd-analyze. Nothing else."
	$(GO) list -race -test -export ./... >/dev/null # compiles all, on all processors
	$(GO) test -race $(TESTFLAGS) -skip '$(SLOW)' $(COMPUTING)
	$(GO) test -race $(TESTFLAGS) -run Concurrent $(SEQUENTIAL)
	$(IDLE) sh -c '$(COMPILE)' & lock=$$(mktemp); trap 'kill $$! 2>/dev/null; rm -f $$lock' EXIT; \
	$(GO) test -race $(TESTFLAGS) -p 2 -toolexec '$(IDLE)' -exec "flock -o $$lock" \
		$(filter-out $(shell $(GO) list $(COMPUTING) $(SEQUENTIAL)),$(shell $(GO) list ./...)) && wait
	$(GO) test $(TESTFLAGS) -skip '$(SAME)' $(SEEDED) $(SEQUENTIAL)
	$(GO) test $(TESTFLAGS) -run '$(SLOW)' ./gossip
	$(GO) test $(TESTFLAGS) -run '^(TestMetrics|TestMetricsHoldNoIdentity)$$' ./node ./node/otlp
	$(GO) -C $(BENCH) test -race -shuffle=on -vet=off -short ./...
	$(GO) -C $(MANIFESTS) test -shuffle=on -vet=off ./...
	$(GO) -C $(RELEASE) test -shuffle=on -vet=off ./...

bench: programs
	$(GO) -C $(BENCH) run .

bench-doors:
	$(GO) -C $(BENCH) run ./doors

bench-strict: programs
	$(GO) -C $(BENCH) run ./strict

accuracy:
	$(GO) run ./testnet/accuracy

sizing:
	$(GO) run ./testnet/sizing

abuse:
	$(GO) run ./testnet abuse

microbench: programs
	$(GO) test -run '^$$' -bench . -benchmem ./...

# Tests start servers of their own: Redis, the proxies of testnet/recipes, and Chromium, which opens the dashboard. Debian
# and Ubuntu have packages of them; elsewhere install them with your system's package manager. Debian's packages start their services unless the script
# policy-rc.d forbids it (exit status 101): it exists during the installation only, and one that exists stays.
PROGRAMS = redis-server redis-sentinel nginx haproxy caddy curl nft ipset promtool chromium systemd-analyze
POLICY   = /usr/sbin/policy-rc.d

programs:
	@missing=; for p in $(PROGRAMS); do command -v $$p >/dev/null || missing="$$missing $$p"; done; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if ! command -v apt-get >/dev/null; then \
		echo "missing:$$missing (Redis 7), and there is no apt-get: install them with your system's package manager" >&2; exit 1; \
	fi; \
	sudo=; if [ "$$(id -u)" != 0 ]; then sudo=sudo; fi; \
	echo "installing with apt-get:$$missing"; \
	if [ ! -e $(POLICY) ]; then \
		trap "$$sudo rm -f $(POLICY)" EXIT; \
		printf '#!/bin/sh\nexit 101\n' | $$sudo tee $(POLICY) >/dev/null && $$sudo chmod 755 $(POLICY) || exit 1; \
	fi; \
	$$sudo apt-get update -qq && $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $$(echo $$missing | sed "s/\\bnft\\b/nftables/; s/promtool/prometheus/; s/systemd-analyze/systemd/")

# Go's minimizer would spend most of so short a time: it may try a finding a few times only. Before Go 1.27 a target may fail with
# "context deadline exceeded" as its time runs out, without a finding (go.dev/issue/75804): it gets a second try then.
FUZZ = $$dir/fuzz -test.paniconexit0 -test.run '^$$' -test.fuzz "^$$target\$$" -test.fuzztime $(FUZZTIME) \
	-test.fuzzminimizetime 10x -test.fuzzcachedir $$found

# Each package is linked once, for all of its targets.
fuzz: programs
	@dir=$$(mktemp -d); trap 'rm -rf $$dir' EXIT; \
	for pkg in $(abspath $(FUZZED)); do \
		cd $$pkg; \
		targets=$$(cat *_test.go | sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p'); \
		$(GO) test -c -vet=off -fuzz . -o $$dir/fuzz || exit 1; \
		found=$$($(GO) env GOCACHE)/fuzz/$$($(GO) list); \
		for target in $$targets; do \
			echo "$$pkg $$target"; \
			$(FUZZ) >$$dir/log 2>&1 && { tail -n 2 $$dir/log; continue; }; \
			cat $$dir/log; \
			grep -q 'context deadline exceeded' $$dir/log && ! grep -q 'Failing input' $$dir/log || exit 1; \
			echo "once more:"; $(FUZZ) || exit 1; \
		done; \
	done

lint:
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "not gofmt-ed: $$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...
	$(GO) mod tidy -diff
	$(GO) -C $(BENCH) vet ./...
	$(GO) -C $(BENCH) run $(STATICCHECK) ./...
	$(GO) -C $(BENCH) mod tidy -diff
	$(GO) -C $(MANIFESTS) vet -tags docker ./...
	$(GO) -C $(MANIFESTS) mod tidy -diff
	$(GO) -C $(RELEASE) vet ./...
	$(GO) -C $(RELEASE) run $(STATICCHECK) ./...
	$(GO) -C $(RELEASE) mod tidy -diff

build:
	CGO_ENABLED=0 $(GO) build -trimpath -tags $(TAGS) -ldflags '-s -w -X github.com/edgelimit/edgelimit/node.version=$(VERSION)' -o $(BIN) ./cmd/edgelimit

release:
	$(GO) -C $(RELEASE) run . --version '$(VERSION)'

vuln:
	$(GO) -C $(RELEASE) run ./vuln -C $(CURDIR)

image:
	$(GO) run ./testnet build edgelimit ratelimit
