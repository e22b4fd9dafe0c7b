# make test    everything that must hold, with the race detector and in random order
# make bench   benchmarks
# make fuzz    every fuzz target for FUZZTIME each
# make lint    formatting, vet, staticcheck, tidy modules
# make build   the static binary bin/edgelimit

GO       ?= go
FUZZTIME ?= 20s
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2

.PHONY: test bench fuzz lint build

test:
	@echo "make test needs: Go ($$($(GO) version)) and a C compiler for the race detector ($$($(GO) env CC)). Nothing else."
	$(GO) test -race -shuffle=on -timeout 15m ./...

bench:
	$(GO) test -run '^$$' -bench . -benchmem ./...

# Go's minimizer would spend most of so short a time: it may try a finding a few times only. Before Go 1.27 a target may fail with
# "context deadline exceeded" as its time runs out, without a finding (go.dev/issue/75804): it gets a second try then.
FUZZ = $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x $$pkg

fuzz:
	@log=$$(mktemp); trap 'rm -f $$log' EXIT; \
	for pkg in $$($(GO) list ./...); do \
		for target in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
			echo "$$pkg $$target"; \
			$(FUZZ) >$$log 2>&1 && { tail -n 1 $$log; continue; }; \
			cat $$log; \
			grep -q 'context deadline exceeded' $$log && ! grep -q 'Failing input' $$log || exit 1; \
			echo "once more:"; $(FUZZ) || exit 1; \
		done; \
	done

lint:
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "not gofmt-ed: $$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...
	$(GO) mod tidy -diff

build:
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o bin/edgelimit ./cmd/edgelimit
