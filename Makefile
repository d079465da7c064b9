GO ?= go
# The interpreter for the quickstart and the tests; .ci/python.sh finds or
# installs one that has PyTorch where it is not given.
PYTHON ?=
FUZZTIME ?= 30s
COUNT ?= 50
HOSTILE ?= 1000
ATTEMPTS ?= 200

.DEFAULT_GOAL := help
.PHONY: help build quickstart test unit lint fuzz stress soak bench conformance corpus-report clean

help: ## show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/gpurun
	$(GO) build -o bin/gpurun ./cmd/gpurun

quickstart: build ## run the example: from out of memory to trained
	@python=$$(PYTHON='$(PYTHON)' .ci/python.sh) && PYTHON_EXEC=$$python bin/gpurun examples/quickstart/train.toml

test: ## everything that decides whether a change is good
	@python=$$(PYTHON='$(PYTHON)' .ci/python.sh) && $(MAKE) --no-print-directory lint && $(MAKE) --no-print-directory unit GPURUN_TEST_PYTHON=$$python

unit: # the Go tests; GPURUN_TEST_PYTHON is an interpreter that has PyTorch
	GPURUN_TEST_PYTHON='$(GPURUN_TEST_PYTHON)' $(GO) test -race -timeout 10m ./...

lint: ## formatting, go.mod, vet, staticcheck, known vulnerabilities, builds without cgo
	@unformatted=$$(gofmt -l cmd launcher strategy recipes); test -z "$$unformatted" || { echo "gofmt: $$unformatted" >&2; exit 1; }
	$(GO) mod tidy -diff
	$(GO) vet ./...
	$(GO) tool staticcheck ./...
	@GO='$(GO)' .ci/vulncheck
	CGO_ENABLED=0 $(GO) build -o /dev/null ./cmd/gpurun
	GOARCH=arm64 CGO_ENABLED=0 $(GO) build -o /dev/null ./cmd/gpurun

fuzz: ## each fuzz target for FUZZTIME
	@.ci/fuzz $(FUZZTIME)

stress: ## the process tests COUNT times in a row, and hostile text HOSTILE times
	GPURUN_HOSTILE=$(HOSTILE) $(GO) test -count=1 -timeout 60m -run 'TextIsNoFailure|GenuineIsStillSeen' ./launcher/probe
	GPURUN_HOSTILE=$(HOSTILE) $(GO) test -count=1 -timeout 60m -run HostileText -v ./launcher/probe ./strategy
	$(GO) test -race -count=$(COUNT) -timeout 60m ./launcher/proc ./launcher/output ./launcher
	$(GO) test -race -count=$(COUNT) -timeout 120m -run 'Scripts|FirstProcess|FullDisk|Terminal|EndsEarly' ./cmd/gpurun

soak: ## ATTEMPTS attempts in one run, ended by random kills; nothing may grow
	GPURUN_SOAK=$(ATTEMPTS) $(GO) test -count=1 -timeout 60m -run TestSoak -v ./cmd/gpurun

bench: build ## launch, recovery and output beside torchrun; the classifier beside grep
	$(GO) test -run '^$$' -bench 'LargeLog|Grep' ./strategy/cause
	@python=$$(PYTHON='$(PYTHON)' .ci/python.sh) && $$python .ci/bench.py bin/gpurun

conformance: ## the recipes beside the real frameworks (RECIPES="a b" for some of them)
	GPURUN_CONFORMANCE='$(or $(RECIPES),all)' $(GO) test -count=1 -timeout 120m -run 'TestConformance' -v ./recipes

corpus-report: ## how well failures are told apart, by cause
	$(GO) test -count=1 -run Corpus -v ./strategy

clean: ## remove what was built
	rm -rf bin .cache
