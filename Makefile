# wllock: everything a developer or a CI runs. `make` alone lists the targets.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS   += --no-print-directory
GO          ?= go

PKG       ?= $(RACED)# what race, gobench, fuzz and cover look at
TESTFLAGS ?=#       more for go test, as -count=1, which takes no result from the cache
FUZZTIME  ?= 10s#   per fuzz target
BENCHTIME ?= 1s#    per benchmark
BENCH     ?= .#     which benchmarks

# With it the keys of the build cache hold no folder, so a clone in another one compiles nothing again.
export GOFLAGS := $(sort $(shell $(GO) env GOFLAGS) -trimpath)
# Only the race detector needs cgo. Else what is compiled before `make` has installed gcc would be compiled again after it.
export CGO_ENABLED := 0

# The packages of all modules: "..." ends where another module begins. Those that compare are not run under the detector.
ALL   := $(shell awk '/^\t\./ { print $$1 "/..." }' go.work)
# Those whose goroutines are ours, and whose tests do not spend their time in servers: the gate runs these under the race detector.
CORE  := ./distributed/redislock . ./internal/behavior ./local ./internal/tenure ./internal/outage ./internal/deadline ./internal/conn \
	./distributed ./distributed/keepalive ./distributed/memlock ./distributed/locktest ./middleware/httpguard ./middleware/ratelimit \
	./config ./debug ./wllocktest
# The engine below them runs in both ways: under the detector its schedules from many seeds are skipped.
TWICE := ./distributed/driver ./distributed/driver/register
PLAIN := ./benchmarks/... ./example/doors/... ./example/frameworks/... ./example/migrating/... ./example/recipes/...
RACED := $(filter-out $(PLAIN),$(ALL))
STAGES = race benchmarks unraced databases tools# of make test-all, beside lint

# Prints a line per package, what failed, and at the end which tests were skipped and why: a skip that nobody sees hides.
GOTESTSUM = WLLOCK_REQUIRE_SERVERS=1 $(CURDIR)/bin/gotestsum --format pkgname --format-hide-empty-pkg --jsonfile $(CURDIR)/bin/$@.json
TEST      = $(GOTESTSUM) -- -vet=off -timeout 20m $(TESTFLAGS)
# Most tests wait most of the time. The limit is for a package that hangs: none takes 90 s.
SHORT      = $(GOTESTSUM) --hide-summary=skipped
SHORTFLAGS = -vet=off -short -parallel 8 -timeout 10m $(TESTFLAGS)
NOT_CORE   = $(if $(CORE),| grep -vxF "$$($(GO) list $(CORE))")
ALONE      = $(if $(MORE),$(ALL),./...)

# go test takes a result from its cache if the files of the module are the same, but pages lie outside of most modules: a test that
# reads them asks for this as well.
export PAGES_SUM := $(shell cat *.md docs/*.md benchmarks/README.md | cksum)

LINTERS = github.com/kisielk/errcheck honnef.co/go/tools/cmd/staticcheck ./wllockvet

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: check
check: ## while writing: format, vet, the short tests that need no server
	@tools/stages format vet 'short-alone CORE= MORE=1'

.PHONY: test
test: ## what a change must pass: format, the short tests over real servers, those of the core under the race detector. What tells soonest comes first
	@[ -e bin/gotestsum ] || echo "On a new machine this downloads and compiles dependencies, and installs the servers that tests start:" \
		"up to twenty minutes on two cores, and two until the first result. Later it takes seven."
	@tools/stages format '-j2 install short-alone' short-race short-rest
	@tools/results slowest bin/short-*.json

.PHONY: test-all
test-all: ## all tests, under the race detector where it tells more; lint, benchmarks, browser, tools. Goes on after a failure
	@rm -f bin/*.json
	@status=0; tools/stages install || status=$$?; for stage in $(STAGES) "lint -k" "ports MORE=1"; do tools/stages "$$stage" || status=$$?; done; \
		tools/results slowest bin/*.json; tools/results failed bin/*.json; exit $$status

.PHONY: install short-race short-alone short-rest short-plain
install:
	+@tools/stages compiler servers
short-race: compiler servers gotestsum # a server may be late once
	@CGO_ENABLED=1 $(SHORT) --rerun-fails --post-run-command "tools/results repeats" --packages "$(CORE) $(TWICE)" -- $(SHORTFLAGS) -race
short-alone: gotestsum # of the root, which has few dependencies. Tests of allocations skip under the detector
	@$(SHORT) -- $(SHORTFLAGS) $$(tools/tested alone $(ALONE) $(NOT_CORE))
	@$(GO) test -short -run AllocatesLittle $(TESTFLAGS) .
short-rest: servers gotestsum # the package that takes longest begins first
	@$(SHORT) --rerun-fails --post-run-command "tools/results repeats" \
		--packages "./distributed/sqllock $$($(GO) list $(ALL) $(NOT_CORE) | grep -vxF "$$(tools/tested alone $(ALONE); $(GO) list $(PLAIN))")" -- $(SHORTFLAGS)
short-plain: servers gotestsum ## the short tests of benchmarks, migrations and examples for web frameworks, which compile the most
	@$(SHORT) --rerun-fails --post-run-command "tools/results repeats" --packages "$(PLAIN)" -- $(SHORTFLAGS)

# What importers use is built for other platforms, and where this machine runs programs of 32 bits, tests of the core that need no
# server run as such.
PORTS = linux/386 windows/amd64 $(if $(MORE),linux/arm linux/arm64 darwin/arm64 windows/arm64)
.PHONY: ports
ports: ## builds for 386 and Windows, with MORE=1 for more, and tests of the core as a program of 32 bits
	@for port in $(PORTS); do \
		CGO_ENABLED=0 GOOS=$${port%/*} GOARCH=$${port#*/} $(GO) build ./cmd/wllock/... \
			$$(awk -F '`' '/^\| `[a-z]/ { print $$2 == "wllock" ? "." : "./" $$2 }' docs/modules.md) || { echo "it does not build for $$port"; exit 1; }; \
	done
	@[ "$$($(GO) env GOHOSTOS GOHOSTARCH | paste -sd /)" != linux/amd64 ] || \
		CGO_ENABLED=0 GOARCH=386 $(GO) test -short -vet=off $(TESTFLAGS) $$(tools/tested alone $(CORE))

.PHONY: race
race: compiler servers browser spin gotestsum ## go test -race; a test that needs a server fails without one
	@CGO_ENABLED=1 $(TEST) -race $(PKG)

.PHONY: kube-apiserver
kube-apiserver: ## build the API server of Kubernetes, half an hour the first time
	@tools/kube-apiserver "$${XDG_CACHE_HOME:-$$HOME/.cache}/wllock/kube-apiserver"

.PHONY: test-long
test-long: compiler servers browser spin kube-apiserver gotestsum ## the long simulations and soak tests as well
	@CGO_ENABLED=1 WLLOCK_LONG=1 $(GOTESTSUM) -- -vet=off -race -count=1 -timeout 2h $(PKG)
	@WLLOCK_LONG=1 $(MAKE) unraced TESTFLAGS=-count=1

.PHONY: lint format fix staticcheck errcheck wllockvet linters gotestsum
lint: format vet fix staticcheck errcheck wllockvet ## gofmt, vet, go fix, staticcheck, errcheck, wllockvet; make -k lint goes on after a finding
format:
	@found=$$(gofmt -l .); test -z "$$found" || { echo "gofmt -w these files:"; echo "$$found"; exit 1; }
# What go fix proposes grows with Go; only the release that the modules name is held to it.
fix:
	@case "$$($(GO) env GOVERSION)" in go1.26*) $(GO) fix -diff $(ALL) || { echo "run: go fix $(ALL)"; exit 1; };; esac
staticcheck: linters
	@bin/staticcheck $(ALL)
errcheck: linters
	@bin/errcheck -ignoretests -exclude tools/errcheck.txt $(ALL)
wllockvet: linters # under go vet, which remembers what it has judged
	@$(GO) vet -vettool="$(CURDIR)/bin/wllockvet" $(ALL)
# These are in no go.mod but that of tools, which is not in go.work: it must not choose versions for the others.
linters:
	@GOWORK=off $(GO) -C tools build -o ../bin/ $(LINTERS)
gotestsum:
	@GOWORK=off $(GO) -C tools build -o ../bin/ gotest.tools/gotestsum

.PHONY: vet
vet: ## go vet
	@$(GO) vet $(ALL)

.PHONY: benchmarks unraced databases
benchmarks: servers gotestsum ## test what compares and what uses other libraries: the benchmarks, examples for web frameworks and of migrations
	@$(TEST) $(PLAIN)
unraced: servers gotestsum # what skips under the detector
	@$(TEST) -run 'AllocateLittle|Scenes|Chaos' . ./distributed/zklock ./distributed/etcdlock ./test/chaos
databases: servers gotestsum # those that dbtest.Tested leaves out under the detector
	@$(TEST) -skip '/postgres|Notifier|Failover|LargerThanTheServer' ./distributed/sqllock

.PHONY: bench
bench: servers ## wllock beside other locks over the same servers, 45 minutes; BENCHFLAGS=-quick, or -help
	@$(GO) -C benchmarks run . $(BENCHFLAGS)

.PHONY: gobench
gobench: servers ## run the Go benchmarks; BENCH=regexp, BENCHTIME=1s, PKG=./local
	@$(GO) test -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -benchmem $(PKG)

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME
	@for pkg in $$($(GO) list $(PKG)); do \
		for target in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
			echo "$$pkg $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$pkg; \
		done; \
	done

.PHONY: cover
cover: compiler servers browser spin ## coverage over all packages: coverage.out, coverage.html
	@WLLOCK_REQUIRE_SERVERS=1 $(GO) test -coverpkg="$$(echo $(RACED) | tr ' ' ,)" -coverprofile=coverage.out $(PKG)
	@$(GO) tool cover -html=coverage.out -o coverage.html
	@$(GO) tool cover -func=coverage.out | tail -n 1

.PHONY: tools
tools: gotestsum browser ## test the tools: links and pages of the documentation in a browser, workflows, compose.yaml
	@GOWORK=off $(GO) -C tools vet ./...
	@cd tools && GOWORK=off $(TEST) -count=1 ./...

CHAOS      ?= .#   which cells
CHAOS_TIME ?= 60s# of each
CHAOS_JOURNALS ?= /tmp/wllock-chaos# has what the processes said, and pictures of what was wrong
.PHONY: chaos
chaos: compiler servers $(if $(or $(filter .,$(CHAOS)),$(if $(findstring stand-in,$(CHAOS)),,$(findstring kube,$(CHAOS)))),kube-apiserver) ## kill, stop and cut off processes and lock services, and judge what they did: test/results, 50 minutes; CHAOS='redis|etcd', CHAOS_TIME=20s
	@mkdir -p $(CHAOS_JOURNALS)
	@WLLOCK_REQUIRE_SERVERS=1 WLLOCK_CHAOS_TIME=$(CHAOS_TIME) WLLOCK_CHAOS_RESULTS="$(CURDIR)/test/results" \
		$(GO) test -count=1 -timeout 0 -artifacts -outputdir $(CHAOS_JOURNALS) -v -run 'TestChaos/($(CHAOS))' ./test/chaos

PLAYS ?= 10000
.PHONY: schedules
schedules: ## play random schedules in simulated time, and note in test/results how many held, ten minutes; PLAYS=100000
	@tools/schedules $(PLAYS)

MODEL ?= .# which instances and mistakes
.PHONY: model spin
model: compiler spin ## search the models of the protocols of Redis and Redlock whole, and find the mistakes in them: test/results, three minutes; MODEL='late|TRIED'
	@WLLOCK_LONG=1 $(if $(filter-out .,$(MODEL)),WLLOCK_MODEL='$(MODEL)',WLLOCK_MODEL_RESULTS="$(CURDIR)/test/results/model.json") \
		$(GO) test -count=1 -timeout 0 -parallel 2 -v -run '^TestModel$$' ./test/model
spin:
	@tools/need spin spin

.PHONY: mutants
mutants: servers ## break one line after the other, and say which test finds it, a quarter of an hour; MUTANTS='K4|^local/' breaks some
	@GOWORK=off $(GO) -C tools run ./mutants $(if $(MUTANTS),-only '$(MUTANTS)',-results test/results/mutants.json)

.PHONY: proof
proof: ## write docs/proof.md from the lists of tools/proof and from test/results
	@GOWORK=off $(GO) -C tools run ./proof

.PHONY: site
site: ## build the documentation as pages that need no server: site/index.html
	@tools/site/build site

.PHONY: release
release: ## try a release as an importer would get it, without tagging anything; VERSION=v0.1.0, RELEASE=-help
	@GOWORK=off $(GO) -C tools run ./release -version '$(VERSION)' $(RELEASE)

.PHONY: binaries
binaries: ## build and pack the command line for all platforms: dist; VERSION=v0.1.0
	@tools/need zip zip
	@tools/binaries $(VERSION) dist

.PHONY: api
api: ## compare what the modules export with the last tag
	@tools/api

.PHONY: vulnerabilities
vulnerabilities: ## look for known vulnerabilities in what is used of dependencies; VULNDB=URL of the database
	@GOWORK=off $(GO) -C tools build -o ../bin/ golang.org/x/vuln/cmd/govulncheck
	@for module in $$(GOWORK=off $(GO) -C tools run ./modules); do \
		echo "$$module"; (cd $$module && GOWORK=off "$(CURDIR)/bin/govulncheck" $(if $(VULNDB),-db $(VULNDB)) ./...); done

.PHONY: cli
cli: ## build the command line, one static binary: bin/wllock
	@CGO_ENABLED=0 $(GO) build -C cmd/wllock -ldflags '-s -w' -o ../../bin/wllock .

.PHONY: flashsale
flashsale: ## run the example: 100 pieces, many buyers
	@$(GO) run ./example/flashsale

.PHONY: servers
servers: ## install what the tests start: Redis, ZooKeeper, MariaDB, PostgreSQL, etcd, memcached
	@tools/need redis-server redis-server
	@tools/need java default-jre-headless
	@tools/need /usr/share/java/zookeeper.jar libzookeeper-java
	@PATH="$$PATH:/usr/sbin" tools/need mariadbd mariadb-server
	@tools/need '/usr/lib/postgresql/*/bin/postgres' postgresql
	@tools/need etcd etcd-server
	@tools/need memcached memcached

.PHONY: browser
browser: # for the page of the flash sale
	@tools/need chromium chromium

.PHONY: flashsale-pictures
flashsale-pictures: browser servers ## take the pictures of docs/flashsale.md anew
	@WLLOCK_REQUIRE_SERVERS=1 WLLOCK_PICTURES="$(CURDIR)/docs" $(GO) test -count=1 -run Pictures ./example/flashsale/internal/stage

.PHONY: alerts
alerts: ## test the Prometheus rules with promtool; not a part of test, because Debian has it in the package prometheus (19 MB, 96 MB installed)
	@tools/need promtool prometheus
	@cd deploy && promtool check rules alerts.yaml alerts_jobs.yaml && promtool test rules alerts_test.yaml

.PHONY: compiler
compiler: # the race detector needs cgo, and servers whose clock is set a library
	@tools/need gcc gcc libc6-dev

.PHONY: clean
clean: ## remove what the other targets leave behind
	@rm -rf coverage.out coverage.html bin site dist
	@find . -name '*.test' -type f -delete
	@find . -name '*.prof' -type f -delete
