# Deeplink. `make help` lists what there is.

GO ?= go
TEST := $(GO) test -shuffle=on -timeout 30m
SERVERS := deploy/local/install.sh postgresql redis
# What tests drive besides.
DRIVEN := deploy/local/install.sh chromium nginx wrk
# These take all cores, for Chromium, compilers and whole fleets, or count by the second what has to be done in time: each runs alone.
ALONE := ./control ./edge ./bench/... ./deploy/local ./deploy/examples ./shared/testbrowser
OTHERS := $$($(GO) list ./... | grep -vE '^deeplink/(control|edge|bench|bench/.*|deploy/local|deploy/examples|shared/testbrowser)$$')

.DEFAULT_GOAL := help
.PHONY: help run test race check deps rules manifests fuzz vuln bench migrate

help: ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

run: ## serve all of it from here: PostgreSQL, Redis, control, two edges, a demo organization
	@$(SERVERS)
	@$(GO) build -o "$${RUN_DIR:-.run}/bin/local" ./deploy/local && exec "$${RUN_DIR:-.run}/bin/local"

test: ## every test, with a private PostgreSQL and Redis
	@$(SERVERS)
	@$(DRIVEN)
	$(TEST) $(OTHERS)
	$(TEST) -p 1 $(ALONE)

# Pages run in Chromium, and whole fleets and broken builds in processes of their own: there the detector sees nothing.
ELSEWHERE := InChromium|NoFaultMakes|NothingThatGoesWrong|NoEdgeAnswers|NoFailoverLoses|NoSiegeLoses|EveryPatchFits|RunThroughARestore|ContendersDoTheSame

race: ## the tests under the race detector, but those of pages, whole fleets and broken builds
	@$(SERVERS)
	@$(DRIVEN)
	$(TEST) -race $(OTHERS)
	$(TEST) -race -p 1 -skip '$(ELSEWHERE)' $(ALONE)

check: deps rules manifests race ## format, vet, staticcheck, imports, alerts, manifests, race, the commands of the documents
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); exit 1; }
	$(GO) vet ./...
	$(GO) tool staticcheck ./...
	$(GO) mod tidy -diff
	.ci/docs

deps: ## refuse imports on the wrong side
	.ci/deps

rules: ## the alerts, their tests and the dashboard's queries, by promtool
	@deploy/local/install.sh promtool
	.ci/rules

manifests: ## what deploy/ gives to Kubernetes, Compose, systemd, nginx, Caddy and HAProxy, read by them
	@deploy/local/install.sh nginx haproxy caddy systemd-analyze
	.ci/manifests/check

fuzz: ## each fuzz target for FUZZTIME (10s)
	.ci/fuzz

vuln: ## known vulnerabilities in what is called, by the Go team's database (needs vuln.go.dev)
	$(GO) run golang.org/x/vuln/cmd/govulncheck@latest ./...

bench: ## benchmarks of the hot path and the freshness run
	@$(SERVERS)
	$(GO) test -run '^$$' -bench . -benchmem ./edge ./shared/ratelimit ./shared/matchtoken
	$(GO) run ./bench freshness

migrate: ## bring the database of DATABASE_URL up to date
	$(GO) run ./control migrate
