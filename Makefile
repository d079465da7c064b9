GO ?= go
# The interpreter for the quickstart and the tests; .ci/python.sh finds or
# installs one that has PyTorch where it is not given.
PYTHON ?=
FUZZTIME ?= 30s
COUNT ?= 50
KILLS ?= 300
SHOTS ?=
HOSTILE ?= 1000
# Some 0.4 s each: half an hour and more.
ATTEMPTS ?= 4500
REPEATS ?= 2000
# A file of measured plans; the project's own where none is given.
LANDSCAPE ?=
# Where the random suites begin; it is printed.
SEED ?= $(shell date +%s)

.DEFAULT_GOAL := help
.PHONY: help build quickstart quick test unit torch cli lab lint fuzz stress soak bench conformance transformers corpus-report landscape-report docs dist dist-check clean

help: ## show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/gpurun
	$(GO) build -buildvcs=auto -ldflags="-X github.com/gpurun/gpurun/launcher/manual.linkedCommit=$$(git rev-parse HEAD 2>/dev/null)" -o bin/gpurun ./cmd/gpurun

quickstart: build ## run the example: from out of memory to trained
	@python=$$(PYTHON='$(PYTHON)' .ci/python.sh) && PYTHON_EXEC=$$python bin/gpurun examples/quickstart/train.toml

quick: ## before a push, in a minute: vet, staticcheck of the changed packages, the short tests of strategy, recipes and launcher
	$(GO) vet ./...
	@changed=$$(.ci/changed) || exit 1; test -z "$$changed" || { set -x; $(GO) tool staticcheck $$changed; }
	$(GO) test -vet=off -short ./strategy/... ./recipes ./recipes/format ./recipes/edit ./launcher

# Its parts run beside each other: many tests wait for processes. What several of them need is
# installed and compiled before.
test: ## all checks that a change must pass: lint, unit, torch, cli
	@GPURUN_TEST_PYTHON=$$(PYTHON='$(PYTHON)' .ci/python.sh) && export GPURUN_TEST_PYTHON && $(GO) build ./... && \
		$(MAKE) --no-print-directory --output-sync=line -j4 torch cli unit lint

# An interpreter that has PyTorch, for the tests. make test has looked for one already.
WITH_TORCH = GPURUN_TEST_PYTHON="$${GPURUN_TEST_PYTHON:-$$(PYTHON='$(PYTHON)' .ci/python.sh)}"
# make lint vets: go test need not do so again.
GO_TEST = $(GO) test -vet=off -timeout 45m

# The race detector makes tests some five times as slow. It watches the packages whose code runs
# things at once; in the others it would find nothing. Of a few large packages it watches the tests
# of those parts that do.
CONCURRENT := \bgo (func|[a-zA-Z_.]+\()|\.Go\(|AfterFunc\(|sync\.(Cond|Map|Mutex|Pool|RWMutex|WaitGroup)|"sync/atomic"
LARGE := ./launcher/diagnose ./launcher/hook ./launcher/show ./recipes
LARGE_TESTS := Watch|MeasurementsAreReported|StopLooks|RubbishIs|ManyProcesses|RanksWait|AtEnd|TestCatalog$$|ReadsOfAnySize|FilesOfOneJob|NeverEnds
RACE = grep -rlE '$(CONCURRENT)' --include='*.go' --exclude='*_test.go' launcher strategy recipes | sed 's|^|./|; s|/[^/]*$$||' | sort -u | grep -vxF "$$(printf '%s\n' $(LARGE))" | xargs $(GO) list
# The scripts of the command line in which most happens at once.
RACE_SCRIPTS := climb|guard-killed|logs|notice-.*|oom-to-trained|peer-saves|rank-signals|report|resume|signal-.*|status|transient

unit: ## the tests of all packages but those of torch and cli
	@set -x; $(WITH_TORCH) $(GO_TEST) -race $$($(RACE))
	@set -x; $(WITH_TORCH) $(GO_TEST) -race -run '$(LARGE_TESTS)' $(LARGE)
	@$(WITH_TORCH) $(GO_TEST) $$($(GO) list ./... | grep -vE '/(cmd/gpurun|launcher/hook|test)$$' | grep -vxF "$$($(RACE))")

torch: ## the tests of the hook, with real PyTorch
	@set -x; $(WITH_TORCH) $(GO_TEST) ./launcher/hook

cli: ## the tests of the command line and of whole jobs
	@set -x; $(WITH_TORCH) $(GO_TEST) -parallel 4 ./test
	@set -x; $(WITH_TORCH) $(GO_TEST) -parallel 4 -skip 'TestScripts/^($(RACE_SCRIPTS))$$' ./cmd/gpurun
	@set -x; $(WITH_TORCH) $(GO_TEST) -race -parallel 4 -run 'TestScripts/^($(RACE_SCRIPTS))$$' ./cmd/gpurun

# Scenes that take long, or more of the machine than a test should.
SCENES := SecondNight|UsersOfASite|Mpirun|RayJobs|TestPodman|DistModule|Slurm(Nodes|Series|Requeues)|SlurmSubmitit|SlurmLightning|TestNodes$$|ASlowNodeIsNamed|NodesOutlive|Nights|NightlyByCron|OnKubernetes|ReadOnlyPod|PrometheusAnd|TestTrackers|TheLineOn|ABarOf|Browser|Phone|Screenshots|SizeOfALongRun|JobsWithoutASetting|PrintedAdviceFits|DoctorOnThisMachine|ScriptsOfDifferentMake|BatchesOfDifferentMake|NanoGPTIsRescued|OnlyForEqualGradients|ShellsHide

lab: ## more scenes than make test has, on screens, with two ranks, and of this machine; SHOTS is a folder for pictures of the report
	@python=$$(PYTHON='$(PYTHON)' .ci/python.sh) && .ci/screens.sh && GPURUN_LAB=1 REPORT_SHOTS='$(SHOTS)' GPURUN_TEST_PYTHON=$$python \
		$(GO) test -count=1 -v -timeout 60m -parallel 8 -run '$(SCENES)' ./test ./launcher/show ./launcher/doctor

lint: ## formatting, go.mod, vet, staticcheck, ruff, mypy and import-linter on the hook's Python, known vulnerabilities
	@unformatted=$$(gofmt -l cmd launcher recipes strategy test); test -z "$$unformatted" || { echo "gofmt: $$unformatted" >&2; exit 1; }
	$(GO) mod tidy -diff
	$(GO) vet ./...
	$(GO) tool staticcheck ./...
	@GO='$(GO)' .ci/vulncheck
	@.ci/python-lint

fuzz: ## each fuzz target for FUZZTIME
	@.ci/fuzz $(FUZZTIME)

# Their random tests have a fixed seed (test/testenv) under every other command.
RANDOM_PACKAGES = grep -rl pgregory.net/rapid --include='*_test.go' launcher strategy recipes | sed 's|^|./|; s|/[^/]*$$||' | sort -u

stress: export GPURUN_SEED := $(SEED)
stress: ## the process tests and the random suites COUNT times in a row, hostile text HOSTILE times, REPEATS steps repeated in place, all habits of scripts in all places, all cases of the remedies, an error in each function of the hook; SEED repeats a run
	@echo "SEED=$$GPURUN_SEED"
	$(GO) test -count=1 -timeout 60m $$($(RANDOM_PACKAGES)) -rapid.checks=1000
	GPURUN_HOSTILE=$(HOSTILE) $(GO) test -count=1 -timeout 60m -run 'TextIsNoFailure|GenuineIsStillSeen' ./launcher/hook
	@python=$$(PYTHON='$(PYTHON)' .ci/python.sh) && set -x && GPURUN_REPEATS=$(REPEATS) GPURUN_TEST_PYTHON=$$python $(GO) test -count=1 -timeout 60m -run RepeatedStepsAreExact -v ./launcher/hook
	@python=$$(PYTHON='$(PYTHON)' .ci/python.sh) && set -x && GPURUN_HABITS=all GPURUN_TEST_PYTHON=$$python $(GO) test -count=1 -timeout 180m -run '^TestHabits' ./launcher/hook
	@python=$$(PYTHON='$(PYTHON)' .ci/python.sh) && set -x && GPURUN_REMEDIES=all GPURUN_TEST_PYTHON=$$python $(GO) test -count=1 -timeout 60m -run '^TestRemedies$$' ./launcher/hook
	@python=$$(PYTHON='$(PYTHON)' .ci/python.sh) && set -x && GPURUN_WALL=1 GPURUN_TEST_PYTHON=$$python $(GO) test -count=1 -timeout 120m -run ErrorOfTheHookIsNotTheJobs -v ./launcher/hook
	GPURUN_HOSTILE=$(HOSTILE) $(GO) test -count=1 -timeout 60m -run HostileText -v ./launcher/hook ./strategy
	$(GO) test -race -count=$(COUNT) -timeout 60m -run Stress ./launcher/journal
	$(GO) test -count=1 -timeout 30m ./strategy -run 'Ends|Walks' -rapid.checks=20000
	$(GO) test -race -count=$(COUNT) -timeout 60m ./launcher/ranks ./launcher
	GPURUN_KILLS=$(KILLS) $(GO) test -count=1 -timeout 60m -run 'KillsAroundTheEnd|ShellsHide' -v ./test
	$(GO) test -race -count=$(COUNT) -timeout 120m -run Scripts ./cmd/gpurun
	$(GO) test -count=$(COUNT) -timeout 120m -run 'FirstProcess|FullDisk|Terminal' ./test

soak: ## ATTEMPTS attempts in one run, half an hour of them, ended by random kills: memory, descriptors, journal and report stay small
	GPURUN_SOAK=$(ATTEMPTS) $(GO) test -count=1 -timeout 180m -run TestSoak -v ./test

bench: build ## launch, recovery and output compared with torchrun; many nodes; large logs; the classifier compared with grep; planning; decisions of long runs; a step that may be repeated; a healthy job with the hook; the loss in parts; KEEP=1 keeps the ratios
	$(GO) test -run '^$$' -bench Planning ./strategy/memory
	$(GO) test -run '^$$' -bench LongRuns ./strategy
	$(GO) test -run '^$$' -bench Large -benchtime 1x ./launcher/diagnose
	$(GO) test -run '^$$' -bench ThousandNodes -benchtime 1x ./launcher/nodes
	@python=$$(PYTHON='$(PYTHON)' .ci/python.sh) && GPURUN_TEST_PYTHON=$$python $(GO) test -run '^$$' -bench 'HealthyJob|LossInParts' -benchtime 1x ./launcher/hook
	@python=$$(PYTHON='$(PYTHON)' .ci/python.sh) && GO='$(GO)' $$python .ci/bench.py bin/gpurun $(if $(KEEP),--keep)

conformance: ## the recipes compared with the real frameworks (RECIPES="a b" for some of them)
	GPURUN_CONFORMANCE='$(or $(RECIPES),all)' $(GO) test -count=1 -timeout 120m -run 'TestConformance' -v ./recipes

transformers: ## the probe with transformers 4 and 5, which are installed first
	@pythons=$${GPURUN_TEST_TRANSFORMERS:-$$(.ci/transformers.sh)} && GPURUN_TEST_TRANSFORMERS=$$pythons $(GO) test -count=1 -timeout 60m -run 'TestTransformers' -v ./launcher/hook ./test

corpus-report: ## how well the causes of failures are recognised, and which answers changed; ANSWERS=keep keeps the new ones
	CORPUS_REPORT=1 $(GO) test -count=1 -run Corpus -v ./strategy $(if $(ANSWERS),-args -update-answers)

landscape-report: ## the planner replayed on measured plans, compared with the ladder (LANDSCAPE=file for others)
	@last=$$(mktemp) && trap 'rm -f "$$last"' EXIT && \
	LANDSCAPE='$(abspath $(LANDSCAPE))' LANDSCAPE_REPORT="$$last" $(GO) test -count=1 -run '^TestLandscapeReport$$' -v ./strategy/memory; \
	status=$$?; cat "$$last"; exit $$status

docs: build ## write what is made of gpurun's own tables: docs/config.md, and the JSON Schemas into docs/schema, which git ignores
	bin/gpurun help config --markdown >docs/config.md.new && mv docs/config.md.new docs/config.md
	mkdir -p docs/schema && bin/gpurun help schema >docs/schema/train.schema.json
	$(GO) test -count=1 -run '^TestEachVerbHasASchema$$' ./cmd/gpurun -args -schemas='$(CURDIR)/docs/schema'

dist: ## wheels, debs, rpms, plain binaries and an environment module for x86-64 and arm64 in dist, with bills of materials and SHA-256 sums
	@GO='$(GO)' python3 .ci/dist/dist.py build dist
	GPURUN_DIST='$(CURDIR)/dist' $(GO) test -count=1 -run '^TestDist' ./test

dist-check: dist ## what dist made is the same from a fresh clone, and its wheel runs the example
	@GO='$(GO)' .ci/dist/check '$(PYTHON)'

clean: ## remove what was built
	rm -rf bin dist .cache
