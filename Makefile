# Deeplink. `make help` lists what there is.

GO ?= go
TEST := $(GO) test -shuffle=on -timeout 30m
SERVERS := deploy/local/install.sh postgresql redis
# Programs that the second tier of tests uses.
DRIVEN := deploy/local/install.sh chromium nginx wrk

.DEFAULT_GOAL := help
.PHONY: help run test prove race check format deps rules manifests clients openapi fuzz vuln bench migrate

help: ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

run: ## start everything on this machine: PostgreSQL, Redis, control, two edges, a demo organization
	@$(SERVERS)
	@$(GO) build -o "$${RUN_DIR:-.run}/bin/local" ./deploy/local && exec "$${RUN_DIR:-.run}/bin/local"

test: ## the first tier of tests: a private PostgreSQL and Redis, nothing else
	@$(SERVERS)
	$(TEST) -short ./...

race: ## the first tier under the race detector
	@$(SERVERS)
	$(TEST) -short -race ./...

# One package at a time: each of these tests takes all cores.
prove: ## the second tier: whole fleets, faults, broken builds, pages in Chromium
	@$(SERVERS)
	@$(DRIVEN)
	AXE_CORE="$$(.ci/axe)" $(TEST) -p 1 -run "$$(.ci/proofs)" $$(.ci/proofs packages)

check: format deps rules manifests ## format, vet, staticcheck, imports, alerts, manifests, the commands of the documents
	$(GO) vet ./...
	$(GO) tool staticcheck ./...
	$(GO) mod tidy -diff
	.ci/docs

format: ## refuse Go files that gofmt would change
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); exit 1; }

deps: ## check which package imports which
	.ci/deps

rules: ## check the alerts, their tests and the dashboard's queries with promtool
	@deploy/local/install.sh promtool
	.ci/rules

manifests: ## check the files of deploy/ with Kubernetes, Compose, systemd, nginx, Caddy and HAProxy
	@deploy/local/install.sh nginx haproxy caddy systemd-analyze
	.ci/manifests/check

clients: ## check the clients for apps: the web client's types, the Android client on a JVM (needs the npm registry)
	.ci/clients

openapi: ## check openapi.yaml with a linter and with generated clients for TypeScript and Go (needs the npm registry)
	.ci/openapi

fuzz: ## run each fuzz target for FUZZTIME (10s)
	.ci/fuzz

vuln: ## look for known vulnerabilities in the code that is called (needs vuln.go.dev)
	$(GO) run golang.org/x/vuln/cmd/govulncheck@latest ./...

bench: ## run the benchmarks of the hot path and the freshness run
	@$(SERVERS)
	$(GO) test -run '^$$' -bench . -benchmem ./edge ./shared/ratelimit ./edge/internal/matchtoken
	$(GO) run ./bench/prove faults freshness

migrate: ## bring the database of DATABASE_URL up to date
	$(GO) run ./control migrate
